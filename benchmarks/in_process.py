"""Measures failover, controlled shutdown and broker death inside this process: CPU alone, by stage, with profiles.

``python -m benchmarks.in_process --size 400kx50 --profile``. ZooKeeper's replies come from a table and brokers
respond at once (:mod:`benchmarks.canned`), so no time is spent on sockets, in other processes, or waiting.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import io
import pstats
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.canned import CannedZooKeeper, NullBrokers, Table
from benchmarks.datasets import Shape, data_set, shape
from benchmarks.stages import Stages
from brokers.outbound.channels import Channels
from brokers.transport import Transport
from brokers.wire.calls import ControlledShutdownCall
from brokers.wire.versions import Ibp
from configs.settings import Settings
from controller.kafka.brokers.broker_change import broker_change
from controller.kafka.metrics.values import Counters
from controller.kafka.partitions.controlled_shutdown import controlled_shutdown_call
from controller.kafka.path.adoption import Adoption
from controller.kafka.path.agenda import DeletionQueue
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventQueue
from controller.kafka.path.facts import BrokerSide, StoreSide, TermMemory
from controller.kafka.path.gate import Gate
from controller.kafka.requests.calls import PendingShutdown
from controller.kafka.term.failover import fail_over
from controller.kafka.term.setup import channel_settings
from controller.process.clock import boottime_s
from controller.role.lease import Lease
from metadata_store import paths
from metadata_store.kafka_store import KafkaStore
from metadata_store.port import ZooKeeper
from state_machines.model.cluster import Cluster

EVENTS: Final = ("failover", "shutdown", "death")
EPOCH: Final = 2
LEASE_S: Final = 3_600.0
BROKER: Final = 1
TICK_S: Final = 0.005
TOLD_S_MAX: Final = 600.0
PROFILE_LINES: Final = 45


@dataclass
class Burst:
    """CPU seconds of one event by stage, ``rest_s`` outside of all stages, and the loop's longest turn."""

    event: str
    cpu_s: float
    longest_turn_s: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    requests: int = 0
    bytes: int = 0

    @property
    def rest_s(self) -> float:
        """Returns the seconds of the loop, of tasks and of everything between the stages."""
        return self.cpu_s - sum(self.stages.values())


def new_term(zk: ZooKeeper, transport: Transport | None, epoch: int, fence_version: int) -> Controller:
    """Makes a term without a daemon: no claim, no consumer of the queue, no HTTP."""
    ibp = Ibp.parse("3.9-IV0")
    settings = Settings.model_validate(
        {"zookeeper": {"connect": "127.0.0.1:1"}, "listener": {"advertised_host": "127.0.0.1"}}
    )
    lease = Lease(LEASE_S)
    lease.answered(boottime_s())
    gate = Gate(epoch, fence_version, lease, lambda: True)
    cluster = Cluster(epoch, recovery_state=ibp.recovery_state)
    channels = Channels(
        cluster,
        channel_settings(settings, epoch, ibp, ("127.0.0.1", settings.listener.port)),
        gate.open,
        lambda _: None,
        transport=transport,
    )
    queue = EventQueue()
    return Controller(
        StoreSide(KafkaStore(zk), gate, settings.controller.conflict_rounds_max),
        BrokerSide(channels, ibp, frozenset({settings.controller.id})),
        TermMemory(
            cluster, queue, Counters(), Adoption(settings.controller, asks=False), DeletionQueue(cluster, queue)
        ),
    )


