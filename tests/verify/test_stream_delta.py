"""A stream into tables of Delta Lake: copies, a kill between its two tables and a new checkpoint double nothing.

Spark gets the jars from Maven's repository. Where they do not resolve, or this is a Spark for which there is no Delta
Lake, the test is skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from pipeline.session import CannotStart, need_java
from tests.real.pipeline.fast import FAST, WITHOUT_CODE
from tests.real.pipeline.logs import sound, text

RUN_S_MAX: Final = 400
UNRESOLVED: Final = "unresolved dependency"


def run(folder: Path, checkpoint: str) -> dict[str, int]:
    """Runs a stream until it has read all; returns its counts."""
    from pipeline.stream.delta import SETTINGS

    words = [sys.executable, "-m", "pipeline", "stream", str(folder / "d1"), str(folder / "d2"), "--once", "-o", "json"]
    words += ["--into", str(folder / "out"), "--format", "delta", "--checkpoint", str(folder / checkpoint)]
    words += ["--closed-after", "0s", "--master", "local[1]"]
    words += [f"--conf={name}={value}" for name, value in (FAST | WITHOUT_CODE | SETTINGS).items()]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    if ran.returncode and UNRESOLVED in ran.stderr:
        pytest.skip("the jars of Delta Lake do not resolve")
    assert ran.returncode == 0, ran.stderr[-4_000:]
    [found] = json.loads(ran.stdout)["items"]
    return {name: int(found[name]) for name in ("rows", "copies", "quarantined")}


@pytest.mark.timeout(1_200)
def test_copies_a_lost_table_and_a_new_checkpoint_double_nothing(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    from pipeline.stream.delta import SPARK

    if not pyspark.__version__.startswith(f"{SPARK}."):
        pytest.skip(f"Delta Lake works with Spark {SPARK}, and this is {pyspark.__version__}")
    log = sound("c")
    for name, rows in (("d1", log[:20]), ("d2", log[10:])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0000000005-000000000001.jsonl").write_text(text(rows) + "no row\n")

    assert run(tmp_path, "one") == {"rows": len(log), "copies": 10, "quarantined": 2}
    shutil.rmtree(tmp_path / "out" / "quarantine")  # as after a kill between the two tables
    (tmp_path / "out" / "quarantine" / "_delta_log").mkdir(parents=True)
    assert run(tmp_path, "two") == {"rows": 0, "copies": len(log) + 10, "quarantined": 2}
    assert run(tmp_path, "three") == {"rows": 0, "copies": len(log) + 10, "quarantined": 0}
