"""``spark-submit`` runs a verb: from the folder of the package, or from a zip, with its exit code as a gate.

It prints all output of Python on its own standard output, errors as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.session import CannotStart, need_java
from tests.real.pipeline.logs import change, sound, write

ROOT = Path(__file__).parents[2]
RUN_S_MAX = 300
SUBMIT = Path(sys.executable).with_name("spark-submit")


@pytest.fixture(autouse=True)
def _spark_is_there() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))


def submitted(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs spark-submit in an empty folder, with the Python of these tests and without its paths."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return subprocess.run(
        [str(SUBMIT), *words],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )


def zipped(folder: Path) -> tuple[Path, Path]:
    """Makes a zip of the code, and a copy of the file that starts it, in folders without other code."""
    archive = folder / "regent.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for package in ("pipeline", "state_machines"):
            for source in (ROOT / package).rglob("*.py"):
                opened.write(source, source.relative_to(ROOT))
    started = folder / "started" / "__main__.py"
    started.parent.mkdir()
    shutil.copy(ROOT / "pipeline" / "__main__.py", started)
    return archive, started


def test_an_audit_is_a_gate_of_spark_submit(tmp_path: Path) -> None:
    """The master is that of spark-submit, and its settings win over the defaults."""
    journals = write(tmp_path / "journals", [change((5, 9), isr0=[1, 3])(sound("c"))])
    bronze = str(tmp_path / "bronze")
    start = ["--master", "local[1]", "--conf", "spark.app.name=mine", str(ROOT / "pipeline" / "__main__.py")]
    ran = submitted(tmp_path, *start, "ingest", *journals, "--into", bronze)
    assert ran.returncode == 0, ran.stderr[-4_000:]
    assert f"{len(sound('c'))} rows of " in ran.stdout
    assert "Submitted application: mine" in ran.stderr
    ran = submitted(tmp_path, *start, "audit", bronze)
    assert ran.returncode == 3, ran.stderr[-4_000:]
    assert "A10: orders-0 at epoch 5, row 9: " in ran.stdout


def test_a_zip_is_enough_for_driver_and_executors(tmp_path: Path) -> None:
    """On executors that are other processes, and know no package of regent but from the zip."""
    archive, started = zipped(tmp_path)
    journals = write(tmp_path / "journals", [sound("a"), sound("b")])
    ran = submitted(
        tmp_path,
        *("--master", "local-cluster[2,1,1024]", "--py-files", str(archive)),
        *("--conf", "spark.executorEnv.PYTHONPATH=", str(started)),
        *("ingest", *journals, "--into", str(tmp_path / "bronze")),
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    assert json.loads((tmp_path / "bronze" / "ingest.json").read_text())["rows"] == 2 * len(sound("a"))
