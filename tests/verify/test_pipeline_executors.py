"""An ingest in tasks of other processes, also ones that know nothing of regent: they run the code of the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.session import CannotStart, need_java
from tests.real.pipeline.logs import sound, write

RUN_S_MAX = 200
SCRIPT = """
import json, sys
from pipeline.session import start

def where(_):
    import pipeline.segments
    return pipeline.segments.__file__

if __name__ == "__main__":
    master, into, *journals = sys.argv[1:]
    spark = start(master, {"spark.executorEnv.PYTHONPATH": ""})
    from pipeline import jobs
    summary = jobs.ingest(spark, journals, into)
    places = spark.sparkContext.parallelize(range(2), 2).map(where).collect()
    print(json.dumps({"rows": summary["rows"], "places": places}))
    spark.stop()
"""


@pytest.mark.parametrize("master", ["local[1]", "local-cluster[2,1,1024]"])
def test_tasks_have_the_code_of_the_driver(tmp_path: Path, master: str) -> None:
    """Also where the command is run in a folder with a package of the same name."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    journals = write(tmp_path / "journals", [sound("a"), sound("b")])
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    other = tmp_path / "work" / "pipeline" / "__init__.py"
    other.parent.mkdir(parents=True)
    other.touch()
    command = [sys.executable, str(script), master, str(tmp_path / "bronze"), *journals]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        command, cwd=other.parents[1], env=environment, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["rows"] == 2 * len(sound("a"))
    assert all((".zip/pipeline" in place) == (master != "local[1]") for place in found["places"]), found["places"]
