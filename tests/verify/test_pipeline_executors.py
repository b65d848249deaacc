"""An ingest on executors of another process that know nothing of regent: they get its code from the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.session import CannotStart, need_java
from tests.pipeline.logs import sound, write

RUN_S_MAX = 200
SCRIPT = """
import json, sys
from pipeline.session import start

def where(_):
    import pipeline.segments
    return pipeline.segments.__file__

if __name__ == "__main__":
    into, *journals = sys.argv[1:]
    spark = start("local-cluster[2,1,1024]", {"spark.executorEnv.PYTHONPATH": ""})
    from pipeline import jobs
    summary = jobs.ingest(spark, journals, into)
    places = spark.sparkContext.parallelize(range(2), 2).map(where).collect()
    print(json.dumps({"rows": summary["rows"], "places": places}))
    spark.stop()
"""


def test_executors_get_the_code_from_the_driver(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    journals = write(tmp_path / "journals", [sound("a"), sound("b")])
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "bronze"), *journals]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["rows"] == 2 * len(sound("a"))
    assert all(".zip/pipeline/segments.py" in place for place in found["places"]), found["places"]