class Bench:
    """A cluster in a table; every call of :meth:`term` makes a new term on it."""

    def __init__(self, wanted: Shape) -> None:
        self.shape = wanted
        self.table = Table(data_set(wanted))

    def term(self) -> tuple[Controller, NullBrokers]:
        """Makes a term that has not begun yet."""
        wires = NullBrokers()
        return new_term(CannedZooKeeper(self.table), wires, EPOCH, 1), wires

    async def burst(self, event: str, stages: Stages | None = None, profile: cProfile.Profile | None = None) -> Burst:
        """Measures one event until every broker has acknowledged all changes."""
        controller, wires = self.term()
        try:
            if event != "failover":
                await fail_over(controller)
                await told(controller)
                wires.requests = wires.bytes = 0
            act = self._act(event, controller)
            if stages is not None:
                stages.clear()
            if profile is not None:
                profile.enable()
            began_s = time.process_time()
            async with ticking() as ticks:
                await act()
                await told(controller)
            cpu_s = time.process_time() - began_s
            if profile is not None:
                profile.disable()
            spent = stages.spent() if stages is not None else {}
            return Burst(event, cpu_s, max(ticks), spent, wires.requests, wires.bytes)
        finally:
            if event == "death":
                self._register()
            await controller.channels.close()
            await controller.close()
            del controller
            gc.unfreeze()
            gc.collect()

    def _act(self, event: str, controller: Controller) -> Callable[[], Awaitable[Any]]:
        if event == "failover":
            return lambda: fail_over(controller)
        if event == "shutdown":
            call = ControlledShutdownCall(3, BROKER, controller.cluster.brokers[BROKER].epoch)
            pending = PendingShutdown(call)
            return lambda: controlled_shutdown_call(controller, pending)
        self.table.brokers.remove(BROKER)
        self._gone = self.table.nodes.pop(paths.broker(BROKER).encode())
        self.table.forget_replies()
        return lambda: broker_change(controller, lambda _: None)

    def _register(self) -> None:
        self.table.brokers.insert(0, BROKER)
        self.table.nodes[paths.broker(BROKER).encode()] = self._gone
        self.table.forget_replies()


@asynccontextmanager
async def ticking() -> AsyncIterator[list[float]]:
    """Collects the seconds between turns of the loop into a list, until the block ends."""
    gaps: list[float] = []

    async def tick() -> None:
        before_s = time.perf_counter()
        while True:
            try:
                await asyncio.sleep(TICK_S)
            finally:
                now_s = time.perf_counter()
                gaps.append(now_s - before_s - TICK_S)
                before_s = now_s

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        yield gaps
    finally:
        ticker.cancel()
        await asyncio.wait({ticker})


async def told(controller: Controller) -> None:
    """Waits until every broker has acknowledged all changes."""
    behind = await controller.channels.quiesced(TOLD_S_MAX)
    assert not behind, f"brokers {sorted(behind)} were not told"


async def run(wanted: Shape, event: str, rounds: int) -> list[Burst]:
    """Runs the event several times, after a first time that fills the table's replies."""
    bench = Bench(wanted)
    await bench.burst(event)
    return [await bench.burst(event) for _ in range(rounds)]


async def split(wanted: Shape, event: str, rounds: int) -> list[Burst]:
    """Runs the event as :func:`run` with timed stages, which costs a little by itself."""
    bench = Bench(wanted)
    await bench.burst(event)
    with Stages() as stages:
        return [await bench.burst(event, stages) for _ in range(rounds)]


async def profiled(wanted: Shape, event: str, sort: str) -> str:
    """Returns the cProfile of one event as text; the profiler makes small functions look expensive."""
    bench = Bench(wanted)
    await bench.burst(event)
    profile = cProfile.Profile()
    await bench.burst(event, profile=profile)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats(sort).print_stats(PROFILE_LINES)
    return text.getvalue()


def main() -> None:
    """Prints CPU per event, its split, and profiles with ``--profile``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="100kx20")
    parser.add_argument("--event", choices=EVENTS, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", choices=("tottime", "cumtime"))
    chosen = parser.parse_args()
    wanted = shape(chosen.size)
    print(wanted)
    for event in chosen.event or EVENTS:
        bursts = asyncio.run(run(wanted, event, chosen.rounds))
        plain = sorted(burst.cpu_s for burst in bursts)
        per = 1e6 * plain[len(plain) // 2] / wanted.partitions
        shown = f"{plain[len(plain) // 2]:.3f} s ({plain[0]:.3f} to {plain[-1]:.3f})"
        turn_s = statistics.median(burst.longest_turn_s for burst in bursts)
        print(f"{event}: {shown} of CPU, {per:.2f} us per partition, longest turn of the loop {turn_s:.3f} s")
        last = asyncio.run(split(wanted, event, 3))[-1]
        for stage, seconds in {**last.stages, "rest": last.rest_s}.items():
            print(f"    {stage:10} {seconds:7.3f} s  {1e6 * seconds / wanted.partitions:6.2f} us per partition")
        if chosen.profile:
            print(asyncio.run(profiled(wanted, event, chosen.profile)))


if __name__ == "__main__":
    main()
