"""Journals of the simulation: the arrays find what a plain loop over each partition's rows finds."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from pipeline.report.asking import Wanted
from pipeline.report.bucket import answered
from pipeline.report.merging import Known, merged
from pipeline.report.told import SAME_US
from tests.real.pipeline.report.kit import Line, asked, parted, table

ROOT = Path(__file__).parents[4]
SEEDS = range(2_000, 2_004)
BUCKETS = 3
SLACK_US = 2_000
NOTICED: Final = {"broker_failure", "failover", "log_directory", "broker_return", "unclean_allowed"}


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Line]]:
    """Plays seeds in virtual time; returns the rows of all daemons by cluster, which are of one clock."""
    folder = tmp_path_factory.mktemp("journals")
    chosen = ("--first", str(SEEDS.start), "--seeds", str(len(SEEDS)))
    subprocess.run(
        [sys.executable, "-m", "tests.simulation.kafka.recording", str(folder), *chosen], cwd=ROOT, check=True
    )
    found: dict[str, list[Line]] = defaultdict(list)
    for file in folder.rglob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            row = msgspec.json.decode(line)
            found[row["cluster"]].append(row)
    return {name: sorted(rows, key=lambda row: (row["ctl_epoch"], row["seq"])) for name, rows in found.items()}


class Outage(NamedTuple):
    topic: str
    partition: int
    begin: int
    end: int


def outages(rows: list[Line]) -> Iterator[Outage]:
    """Finds intervals by walking through each partition's rows; an end that no row shows is left out."""
    told: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    histories: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for row in rows:
        if row.get("api") == "LEADER_AND_ISR" and "t_acknowledged" in row and "err" not in row:
            told[row["ctl_epoch"], row["broker"]].append((row["t_sent"], row["t_acknowledged"]))
        elif row["kind"] in {"LEADER", "ISR", "PARTITION_STATE"}:
            histories[row["topic"], row["partition"]].append(row)
    for (topic, partition), history in histories.items():
        changes = [row for row in history if row.get("leader0") != row.get("leader1") or is_end(row)]
        for at, row in enumerate(changes):
            if is_end(row) or row.get("leader0", -9) < 0:
                continue
            following = changes[at + 1] if at + 1 < len(changes) else None
            closes = row if row["leader1"] >= 0 else following
            if closes is None or is_end(closes):
                continue
            acknowledged = [
                done
                for sent, done in told[closes["ctl_epoch"], closes["leader1"]]
                if sent >= committed_of(closes) - SLACK_US
            ]
            if not acknowledged:
                continue
            end = min(acknowledged)
            if closes is row and following is not None:
                end = min(end, begin_of(following))
            yield Outage(topic, partition, begin_of(row), max(end, begin_of(row)))


def is_end(row: Line) -> bool:
    return row["kind"] == "PARTITION_STATE" and row.get("to_state") == "NON_EXISTENT"


def committed_of(row: Line) -> int:
    return int(row.get("t_committed") or row["mono_us"])


def begin_of(row: Line) -> int:
    noticed = row.get("reason") in NOTICED and row.get("t_detect", 1 << 62) <= row.get("t_decide", 0)
    return int(row["t_detect"]) if noticed else int(row.get("t_decide") or committed_of(row))


def test_intervals_are_those_of_a_plain_loop(journals: dict[str, list[Line]]) -> None:
    compared = 0
    for rows in journals.values():
        _, found = asked(rows)
        shown: list[dict[str, Any]] = found.intervals.to_pylist()
        ends: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        for row in shown:
            ends[row["topic"], row["partition"], row["begin_us"]].append(row["end_us"])
        expected = list(outages(rows))
        for one in expected:
            assert any(0 <= end - one.end <= SAME_US for end in ends[one.topic, one.partition, one.begin]), one
        compared += len(expected)
    assert compared > 500


def test_buckets_together_are_the_whole(journals: dict[str, list[Line]]) -> None:
    for rows in journals.values():
        question, whole = asked(rows, Wanted(session_ms=6_000))
        topics, _ = parted(rows)
        lines = [line for line in topics.to_pylist() if line["partition"] is not None]
        parts = [table(line for line in lines if line["partition"] % BUCKETS == number) for number in range(BUCKETS)]
        one, several = (
            merged("c", found, question, Wanted(), Known({}, {}), [], [])
            for found in ([whole], [answered(part, question) for part in parts])
        )
        assert one.cost.intervals > 0
        assert msgspec.to_builtins(one) == msgspec.to_builtins(several)


def test_every_failure_belongs_to_a_stop_and_is_known_to_be_shorter_than_at_most(
    journals: dict[str, list[Line]],
) -> None:
    for rows in journals.values():
        _, found = asked(rows, Wanted(session_ms=6_000))
        failures = [row for row in found.intervals.to_pylist() if row["reason"] == "broker_failure"]
        assert failures
        assert all(row["stop"] is not None for row in failures)
        assert all(row["at_most_us"] <= row["begin_us"] <= row["end_us"] <= row["clients_us"] for row in failures)
