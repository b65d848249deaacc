"""Snapshots and loads of a real cluster agree with ZooKeeper and the brokers' disks."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import msgspec
import pytest

from brokers.loads import ReplicaLoad
from controller.journal.reader import read
from state_machines.journal.events import Kind, Row
from state_machines.journal.snapshot import BrokerLine, Line, PartitionsLine
from tests.kit.cluster.scene import TOPIC, Scene, succeeds
from tests.kit.deadlines import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")


def lines_of(path: str) -> list[Line]:
    with gzip.open(path) as file:
        return [msgspec.json.decode(line, type=Line) for line in file]


def rows_of(stage: Scene, kind: Kind) -> list[Row]:
    return [row for row in read(stage.daemon.journal) if isinstance(row, Row) and row.kind == kind]


async def test_a_snapshot_by_command_has_what_zookeeper_has(stage: Scene) -> None:
    told = await succeeds(stage.daemon, "snapshot", "--wait", "--reason", "a test", "-o", "json")
    [found] = msgspec.json.decode(told)["items"]
    lines = lines_of(found["file"])
    states = await stage.w.states()
    held = {
        (line.topic, partition): (tuple(replicas), leader, leader_epoch, epoch, tuple(isr), line.min_isr)
        for line in lines
        if isinstance(line, PartitionsLine)
        for partition, replicas, leader, leader_epoch, epoch, isr in zip(
            line.partition, line.replicas, line.leader, line.leader_epoch, line.partition_epoch, line.isr, strict=True
        )
    }
    for name, (replicas, state) in states.items():
        if name[0] == TOPIC:
            assert state is not None
            assert held[name][:5] == (replicas, state.leader, state.leader_epoch, state.version, state.isr)
            assert held[name][5] is not None
    brokers = {line.broker: line for line in lines if isinstance(line, BrokerLine)}
    assert set(brokers) == set(stage.w.cluster.brokers)
    assert all(line.live and line.session_ms for line in brokers.values())
    rows = await eventually(lambda: [row for row in rows_of(stage, Kind.SNAPSHOT) if row.why == "a test"])
    assert [(row.snapshot, row.partitions, row.reason) for row in rows] == [
        (Path(found["file"]).name, len(states), "command")
    ]
    assert rows_of(stage, Kind.SNAPSHOT)[0].reason == "election"


async def test_loads_are_those_of_the_disks(stage: Scene, tmp_path: Path) -> None:
    into = tmp_path / "loads.csv"
    await stage.flows()
    await succeeds(stage.daemon, "loads", "--into", str(into))
    with into.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["topic"] == TOPIC]
    states = {name: of for name, of in (await stage.w.states()).items() if name[0] == TOPIC}
    assert len(rows) == sum(len(replicas) for replicas, _ in states.values())
    assert tuple(rows[0]) == ReplicaLoad.__struct_fields__
    for row in rows:
        partition = int(row["partition"])
        _, state = states[TOPIC, partition]
        assert state is not None
        leads = state.leader == int(row["broker"])
        assert (row["is_leader"], bool(row["end_offset"])) == (str(leads).lower(), leads)
        assert int(row["size_bytes"]) > 0
        assert os.path.isdir(f"{row['log_dir']}/{TOPIC}-{partition}")  # noqa: ASYNC240, PTH112
        if leads:
            assert 0 <= int(row["start_offset"]) < int(row["end_offset"])
