"""Large clusters for the tests of this folder: a real ZooKeeper, simulated brokers, and a daemon as a process.

``async with large(data, folder) as stage`` has everything up; ``await stage.begin_term()`` gives the daemon the role.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from benchmarks import role, znodes
from benchmarks.datasets import DataSet, Shape, data_set
from benchmarks.fleet import Fleet
from benchmarks.procfs import peak_rss_mb
from cli.demo.process import RegentProcess
from metadata_store.kafka_store import KafkaStore
from metadata_store.kazoo_adapter import KazooZooKeeper
from state_machines.model.types import Leadership
from testing.embedded.process import ChildProcess
from testing.embedded.zookeeper import EmbeddedZooKeeper
from testing.znodes import create_topic
from tests.kit.deadlines import POLL_S, eventually

SESSION_MS = 60_000
PROPAGATION_S_MAX = 60.0
ENOUGH_S = 100.0


def shaped(topics: int, per_topic: int, brokers: int, *, replication: int = 3, names: str = "topic-{:05d}") -> DataSet:
    """Places topics as Kafka does; ``names`` is a format of their number."""
    shape = Shape(f"{topics}x{per_topic}", topics, per_topic, replication, brokers)
    return replace(data_set(shape), topics=[names.format(number) for number in range(topics)])


class Brokers(Fleet):
    """Runs simulated brokers; ``more`` are further arguments of their process."""

    def __init__(self, folder: Path, connect: str, count: int, more: Sequence[str] = ()) -> None:
        super().__init__(folder, connect, count)
        self._command += more

    async def wrong(self, *brokers: int) -> dict[str, Any]:
        """Returns how the views of brokers (none given: of all) differ from ZooKeeper."""
        return dict((await self.ask("compare", brokers=brokers))["wrong"])

    async def agree(self, *brokers: int, within_s: float = PROPAGATION_S_MAX) -> None:
        """Waits until no view differs. A cancelled request would leave its response to the next one."""
        deadline = time.monotonic() + within_s
        while wrong := await self.wrong(*brokers):
            assert time.monotonic() < deadline, wrong
            await asyncio.sleep(POLL_S)


class Stage:
    """Holds a cluster and its daemon; a failure quotes the logs of ``processes``."""

    def __init__(self, zookeeper: EmbeddedZooKeeper, zk: KazooZooKeeper, fleet: Brokers, daemon: RegentProcess) -> None:
        self.zookeeper = zookeeper
        self.zk = zk
        self.fleet = fleet
        self.daemon = daemon
        self.store = KafkaStore(zk)

    @property
    def processes(self) -> list[ChildProcess]:
        return [self.zookeeper, self.fleet, self.daemon]

    async def begin_term(self, within_s: float = ENOUGH_S) -> dict[str, Any]:
        """Gives the role to the daemon; returns its status once it serves."""
        await role.give_to_regent(self.zk)
        return await self.status_with(within_s, mode="active")

    async def status_with(self, within_s: float = ENOUGH_S, **wanted: object) -> dict[str, Any]:
        """Waits until the status has all of these values."""

        async def so() -> dict[str, Any]:
            status = await self.daemon.status() or {}
            seen = {name: status.get(to_camel(name)) for name in wanted}
            assert seen == wanted, f"{status.get('mode')}: {status.get('why')}: {seen}"
            return status

        return await eventually(so, within_s)

    async def settled(self, partitions: int, within_s: float = ENOUGH_S) -> None:
        """Waits until so many partitions have leaders, every broker has acknowledged and the queue is empty."""
        await self.status_with(
            within_s,
            mode="active",
            partitions=partitions,
            offline_partitions=0,
            unacknowledged_partitions=0,
            event_queue_size=0,
        )

    async def longest_lag_s(self) -> float:
        """Returns the longest lag of the daemon's loop since its start."""
        return (await self.daemon.metric("regent_loop_lag_longest_seconds"))[""]

    @property
    def peak_mb(self) -> float:
        """Returns the peak of resident memory of the daemon."""
        return peak_rss_mb(self.daemon.pid)

    # -- what happens in ZooKeeper

    async def create(self, name: str, *replicas: tuple[int, ...], topic_id: bytes | None = None) -> None:
        """Creates a topic as a broker does."""
        await create_topic(self.zk, name, dict(enumerate(replicas)), topic_id or name.encode().ljust(16, b".")[-16:])

    async def states(self, name: str, partitions: Sequence[int]) -> list[Leadership | None]:
        """Reads state znodes of a topic's partitions."""
        found = await self.store.load_states([(name, partition) for partition in partitions])
        return [state if isinstance(state, Leadership) else None for state in found]

    async def led(self, name: str, partitions: Sequence[int], within_s: float = PROPAGATION_S_MAX) -> None:
        """Waits until each of a topic's partitions has a leader."""

        async def all_led() -> bool:
            return all(state is not None and state.leader >= 0 for state in await self.states(name, partitions))

        await eventually(all_led, within_s)


@asynccontextmanager
async def large(
    data: DataSet,
    folder: Path,
    *,
    settings: Mapping[str, object] | None = None,
    jute_maxbuffer: int | None = None,
    heap_mb: int = 512,
    brokers: Sequence[str] = (),
) -> AsyncIterator[Stage]:
    """Writes ``data`` to ZooKeeper, and boots brokers with the arguments ``brokers`` and a standby."""
    zookeeper = EmbeddedZooKeeper(
        folder / "zookeeper", tick_ms=2_000, session_ms_max=120_000, jute_maxbuffer=jute_maxbuffer, heap_mb=heap_mb
    )
    fleet = Brokers(folder / "brokers", zookeeper.connect, data.shape.brokers, brokers)
    daemon = RegentProcess(folder / "regent", zookeeper.connect, settings=settings)
    zk = KazooZooKeeper(zookeeper.connect, session_timeout_ms=SESSION_MS)
    stage = Stage(zookeeper, zk, fleet, daemon)
    try:
        await zookeeper.boot()
        await zk.connect(30.0)
        await znodes.lay_out(zk)
        await role.set_aside(zk)
        await znodes.write(zk, data)
        await fleet.boot()
        await daemon.boot("standby")
        yield stage
    except BaseException:
        for process in stage.processes:
            print(process.log_tail())  # pytest shows it with the failure
        raise
    finally:
        await daemon.kill()
        await fleet.stop_all()
        await zk.close()
        await zookeeper.kill()
