"""Measures events: one controller, one event, and its results at the brokers and in ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from benchmarks import machine, procfs, role, znodes
from benchmarks.arena import Arena
from benchmarks.contestants import Contestant, Phases
from benchmarks.fleet import Received
from brokers.transport import TcpTransport
from testing.simulated.calls import controlled_shutdown as request
from testing.simulated.calls import shutdown_response

ANSWER_S_MAX: Final = 600.0


@dataclass(frozen=True)
class Answer:
    """Error code, number of partitions that are still led, time of the request and seconds of its response."""

    error: int
    remaining: int
    began_s: float
    took_s: float


async def controlled_shutdown(port: int, broker: int, epoch: int) -> Answer:
    """Requests the controlled shutdown of ``broker`` at ``port``; the clock starts after the connection is made."""
    connection = await TcpTransport().connect("127.0.0.1", port, lambda: None)
    try:
        frame = request(1, broker, epoch)
        began_s = time.monotonic()
        async with asyncio.timeout(ANSWER_S_MAX):
            answer = await connection.exchange([len(frame).to_bytes(4, "big"), frame])
        took_s = time.monotonic() - began_s
    finally:
        connection.close()
    found = shutdown_response(answer)
    return Answer(found.error, len(found.remaining), began_s, took_s)


POLL_S: Final = 0.1
READY_POLL_S: Final = 0.02
QUIET_S: Final = 1.0
"""Silence after which the end is checked."""
EVENT_S_MAX: Final = 900.0
SAMPLE: Final = 200
"""Changed partitions that are sampled to detect the end; all are compared afterwards."""
SHUTDOWN_TRIES_MAX: Final = 10
LOOKS_MAX: Final = 4


class Wrong(AssertionError):
    """An end of an event that differs from the oracle's; the text lists the first differences."""


@dataclass
class Turn:
    """One event under one controller. Times are seconds from the event; ``None`` where there is no such moment.

    ``ready_s``: end of the elections of a failover, response to a controlled shutdown, or removal of a request's
    znode. ``told_s``: receipt of the last LeaderAndIsr, UpdateMetadata or StopReplica. CPU
    is of the controller's process and, beside it, of the simulated brokers' and ZooKeeper's. ``lag_s``: longest lag of
    regent's event loop.
    ``foreign_cpus``: processors in use by unrelated processes meanwhile. ``pace_ms``: mean duration of a
    fixed loop right before and after.
    """

    event: str
    ready_s: float | None = None
    told_s: float = 0.0
    zookeeper_requests: int = 0
    broker_requests: int = 0
    broker_bytes: int = 0
    by_api: dict[str, int] = field(default_factory=dict)
    peak_rss_mb: float = 0.0
    cpu_s: float = 0.0
    brokers_cpu_s: float = 0.0
    zookeeper_cpu_s: float = 0.0
    lag_s: float = 0.0
    foreign_cpus: float = 0.0
    pace_ms: float = 0.0
    phases: Phases = field(default_factory=dict)


@dataclass
class Clock:
    """The begin of an event, on the monotonic clock and as a time of day."""

    began_s: float
    day_s: float

    @classmethod
    def now(cls) -> Clock:
        """Starts the clock."""
        return cls(time.monotonic(), time.time())

    def moved(self, began_s: float) -> Clock:
        """Moves the begin to another moment of the monotonic clock."""
        return Clock(began_s, self.day_s + began_s - self.began_s)


@asynccontextmanager
async def metered(arena: Arena, contestant: Contestant, turn: Turn) -> AsyncIterator[None]:
    """Measures the costs of a block, the harness's few requests to ZooKeeper (a sample of states) included."""
    pace_ms = machine.pace_ms()
    await arena.fleet.mark()
    procfs.forget_peak(contestant.pid)
    lag, before = await contestant.lag(), (await arena.fleet.received()).cpu_s
    cpu_s, zookeeper_s = procfs.cpu_s(contestant.pid), procfs.cpu_s(arena.zookeeper.pid)
    packets, others = await arena.zookeeper.packets(), _others(arena)
    yield
    turn.foreign_cpus = _others(arena).since(others)
    turn.zookeeper_requests = await arena.zookeeper.packets() - packets
    turn.cpu_s = procfs.cpu_s(contestant.pid) - cpu_s
    turn.zookeeper_cpu_s = procfs.cpu_s(arena.zookeeper.pid) - zookeeper_s
    turn.lag_s = (await contestant.lag()).since(lag)
    turn.peak_rss_mb = procfs.peak_rss_mb(contestant.pid)
    received = await arena.fleet.received()
    turn.brokers_cpu_s = received.cpu_s - before
    turn.pace_ms = (pace_ms + machine.pace_ms()) / 2
    turn.broker_requests, turn.broker_bytes, turn.by_api = received.requests, received.bytes, received.by_api
    if received.refused:
        raise Wrong(f"{contestant.name}, {turn.event}: brokers refused {received.refused} requests")


@dataclass(frozen=True)
class _Others:
    """CPU seconds of the machine outside of this benchmark, at a moment."""

    cpu_s: float
    at_s: float

    def since(self, before: _Others) -> float:
        """Returns the processors in use by other processes since then."""
        return max(0.0, self.cpu_s - before.cpu_s) / max(self.at_s - before.at_s, 1e-9)


def _others(arena: Arena) -> _Others:
    mine = sum(procfs.cpu_s(pid) for pid in arena.pids)
    return _Others(procfs.busy_s() - mine, time.monotonic())


