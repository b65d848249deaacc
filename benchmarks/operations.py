"""Measures O: the longest wait of an acks=all record during each operation, beside the same one by Kafka's own means.

One cluster of four real brokers plays it all: regent's operations first, then the role goes to Kafka's controller for
those of Kafka's tools, and comes back. A figure is the longest wait from the begin of an operation until its end, and
until every replica is in sync and records flow again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks.arena import say
from benchmarks.results import Row, Sample
from testing.embedded.load import Load
from testing.embedded.tools import Tools
from tests.kit.cluster.scene import FLOWING_S, succeeds
from tests.kit.deadlines import eventually
from tests.verify.plan_kit import SMALL_FETCHES, SOON, is_throttled, kafkas_file, moved_by_tool, ran, waited
from tests.verify.system import System, system

CASE: Final = "O"
TOPIC: Final = "orders"
PARTITIONS: Final = 16
BROKERS: Final = 4
MB: Final = 0.5
RATE_BYTES_PER_S: Final = 150_000
RECORDS_PER_S: Final = 300
HOME: Final = {p: tuple(1 + (p + n) % BROKERS for n in range(3)) for p in range(PARTITIONS)}
"""Replicas of each partition at the beginning: each broker has and leads as many as the others."""
AWAY: Final = {p: tuple(1 + (p + n) % BROKERS for n in range(1, 4)) for p in range(PARTITIONS)}
"""Replicas after a plan: one of each partition moves, and another one is preferred."""
END_S_MAX: Final = 60.0
OURS: Final = "regent"
THEIRS: Final = "Kafka"

THROTTLED: Final = f"plan of {PARTITIONS} moves at {RATE_BYTES_PER_S // 1_000} kB/s"
UNTHROTTLED: Final = f"plan of {PARTITIONS} moves without a throttle"
TAKEN_BACK: Final = "plan taken back while it copies"
LEADERS: Final = "drain of a broker's leaders"
PREFERRED: Final = "election of preferred leaders"
REPLICAS: Final = "drain of a broker's replicas"
STOP: Final = "controlled shutdown of a broker"
RETURN: Final = "return of a broker"
CONTROLLER: Final = "kill -9 of the controller"
DEATH: Final = "kill -9 of a broker, and its return"
TO_KAFKA: Final = "hand-back of the role"
FROM_KAFKA: Final = "take-over of the role"
MEANS: Final[Mapping[str, str]] = {
    THROTTLED: "kafka-reassign-partitions",
    UNTHROTTLED: "kafka-reassign-partitions",
    TAKEN_BACK: "kafka-reassign-partitions --cancel",
    PREFERRED: "kafka-leader-election",
    STOP: "Kafka's controller",
    RETURN: "Kafka's controller",
    CONTROLLER: "its broker dies and returns",
    DEATH: "Kafka's controller",
    TO_KAFKA: "/controller deleted",
}
"""Kafka's own means for an operation; the others have none."""


@dataclass
class Played:
    """Longest waits and durations in seconds, by side and operation."""

    waits: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    took: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def enter(self, side: str, operation: str, wait_s: float, took_s: float) -> None:
        """Enters the figures of an operation that has ended."""
        self.waits.setdefault((side, operation), []).append(wait_s)
        self.took.setdefault((side, operation), []).append(took_s)

    def rows(self) -> list[Row]:
        """Returns a row for each operation that regent has ended at least once."""
        names = [name for side, name in self.waits if side == OURS]
        return [self._row(name) for name in names]

    def _row(self, name: str) -> Row:
        sides = [side for side in (OURS, THEIRS) if (side, name) in self.waits]
        ours, *peer = (Sample.of(self.waits[side, name]) for side in sides)
        found = Row(CASE, name, "longest wait of a record", "s", ours, peer[0] if peer else None)
        found.peer_is = MEANS.get(name, found.peer_is)
        found.phases["took, s"] = {side: Sample.of(self.took[side, name]).median for side in sides}
        return found


@dataclass
class Side:
    """One of the two sides on the cluster, whose operations are measured."""

    name: str
    s: System
    load: Load
    played: Played

    @asynccontextmanager
    async def measured(self, operation: str, *, healed: bool = True) -> AsyncIterator[None]:
        """Enters the longest wait of the block, and until replicas are in sync and records flow."""
        self.load.take_stall()
        began_s = time.monotonic()
        yield
        if healed:
            await self.s.w.healed()
        await eventually(lambda: self.load.oldest().seconds < FLOWING_S, END_S_MAX)
        took_s, wait_s = time.monotonic() - began_s, self.load.take_stall().seconds
        self.played.enter(self.name, operation, wait_s, took_s)
        say(f"{self.name}: {operation}: longest wait {wait_s:.2f} s, took {took_s:.1f} s")


async def operations(rounds: int, kept: Callable[[list[Row]], list[Row]]) -> list[Row]:
    """Plays rounds and returns the rows; ``kept`` gets them after each round, also after one that failed."""
    played = Played()
    for number in range(rounds):
        try:
            await _round(played, number)
        finally:
            kept(played.rows())
    return played.rows()


