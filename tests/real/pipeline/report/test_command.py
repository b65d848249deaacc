"""``regent pipeline report``: its files, its exit codes and its sentences, over journals that were merged."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from cli.exit_codes import Exit
from pipeline.report.result import VERSION
from tests.kit.command import items, regent
from tests.real.pipeline.logs import Log, write
from tests.real.pipeline.report.kit import WALL_S, Term, reported
from tests.real.pipeline.report.test_figures import stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _one_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the commands use the tests' Spark and leave it running."""
    monkeypatch.setattr("pipeline.session.start", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)


def pipeline(*arguments: str | Path, code: Exit = Exit.DONE) -> Result:
    return regent("pipeline", *arguments, code=code)


def merged(folder: Path, *logs: Log) -> Path:
    pipeline("ingest", *write(folder / "journals", logs), "--into", folder / "merged")
    return folder / "merged"


def stop() -> Log:
    """Makes a journal whose broker 1 dies at second 10; its partition has no leader for 0.2 s."""
    return stopped().add(50, "CTL_RESIGNED").lines


def test_a_report_has_a_page_a_result_a_csv_and_intervals(tmp_path: Path) -> None:
    folder = merged(tmp_path, stop())
    printed = pipeline("report", folder, "--session-timeout", "6000")
    assert (
        "broker 1 unplanned: 1 partition without a leader for 0.20 s, at most 8.20 s, all together; first of its kind"
        in printed.stdout
    )
    into = folder / "report"
    found = json.loads((into / "report.json").read_text())
    assert found["version"] == VERSION
    assert found["stops"][0]["cost"]["knownS"] == 0.2
    assert "<title>What stops of brokers cost in cluster c" in (into / "report.html").read_text()
    [topic] = csv.DictReader((into / "topics.csv").open())
    assert (topic["topic"], topic["known_s"], topic["at_most_s"]) == ("orders", "0.2", "8.2")
    [interval] = pq.read_table(into / "intervals").to_pylist()
    assert (interval["leader0"], interval["leader1"], interval["reason"]) == (1, 2, "broker_failure")
    assert sorted(path.name for path in into.iterdir()) == ["intervals", "report.html", "report.json", "topics.csv"]


def test_a_result_is_that_of_the_definitions_and_a_second_report_replaces_the_first(tmp_path: Path) -> None:
    folder = merged(tmp_path, stop())
    for _ in range(2):
        [shown] = items("pipeline", "report", folder)
        assert shown["cost"]["intervals"] == reported(stop()).cost.intervals == 1
        assert shown["stops"][0]["full"] == {"partitions": 1, "seconds": None, "unseen": 0, "left": 1}
    assert len(list((folder / "report" / "intervals").iterdir())) == 16


def test_a_gate_refuses_a_topic_that_was_without_a_leader_for_too_long(tmp_path: Path) -> None:
    folder = merged(tmp_path, stop())
    pipeline("report", folder, "--fail-over", "0.3")
    printed = pipeline("report", folder, "--fail-over", "0.1", code=Exit.REFUSED)
    assert "1 topics were without a leader for more than 0.1 s: orders (0.2 s)" in printed.stderr.replace("\n", " ")
    pipeline("report", folder, "--fail-over", "0.1", "--topic-prefix", "pay")


def test_windows_of_one_folder_are_compared(tmp_path: Path) -> None:
    folder = merged(tmp_path, stop())
    times: list[Any] = ["--since", _iso(5), "--against-until", _iso(5)]
    [shown] = items("pipeline", "report", folder, *times)
    by_name = {figure["name"]: figure for figure in shown["against"]["figures"]}
    assert (by_name["unplanned stops"]["here"], by_name["unplanned stops"]["there"]) == (1, 0)
    assert "Against another time" in (folder / "report" / "report.html").read_text()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(WALL_S + seconds, UTC).isoformat()


def test_another_folder_is_compared(tmp_path: Path) -> None:
    here = merged(tmp_path / "a", stop())
    there = merged(tmp_path / "b", Term().begin(0, 1, 2).add(9, "CTL_RESIGNED").lines)
    [shown] = items("pipeline", "report", here, "--against", there, "--into", tmp_path / "out")
    assert shown["against"]["figures"][2]["delta"] == 1
    assert (tmp_path / "out" / "report.json").exists()


def test_one_of_several_clusters_is_chosen(tmp_path: Path) -> None:
    other = [line | {"cluster": "d"} for line in Term().begin(0, 1).add(9, "CTL_RESIGNED").lines]
    folder = merged(tmp_path, stop(), other)
    printed = pipeline("report", folder, code=Exit.FAILED)
    assert "2 clusters, c, d: choose one by --cluster" in printed.stderr.replace("\n", " ")
    [shown] = items("pipeline", "report", folder, "--cluster", "d")
    assert (shown["cluster"], shown["stops"], shown["topics"]) == ("d", [], [])
    printed = pipeline("report", folder, "--cluster", "e", code=Exit.FAILED)
    assert "no rows of cluster e" in printed.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--since", "2001-01-01", "--until", "2002-01-01"), Exit.FAILED, "there are no rows in that time"),
        (("--since", "1h", "--until", "2h"), Exit.USAGE, "--until 2h is before --since 1h"),
        (
            ("--against-since", "1h", "--against-until", "2h"),
            Exit.USAGE,
            "--against-until 2h is before",
        ),
        (("--since", "soon"), Exit.USAGE, "--since soon is no time"),
        (("--loads", "x"), Exit.USAGE, "--loads needs --snapshot"),
        (("--snapshot", "nowhere"), Exit.USAGE, "nowhere cannot be read"),
        (("--against", "nowhere"), Exit.FAILED, "nowhere was not made by 'regent pipeline ingest'"),
    ],
)
def test_what_cannot_be_reported_is_named(tmp_path: Path, options: tuple[str, ...], code: Exit, sentence: str) -> None:
    folder = merged(tmp_path, stop())
    printed = pipeline("report", folder, *options, code=code)
    assert sentence in printed.stderr.replace("\n", " ")
    assert not list((folder / "report").glob("*")), "nothing is left half done"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = merged(tmp_path, stop())
    (tmp_path / "file").write_text("")
    printed = pipeline("report", folder, "--into", tmp_path / "file" / "report", code=Exit.FAILED)
    assert "file/report cannot be written" in printed.stderr.replace("\n", "")
    assert "name another folder by --into" in printed.stderr.replace("\n", " ")
