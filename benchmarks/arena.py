"""Runs the processes of a benchmark: ZooKeeper with a data set, simulated brokers, and the two controllers."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks import request_znodes, role, znodes
from benchmarks.contestants import OURS, PEER, Contestant, Kafka, Regent
from benchmarks.datasets import DataSet, Shape, data_set
from benchmarks.fleet import Fleet
from benchmarks.oracle import Oracle, initial
from benchmarks.servers import BenchmarkZooKeeper
from metadata_store.kazoo_adapter import KazooZooKeeper
from testing.embedded.process import ProcessFailed, poll

ZOOKEEPER_MB_BASE: Final = 1_024
ZOOKEEPER_BYTES_PER_PARTITION: Final = 3_000
"""Memory for two znodes, their data and paths, and room for the collector."""
KAFKA_MB_MIN: Final = 6_144
KAFKA_MB_MAX: Final = 12_288
KAFKA_BYTES_PER_PARTITION: Final = 20_000
IDLE_S_MAX: Final = 120.0
SESSION_MS: Final = 120_000
_MIB: Final = 1 << 20


def say(text: str) -> None:
    """Prints one line of progress."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Arena:
    """The processes of a benchmark; ``contestants`` in the order of their turns, ``oracle`` with the expected state."""

    def __init__(
        self,
        data: DataSet,
        zookeeper: BenchmarkZooKeeper,
        zk: KazooZooKeeper,
        fleet: Fleet,
        folder: Path,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.data = data
        self.zookeeper = zookeeper
        self.zk = zk
        self.fleet = fleet
        self.folder = folder
        self.settings = settings
        self.contestants: dict[str, Contestant] = {}
        self.oracle: Oracle = initial(data)

    @property
    def pids(self) -> list[int]:
        """Returns all processes of the benchmark, this one included."""
        controllers = [contestant.pid for contestant in self.contestants.values()]
        return [os.getpid(), self.zookeeper.pid, self.fleet.pid, *controllers]

    async def admit(self, name: str) -> Contestant:
        """Starts a controller process, which waits for the role."""
        began_s = time.monotonic()
        made: Contestant = (
            Regent(self.folder / OURS, self.zookeeper.connect, more=self.settings)
            if name == OURS
            else Kafka(self.folder / PEER, self.zookeeper.connect, _kafka_mb(self.data.shape))
        )
        self.contestants[name] = made
        await made.boot(self.zk)
        say(f"{name} waits for the role ({time.monotonic() - began_s:.1f} s to start)")
        return made

    async def calm(self, displaced: int = 0) -> None:
        """Restores the first state: no controller holds the role, every broker is registered and has no metadata.

        ``displaced``: number of partitions that are led by their second replica.
        """
        await role.set_aside(self.zk)
        for contestant in self.contestants.values():
            if not await poll(contestant.idle, IDLE_S_MAX):
                raise ProcessFailed(f"{contestant.name} did not give the role up\n{contestant.process.log_tail()}")
        self.oracle = await znodes.put_back(self.zk, self.oracle, displaced)
        gone = [b for b, epoch in (await self.fleet.epochs()).items() if not epoch]
        if gone:
            await self.fleet.register(gone)
        await self.fleet.forget()
        await self.fleet.mark()

    async def verify(self, epoch: int) -> list[str]:
        """Lists differences of ZooKeeper and of the brokers' views from the expected state."""
        states = await znodes.differences(self.zk, self.oracle, epoch)
        return states + await request_znodes.left_over(self.zk, self.oracle) + await self.wrong_views()

    async def wrong_views(self) -> list[str]:
        """Lists brokers whose views differ from the expected ones."""
        views = await self.fleet.views()
        metadata, replicas = self.oracle.metadata(), self.oracle.replicas()
        controllers = {contestant.id for contestant in self.contestants.values()}
        wrong: list[str] = []
        for broker in sorted(self.oracle.live):
            view = views[broker]
            if view.metadata != metadata:
                wrong.append(f"broker {broker}: metadata {view.metadata} where {metadata} is right")
            if view.replicas != replicas[broker] and broker not in self.oracle.leaving:
                wrong.append(f"broker {broker}: its replicas {view.replicas} where {replicas[broker]} is right")
            if view.live - controllers != self.oracle.live_list:
                wrong.append(f"broker {broker}: live list {sorted(view.live)}")
        return wrong


@asynccontextmanager
async def arena(
    shape: Shape,
    folder: Path,
    contestants: Sequence[str] = (),
    *,
    full_answers: bool = False,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[Arena]:
    """Runs everything inside the block and ends it afterwards. ``settings``: further ones of regent."""
    data = data_set(shape)
    zookeeper = BenchmarkZooKeeper(folder / "zookeeper", _zookeeper_mb(shape))
    fleet = Fleet(folder / "brokers", zookeeper.connect, shape.brokers, full_answers=full_answers)
    zk = KazooZooKeeper(zookeeper.connect, session_timeout_ms=SESSION_MS)
    made = Arena(data, zookeeper, zk, fleet, folder, settings=settings)
    try:
        await zookeeper.boot()
        await zk.connect(30.0)
        began_s = time.monotonic()
        await znodes.lay_out(zk)
        await role.set_aside(zk)
        await znodes.write(zk, data)
        say(f"{shape} written in {time.monotonic() - began_s:.1f} s")
        await fleet.boot()
        for name in contestants:
            await made.admit(name)
        yield made
    finally:
        await asyncio.shield(_end(made))


async def _end(made: Arena) -> None:
    for contestant in made.contestants.values():
        await contestant.process.kill()
    await made.fleet.stop_all()
    await made.zk.close()
    await made.zookeeper.kill()


def _zookeeper_mb(shape: Shape) -> int:
    return ZOOKEEPER_MB_BASE + shape.partitions * ZOOKEEPER_BYTES_PER_PARTITION // _MIB


def _kafka_mb(shape: Shape) -> int:
    return min(KAFKA_MB_MAX, max(KAFKA_MB_MIN, shape.partitions * KAFKA_BYTES_PER_PARTITION // _MIB))
