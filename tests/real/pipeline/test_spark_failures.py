"""Spark gives a job up, or counts differ: the commands print one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from cli.exit_codes import Exit
from tests.kit.command import regent, unwrapped

pytest.importorskip("pyspark", reason="the extra pipeline is not installed")

from py4j.protocol import Py4JNetworkError

from pipeline import jobs
from pipeline.ending import Disagreement
from pipeline.session import cause

LOST = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
MemoryError: no room for 7 rows

\tat org.apache.spark.Thread.run(Thread.java:1)
"""


class Spark:
    """Stands for a session."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "Spark gave up: Answer from Java side is empty"),
        (Disagreement("A1 of epoch 5, row 9: they differ"), "A1 of epoch 5, row 9: they differ"),
    ],
)
def test_an_audit_that_fails_prints_a_sentence_and_stops_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def failing(*_: Any, **__: Any) -> NoReturn:
        raise error

    spark = Spark()
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr("pipeline.session.runs_already", lambda: False)
    monkeypatch.setattr(jobs, "audit", failing)
    result = regent("pipeline", "audit", tmp_path, code=Exit.FAILED)
    assert words in unwrapped(result.stderr)
    assert "Traceback" not in result.stderr
    assert spark.stopped


def test_the_cause_of_a_lost_task_is_its_last_python_line() -> None:
    assert cause(RuntimeError(LOST)) == (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: "
        "MemoryError: no room for 7 rows"
    )
    assert cause(RuntimeError("")) == "RuntimeError"
