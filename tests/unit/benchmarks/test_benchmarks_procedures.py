"""The benchmarks of procedures: the peer's output is read as it is printed, and every case runs in a tiny size."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.operations import LEADERS, OURS, THEIRS, THROTTLED, Played
from benchmarks.procedures import __main__ as tool
from benchmarks.procedures import hbase, scheduler, stores
from benchmarks.procedures.__main__ import CASES, measures, parsed
from benchmarks.procedures.plan import TINY
from benchmarks.procedures.rows import paired
from benchmarks.results import Goal, save
from testing.embedded import jars

ROOT = Path(__file__).parents[3]
PRINTED = """\
Completed 10000000 procedures.
******************************************
Time - addBack     : 5.0600sec
Ops/sec - addBack  : 1.9M
Time - poll        : 19.4590sec
Ops/sec - poll     : 501.9K
Num Operations     : 10000000

Completed          : 10000006
Yield              : 22025876

Num Tables         : 5
Regions per table  : 10
Operations type    : both
Threads            : 10
******************************************
Raw format for scripts
RESULT [num_ops=10000000, ops_type=both, num_table=5, regions_per_table=10, threads=10, num_yield=22025876, \
time_addback_ms=5060, time_poll_ms=19459]
"""
"""What HBase's reference guide shows of the scheduler's tool."""


@pytest.mark.seed("S3-47", "S3-48")
def test_the_tools_output_is_read_and_its_rates_are_powers_of_1024() -> None:
    read = scheduler.Report.of(hbase.Run(hbase.result_of(PRINTED), 1.0))
    assert (round(read.add_backs_per_s()), round(read.polls_per_s())) == (1_976_285, 513_901)
    assert [scheduler.humanised(n) for n in (1_976_285, 513_901, 1_023, 5 * 1_024**4)] == [
        "1.9M",
        "501.9K",
        "1023.0",
        "5120.0G",
    ]


@pytest.mark.seed("S3-47")
def test_regents_scheduler_plays_the_tools_method_and_prints_the_tools_lines() -> None:
    played = scheduler.play(2_000)
    printed = scheduler.block(played)
    assert (played.operations, played.completed) == (2_000, 2_000)
    read = hbase.result_of(printed)
    assert read == {
        **hbase.result_of(PRINTED),
        **{name: read[name] for name in ("time_addback_ms", "time_poll_ms")},
    } | {
        "num_ops": "2000",
        "num_yield": "0",
        "threads": "1",
    }
    labels = [line.split(":")[0].split() for line in printed.splitlines() if ":" in line]
    assert labels == [line.split(":")[0].split() for line in PRINTED.splitlines() if ":" in line]


@pytest.mark.seed("S3-46")
def test_the_tool_runs_by_itself_and_the_checks_of_each_change_run_this(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks.procedures", "--case", "S1", "--short", "--without-peer"])
    monkeypatch.setattr(tool, "SHORT", TINY)
    monkeypatch.setattr(tool, "RESULTS", tmp_path / "procedures.json")
    assert tool.main() in (0, 1), "1: a goal is missed, on a machine that does other work"
    shown = capsys.readouterr()
    assert hbase.result_of(shown.err)["num_ops"] == str(TINY.operations)
    assert [row["case"] for row in json.loads((tmp_path / "procedures.json").read_text())["rows"]] == ["S1a", "S1p"]
    assert all(line in shown.out for line in ("scheduler: made and enqueued", "scheduler: polled, locked, released"))
    assert "make test\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    test = re.search(r"(?m)^test: (.+) ##", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert test is not None
    assert "test-core" in test[1].split(), "it is a test without Java"


def test_an_output_without_a_result_is_refused() -> None:
    with pytest.raises(ValueError, match="no RESULT line"):
        hbase.result_of("Completed 5 procedures.\nResult: 5")


async def test_the_schedulers_and_the_stores_cases_run(tmp_path: Path) -> None:
    rows = [*await scheduler.measure(TINY, tmp_path, peer=False), *await stores.measure(TINY, tmp_path, peer=False)]
    assert [row.case for row in rows] == ["S1a", "S1p", "S2", "S3", "S3q", "S3k", "S3kq"]
    assert all(row.ours.median > 0 for row in rows)
    assert [row.case for row in rows if row.ratio is not None] == ["S2"]


def test_stores_tools_are_not_started_soon_after_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda _: 1_000.0)
    assert "try again in 800 s" in (hbase.too_early() or "")
    monkeypatch.setattr(time, "clock_gettime", lambda _: 2_000.0)
    assert hbase.too_early() is None


def test_the_ratio_is_that_of_pairs_and_all_parts_of_a_goal_count() -> None:
    rates = [10.0, 20.0, 40.0], [10.0, 10.0, 100.0]
    row = paired("S2", "x", "y", "per second", *rates, goal=Goal(ratio=0.7), higher_is_better=True)
    assert (row.ratio, row.met) == (1.0, True)
    assert paired("W1", "x", "y", "s", *rates, goal=Goal(ratio=1.1)).met is False
    low = Goal(ratio=1, least=30)
    assert (low.met(40, 1.5), low.met(20, 1.5), low.met(40, 0.5), low.met(20, None)) == (True, False, False, False)
    assert str(low) == "at least 1x, at least 30"


def test_every_case_has_a_measure_and_the_jars_of_the_tools_are_listed_apart() -> None:
    assert tuple(measures(peer=False, revision="HEAD")) == CASES
    assert tuple(measures(peer=False)) == CASES[:-1]
    assert parsed(["--case", "S1", "--short"]).case == ["S1"]
    names = {jar.file_name for jar in jars.listed(hbase.JARS)}
    assert {"hbase-server-2.6.1-hadoop3.jar", "hbase-server-2.6.1-hadoop3-tests.jar"} <= names
    assert not {name for name in names if name.startswith("hbase")} & {jar.file_name for jar in jars.listed()}


def test_the_page_keeps_the_part_that_was_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "bench.json")
    monkeypatch.setattr(report, "OPERATIONS_RESULTS", tmp_path / "operations.json")
    monkeypatch.setattr(report, "PROCEDURES_RESULTS", tmp_path / "procedures.json")
    assert report.main() == 1
    report.PAGE.write_text("# Performance\n\nof Kafka\n", encoding="utf-8")
    row = paired("S2", "20 writers", "writes", "per second", [2.0], [1.0], goal=Goal(ratio=0.7), higher_is_better=True)
    machine = {"cores": 2, "processor": "a processor", "regent": "1.0"}
    save([row], machine, tmp_path / "procedures.json")
    for _ in range(2):
        assert report.main() == 0
        page = report.PAGE.read_text(encoding="utf-8")
        assert page.startswith("# Performance\n\nof Kafka\n\n## Procedures\n")
        assert page.count("| S2 | 20 writers | writes, per second | 2 | 1 | - | 2.00x | at least 0.7x | yes |") == 1
    played = Played()
    for side, wait_s in ((OURS, 0.5), (OURS, 0.25), (THEIRS, 7.0)):
        played.enter(side, THROTTLED, wait_s, 20 * wait_s)
    played.enter(OURS, LEADERS, 0.125, 3.0)
    save(played.rows(), machine, tmp_path / "operations.json")
    for _ in range(2):
        assert report.main() == 0
        page = report.PAGE.read_text(encoding="utf-8")
        assert page.startswith("# Performance\n\nof Kafka\n\n## Operations under load\n")
        moves = "| 0.38 (0.25 to 0.50) | 7.5 | kafka-reassign-partitions | 7.00 | 140.0 |"
        assert page.count(f"| {THROTTLED} {moves}\n| {LEADERS} | 0.12 | 3.0 | none | - | - |\n\n## Procedures\n") == 1
        assert page.count("| S2 | 20 writers |") == 1
