"""Lines of progress: what they say, when they come, and that the tasks of a job count for them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.progress import Done, Phase, heard, line, of_buckets, telling
from pipeline.verbs import running as commands
from tests.kit.command import regent
from tests.real.pipeline.logs import sound, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 100.0
FILES = Phase("reading journals", "files", [10, 10], [6_000, 2_000], len)


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (Done(), "reading journals: 0 of 20 files, 8 s so far"),
        (
            Done(10, 6_000, 4_000_000),
            "reading journals: 10 of 20 files, 4,000,000 rows, 500,000 rows/s, about 3 s left",
        ),
        (Done(30, 9_000, 0), "reading journals: 20 of 20 files, about 0 s left"),
    ],
)
def test_a_line_says_what_is_done_how_quickly_and_the_rest(done: Done, said: str) -> None:
    assert line(FILES, done, 8.0) == said


def test_a_phase_without_tasks_says_how_long_it_lasts() -> None:
    assert line(Phase("starting Spark"), Done(), 4.4) == "starting Spark: 4 s so far"


def test_buckets_are_as_large_as_their_rows() -> None:
    assert of_buckets("judging", [[0, 2], [1]], [5, 7, 9]) == Phase("judging", "buckets", [2, 1], [14, 7])


def test_lines_come_while_a_phase_lasts_and_end_with_it() -> None:
    said: list[str] = []
    twice, ended = threading.Event(), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            twice.set()

    with heard(say, 0.001, ended.set):
        with telling(FILES, lambda: Done(10, 6_000, 0)):
            assert twice.wait(DEADLINE_S)
        assert ended.is_set()
        count = len(said)
    with telling(FILES):
        pass
    assert len(said) == count
    assert said[0].startswith("reading journals: 10 of 20 files")


def test_a_phase_goes_on_where_nobody_can_read_the_lines() -> None:
    refused = threading.Event()

    def say(_: str) -> None:
        refused.set()
        raise BrokenPipeError

    with heard(say, 0.001), telling(FILES):
        assert refused.wait(DEADLINE_S)


@pytest.fixture
def journals(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets the commands use the tests' Spark, and say at once how far it is."""
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(commands, "IN_A_LOG_S", 0.001)
    return write(tmp_path / "journals", [sound("7")])


def test_the_tasks_of_an_ingest_and_an_audit_count_for_its_lines(journals: list[str], tmp_path: Path) -> None:
    said = regent("pipeline", "ingest", *journals, "--into", tmp_path / "bronze").stderr
    assert "reading journals: 0 of 2 files" in said
    said = regent("pipeline", "audit", tmp_path / "bronze", "-o", "json").stderr
    assert "judging: 0 of " in said


def test_a_quiet_command_says_nothing_of_its_progress(journals: list[str], tmp_path: Path) -> None:
    said = regent("pipeline", "ingest", "-q", *journals, "--into", tmp_path / "bronze").stderr
    assert "so far" not in said
    assert "rows of 2 terms" in said


def test_what_a_task_has_done_reaches_the_driver(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline import executors

    seen: list[Done] = []

    class Telling:
        def __init__(self, _: Phase, done: object) -> None:
            self._done = done

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            seen.append(self._done())  # type: ignore[operator]

    monkeypatch.setattr(executors, "telling", Telling)
    with heard(lambda _: None, DEADLINE_S):
        found = executors.workers_of(spark).each(len, ["abc", "de"], Phase("x", "words", [1, 1], [30, 20], int))
    assert found == [3, 2]
    assert seen == [Done(2, 50, 5)]
