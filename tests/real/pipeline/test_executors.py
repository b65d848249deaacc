"""Executors of Spark: what they lack is named in one sentence."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.exit_codes import Exit
from tests.kit.command import regent
from tests.real.pipeline.logs import sound, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_library_that_executors_lack_is_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pipeline import executors

    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(executors, "LIBRARIES", ("pyarrow", "arrow_of_nowhere"))
    monkeypatch.setattr(executors, "_READY", set())
    journals = write(tmp_path / "journals", [sound("c")])
    result = regent("pipeline", "ingest", *journals, "--into", tmp_path / "bronze", code=Exit.FAILED)
    assert "the executors of Spark cannot import arrow_of_nowhere" in result.stderr
    assert "PYSPARK_PYTHON" in result.stderr
    assert not (tmp_path / "bronze" / "manifest.json").exists()


def test_the_question_runs_where_every_library_is_missing() -> None:
    """In a Python like an executor's: the function comes by its name, and no library of the pipeline imports."""
    pytest.importorskip("pyspark")
    from pipeline.executors import LIBRARIES
    from pipeline.lacking import lacking

    asked = pickle.dumps(partial(lacking, LIBRARIES))
    without = f"import pickle, sys; sys.modules.update(dict.fromkeys({(*LIBRARIES, 'pyspark')!r}))"
    script = f"{without}; print(pickle.loads({asked!r})(0))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=200)
    assert ran.stderr == ""
    assert ran.stdout.startswith(f"msgspec ({sys.executable}: ")


def test_the_code_for_executors_is_whole(tmp_path: Path) -> None:
    import zipfile

    pytest.importorskip("pyspark")
    from pipeline.executors import _archive

    names = zipfile.ZipFile(_archive(tmp_path)).namelist()
    assert {"pipeline/segments.py", "pipeline/__init__.py", "state_machines/journal/events.py"} <= {*names}
