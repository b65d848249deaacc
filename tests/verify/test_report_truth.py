"""What a producer saw while brokers stopped, beside what the report makes of the journal: the same, within 0.2 s.

The interval of the report is that of the leader, so it is compared with a producer that waits for the leader alone. One
with acks=all waits for the followers, too: they fetch from a new leader after ``replica.fetch.backoff.ms`` (1 s).
On a busy machine a producer may hear of a new leader late, but never early. So no stall ends before the interval, and
the first one of each stop ends with it. A producer may not feel a move of some milliseconds: its longest wait is then
another one, and the interval of the report must be as short.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.kit.cluster.world import ClusterWorld, world

pytest.importorskip("pyarrow", reason="the extra 'pipeline' is not installed")

TOPIC = "orders"
PARTITIONS = 12
PERIOD_S = 0.02
RETRY_MS = 20
AGREES_S = 0.2
SESSION_MS = 6_000
TICK_MS = 1_000
"""Of the embedded ZooKeeper."""


class Stall(NamedTuple):
    """The longest time in which a partition acknowledged nothing, by the wall clock."""

    begin_s: float
    end_s: float

    @property
    def is_felt(self) -> bool:
        """Returns whether it is longer than the times that may differ."""
        return self.end_s - self.begin_s >= AGREES_S


class Writer:
    """Writes to each partition on its own, a record after the other, and keeps the times of all acknowledgements."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._acknowledged: dict[int, list[float]] = {partition: [] for partition in range(PARTITIONS)}

    async def write(self, partition: int) -> None:
        while True:
            await self._producer.send_and_wait(TOPIC, b"x", partition=partition)
            self._acknowledged[partition].append(time.time())
            await asyncio.sleep(PERIOD_S)

    async def flow(self, since_s: float) -> None:
        """Waits until each partition has acknowledged a record that was sent after a time."""
        deadline = time.monotonic() + 60
        while any(len([at for at in times if at > since_s]) < 3 for times in self._acknowledged.values()):
            assert time.monotonic() < deadline, "records are not acknowledged again"
            await asyncio.sleep(PERIOD_S)

    def stall(self, partition: int, since_s: float) -> Stall:
        """Returns the longest time without an acknowledgement since a time."""
        times = [at for at in self._acknowledged[partition] if at > since_s]
        return max((Stall(*pair) for pair in pairwise(times)), key=lambda stall: stall.end_s - stall.begin_s)


@asynccontextmanager
async def writing(w: ClusterWorld, acks: int | str) -> AsyncIterator[Writer]:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=w.cluster.bootstrap, acks=acks, retry_backoff_ms=RETRY_MS)
    async with producer:
        await producer.partitions_for(TOPIC)
        writer = Writer(producer)
        tasks = [asyncio.create_task(writer.write(partition)) for partition in range(PARTITIONS)]
        try:
            yield writer
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)


def intervals(journal: Sequence[bytes], reason: str) -> dict[int, dict[str, Any]]:
    """Returns the report's intervals of one reason by partition."""
    from pipeline.report.asking import Wanted
    from tests.real.pipeline.report.kit import asked

    lines = [msgspec.json.decode(line) for line in journal]
    _, found = asked(lines, Wanted(session_ms=SESSION_MS, tick_ms=TICK_MS))
    rows: list[dict[str, Any]] = found.intervals.to_pylist()
    return {row["partition"]: row for row in rows if row["reason"] == reason and row["topic"] == TOPIC}


async def test_the_report_agrees_with_a_producer() -> None:
    async with world(3, partitions=PARTITIONS) as w:
        daemon = w.daemon(flags=("--takeover",))
        await daemon.boot()
        async with writing(w, 1) as writer, writing(w, "all") as careful:
            await w.healed()
            await writer.flow(time.time())
            killed, stopped = w.cluster.brokers[2], w.cluster.brokers[3]
            killed_s = time.time()
            await killed.kill()
            await w.leads_nothing(2)
            failures = await stalls(killed_s, writer, careful)
            await killed.boot()
            await w.healed()
            await writer.flow(time.time())
            stopped_s = time.time()
            await stopped.shut_down()
            moves = await stalls(stopped_s, writer, careful)
        await daemon.stop()
        journal = [line for file in sorted(daemon.journal.glob("*.jsonl")) for line in file.read_bytes().splitlines()]
    died, moved = intervals(journal, "broker_failure"), intervals(journal, "controlled_shutdown")
    assert died
    assert moved
    agree(died, *failures)
    assert all(failures[0][partition].is_felt for partition in died)
    agree(moved, *moves)
    for partition, row in died.items():
        stall = failures[0][partition]
        assert row["at_most_us"] / 1e6 <= killed_s <= row["begin_us"] / 1e6, "the death lies between the bounds"
        assert stall.begin_s >= row["at_most_us"] / 1e6
        assert stall.end_s - stall.begin_s >= (row["end_us"] - row["begin_us"]) / 1e6
    begun_s = [moves[0][p].begin_s - row["begin_us"] / 1e6 for p, row in moved.items() if moves[0][p].is_felt]
    assert abs(min(begun_s, default=0.0)) < AGREES_S, "a leader that is moved away serves until the decision"


async def stalls(since_s: float, *writers: Writer) -> list[dict[int, Stall]]:
    """Waits until records flow again; returns the longest stall of each partition, for each writer."""
    for writer in writers:
        await writer.flow(time.time())
    return [{p: writer.stall(p, since_s - 1) for p in range(PARTITIONS)} for writer in writers]


def agree(rows: dict[int, dict[str, Any]], of_leader: dict[int, Stall], of_all: dict[int, Stall]) -> None:
    """Compares the ends of stalls with the report's ends for clients."""
    late_s: list[float] = []
    latest_s: list[float] = []
    for partition, row in rows.items():
        print(f"{partition}: acks=1 {of_leader[partition]}, acks=all {of_all[partition]}, {shown(row)}")
        for stall, ends_s in ((of_leader[partition], late_s), (of_all[partition], latest_s)):
            if stall.is_felt:
                ends_s.append(stall.end_s - row["clients_us"] / 1e6)
            else:
                assert row["clients_us"] - row["begin_us"] < 1e6 * AGREES_S, "an interval that no producer felt"
    assert min(late_s, default=0.0) < AGREES_S
    assert min(late_s + latest_s, default=0.0) > -AGREES_S


def shown(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {row[name] / 1e6:.3f}" for name in ("at_most_us", "begin_us", "end_us", "clients_us"))