async def _round(played: Played, number: int) -> None:
    async with system(f"O {number + 1}", BROKERS, properties={**SOON, **SMALL_FETCHES}) as s:
        await s.create(TOPIC, HOME)
        await s.fill(TOPIC, range(PARTITIONS), MB)
        async with s.loaded({TOPIC: PARTITIONS}, RECORDS_PER_S) as stage:
            ours, theirs = (Side(name, s, stage.load, played) for name in (OURS, THEIRS))
            await _plans(ours)
            await _leaders(ours)
            await _deaths(ours)
            daemon = await s.active()
            async with ours.measured(TO_KAFKA):
                await succeeds(daemon, "handback", "--yes", "--wait")
                await s.w.broker_controls()
            await _by_kafka(theirs)
            async with ours.measured(FROM_KAFKA):
                await succeeds(daemon, "takeover", "--yes", "--wait", "--reason", "a benchmark")
                await s.active()


async def _plans(side: Side) -> None:
    s, rate = side.s, ("--throttle", str(RATE_BYTES_PER_S))
    async with side.measured(THROTTLED):
        await _ended(s, await _begun(s, AWAY, *rate), 0)
    async with side.measured(UNTHROTTLED):
        await _ended(s, await _begun(s, HOME), 0)
    async with side.measured(TAKEN_BACK):
        pid = await _begun(s, AWAY, *rate)
        await eventually(lambda: is_throttled(s, [TOPIC]), END_S_MAX)
        await succeeds(await s.active(), "reassign", "cancel", pid, "--roll-back", "--yes")
        await _ended(s, pid, 1)


async def _leaders(side: Side) -> None:
    s = side.s
    daemon = await s.active()
    async with side.measured(LEADERS):
        await succeeds(daemon, "drain", "1", "--wait")
    await succeeds(daemon, "undrain", "1")
    async with side.measured(PREFERRED):
        await succeeds(daemon, "elect", "preferred", "--all", "--wait")
    async with side.measured(REPLICAS):
        await succeeds(daemon, "drain", "2", "--replicas", "--wait")
    await succeeds(daemon, "undrain", "2")
    await _ended(s, await _begun(s, HOME), 0)


async def _deaths(side: Side) -> None:
    s = side.s
    await _restarted(side, 3)
    await succeeds(await s.active(), "elect", "preferred", "--all", "--wait")
    async with side.measured(CONTROLLER):
        victim = await s.active()
        await victim.kill()
        await s.active()
    await victim.boot("standby")
    async with side.measured(DEATH):
        await _killed(s, 4)


async def _by_kafka(side: Side) -> None:
    """Plays what Kafka has, by its tools and its controller."""
    s = replace(side.s, tools=Tools(side.s.w.cluster.bootstrap[0], side.s.w.cluster.folder, timeout_s=90.0))
    rate = ("--throttle", str(RATE_BYTES_PER_S))
    away, home = _file(s, AWAY), _file(s, HOME)
    await moved_by_tool(s, home)
    async with side.measured(THROTTLED):
        await moved_by_tool(s, away, *rate)
    async with side.measured(UNTHROTTLED):
        await moved_by_tool(s, home)
    async with side.measured(TAKEN_BACK):
        await s.tool("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(away), *rate)
        await s.tool("kafka-reassign-partitions", "--cancel", "--reassignment-json-file", str(away))
    await _restarted(side, await _another(s))
    async with side.measured(PREFERRED):
        await s.tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    async with side.measured(TO_KAFKA):
        await s.w.move_controller()
    async with side.measured(DEATH):
        await _killed(s, await _another(s))
    async with side.measured(CONTROLLER):
        await _killed(s, await s.w.broker_controls())
        await s.w.broker_controls()


async def _restarted(side: Side, broker: int) -> None:
    process = side.s.w.cluster.brokers[broker]
    async with side.measured(STOP, healed=False):
        stopped = await process.shut_down()
        assert stopped.succeeded, f"broker {broker}: {stopped}"
    async with side.measured(RETURN):
        await process.boot()


async def _killed(s: System, broker: int) -> None:
    await s.w.cluster.brokers[broker].kill()
    await s.w.leads_nothing(broker)
    await s.w.cluster.revive(broker)


async def _another(s: System) -> int:
    """Returns a broker that is not the controller."""
    holder = await s.w.broker_controls()
    return next(broker for broker in sorted(s.w.cluster.brokers, reverse=True) if broker != holder)


async def _begun(s: System, targets: Mapping[int, tuple[int, ...]], *options: str) -> str:
    """Begins a plan of all partitions at once; returns its pid."""
    caps = ("--moves-max", str(PARTITIONS), "--broker-moves-max", str(PARTITIONS))
    [found] = await ran(await s.active(), "reassign", "apply", str(_file(s, targets)), *caps, *options, "--yes")
    return str(found["pid"])


async def _ended(s: System, pid: str, code: int) -> None:
    found = await waited(await s.active(), pid)
    assert found[0] == code, found


def _file(s: System, targets: Mapping[int, tuple[int, ...]]) -> Path:
    name = "away.json" if targets is AWAY else "home.json"
    return kafkas_file(s, name, {(TOPIC, p): replicas for p, replicas in targets.items()})