async def failover(arena: Arena, contestant: Contestant, dying: int = 0) -> Turn:
    """Gives the role to a warm standby without competitors. ``dying``: a broker that vanishes at the same time."""
    turn, log = Turn("failover and broker death" if dying else "failover"), contestant.follow()
    async with metered(arena, contestant, turn):
        clock = Clock.now()
        if dying:
            await arena.fleet.die([dying])
            arena.oracle.was_dead(dying, contestant.writes)
        await contestant.give(arena.zk)
        ready_s = await _until_ready(contestant, log.find, clock)
        turn.ready_s = ready_s
        turn.told_s = (await quiet(arena)).last_s - clock.began_s
        turn.phases = contestant.phases(log, clock.day_s)
    await check(arena, turn, clock)
    return turn


async def death(arena: Arena, contestant: Contestant, broker: int) -> Turn:
    """Removes the registration of a broker."""
    return await _registration(arena, contestant, Turn("broker death"), arena.fleet.die, arena.oracle.dies, broker)


async def comes_back(arena: Arena, contestant: Contestant, broker: int) -> Turn:
    """Registers a broker again, with a new epoch and an empty memory."""
    turn = Turn("broker return")
    return await _registration(arena, contestant, turn, arena.fleet.register, arena.oracle.returns, broker)


async def _registration(
    arena: Arena,
    contestant: Contestant,
    turn: Turn,
    change: Callable[[list[int]], Awaitable[float]],
    foretell: Callable[[int], None],
    broker: int,
) -> Turn:
    """Measures a change of a registration; ``change`` returns its moment on the monotonic clock."""
    async with metered(arena, contestant, turn):
        clock = Clock.now()
        clock = clock.moved(await change([broker]))
        foretell(broker)
        turn.told_s = (await quiet(arena)).last_s - clock.began_s
    await check(arena, turn, clock)
    return turn


async def shutdown(arena: Arena, contestant: Contestant, broker: int) -> Turn:
    """Requests a broker's controlled shutdown repeatedly until it leads no partition."""
    turn = Turn("controlled shutdown")
    epoch = (await arena.fleet.epochs())[broker]
    async with metered(arena, contestant, turn):
        answer = await controlled_shutdown(contestant.port, broker, epoch)
        clock = Clock.now().moved(answer.began_s)
        arena.oracle.shuts_down(broker)
        for _ in range(SHUTDOWN_TRIES_MAX):
            if not answer.remaining and not answer.error:
                break
            answer = await controlled_shutdown(contestant.port, broker, epoch)
        turn.ready_s = answer.began_s + answer.took_s - clock.began_s
        turn.told_s = (await quiet(arena)).last_s - clock.began_s
    if answer.error or answer.remaining:
        raise Wrong(f"{contestant.name}: controlled shutdown: error {answer.error}, {answer.remaining} remain")
    await check(arena, turn, clock)
    return turn


async def _until_ready(contestant: Contestant, find: object, clock: Clock) -> float:
    assert callable(find)
    while True:
        found = find(contestant.ready_pattern)
        if found is not None:
            return float(found) - clock.day_s
        if not contestant.process.running:
            raise Wrong(f"{contestant.name} ended\n{contestant.process.log_tail()}")
        if time.monotonic() - clock.began_s > EVENT_S_MAX:
            raise Wrong(f"{contestant.name} was not ready in {EVENT_S_MAX:g} s\n{contestant.process.log_tail()}")
        await asyncio.sleep(READY_POLL_S)


async def quiet(arena: Arena) -> Received:
    """Waits until requests were received, a sample of the states is as expected, and no further request came.

    Kafka's controller is silent for seconds between two of its batches, so silence alone is not the end.
    """
    began_s = time.monotonic()
    random = Random(began_s)
    written_s = 0.0
    while True:
        received = await arena.fleet.received()
        quiet_s = received.now_s - received.last_s
        if received.requests and quiet_s > QUIET_S:
            if written_s and received.now_s - written_s > QUIET_S:
                return received
            if not written_s and await _written(arena, random):
                written_s = (await arena.fleet.received()).now_s
        if time.monotonic() - began_s > EVENT_S_MAX:
            raise Wrong(f"brokers still receive requests, or states are not written, after {EVENT_S_MAX:g} s")
        await asyncio.sleep(POLL_S)


async def _written(arena: Arena, random: Random) -> bool:
    changed = arena.oracle.changed
    rows = random.sample(sorted(changed), min(SAMPLE, len(changed)))
    return not await znodes.differences(arena.zk, arena.oracle, await role.epoch(arena.zk), rows)


async def check(arena: Arena, turn: Turn, clock: Clock) -> None:
    """Compares all states; late requests move the end."""
    epoch = await role.epoch(arena.zk)
    wrong: list[str] = []
    for look in range(LOOKS_MAX):
        wrong = await arena.verify(epoch)
        later = await (quiet(arena) if wrong and look + 1 < LOOKS_MAX else arena.fleet.received())
        turn.told_s = later.last_s - clock.began_s
        turn.broker_requests, turn.broker_bytes, turn.by_api = later.requests, later.bytes, later.by_api
        if not wrong:
            return
    for broker in sorted(arena.oracle.live)[:2]:
        await arena.fleet.dump(broker, arena.folder / f"broker-{broker}.txt")
    raise Wrong(f"{turn.event}: {len(wrong)} differences, the first are\n" + "\n".join(wrong[:10]))
