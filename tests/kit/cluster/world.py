"""Runs a real cluster with daemons; its state is read from ZooKeeper, so Kafka's own controller may hold the role."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cli.demo.process import RegentProcess
from controller.journal.reader import read
from controller.role.claim import Role
from controller.role.own_znodes import LOCKS, this_process
from metadata_store import paths
from metadata_store.codecs.cluster import ProducerIdBlock, decode_producer_ids
from metadata_store.errors import ZooKeeperError
from metadata_store.kafka_store import KafkaStore
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.port import ANY_VERSION, ConnectionState
from state_machines.journal.audit import judge
from state_machines.journal.events import Row
from state_machines.model.types import Leadership, TopicAssignment
from testing.embedded.cluster import EmbeddedCluster
from tests.kit.deadlines import eventually
from tests.kit.results import leave

OBSERVER = 1_999_999


@dataclass
class ClusterWorld:
    """Holds an embedded cluster, an observer's session and any number of daemons."""

    cluster: EmbeddedCluster
    zk: KazooZooKeeper
    daemons: list[RegentProcess] = field(default_factory=list)

    @property
    def store(self) -> KafkaStore:
        return KafkaStore(self.zk)

    def daemon(self, **options: Any) -> RegentProcess:
        """Returns a daemon that is not started yet; ids count up."""
        number = len(self.daemons) + 1
        made = RegentProcess(
            self.cluster.folder / f"regent-{number}",
            self.cluster.connect,
            controller_id=options.pop("controller_id", 1_000_000 + number),
            **options,
        )
        self.daemons.append(made)
        return made

    async def reconnected(self, within_s: float = 60.0) -> None:
        """Waits until the observer's own session is up: after an outage of ZooKeeper it may need a new one."""

        async def up() -> bool:
            with contextlib.suppress(ZooKeeperError):
                await self.zk.connect(5.0)
            return self.zk.state is ConnectionState.CONNECTED

        await eventually(up, within_s)

    async def controller(self) -> int | None:
        """Reads the id in ``/controller``."""
        found, _ = await Role(self.zk, this_process(OBSERVER), hold=False, digest=None).controller()
        return found.broker if found is not None else None

    async def epoch(self) -> int:
        """Reads the controller epoch."""
        node = await self.zk.get(paths.CONTROLLER_EPOCH)
        return int(node.data or b"0") if node is not None else 0

    async def states(self) -> dict[tuple[str, int], tuple[tuple[int, ...], Leadership | None]]:
        """Reads replicas and leadership of every partition from ZooKeeper."""
        topics = [t for t in await self.store.load_topics() if isinstance(t, TopicAssignment)]
        pairs = [(t.name, p, a.replicas) for t in topics for p, a in t.partitions.items()]
        states = await self.store.load_states([(name, p) for name, p, _ in pairs])
        return {
            (name, p): (replicas, state if isinstance(state, Leadership) else None)
            for (name, p, replicas), state in zip(pairs, states, strict=True)
        }

    async def healed(self, within_s: float = 60.0) -> None:
        """Waits until each partition has a leader and all its replicas in sync; unknown brokers do not count."""

        async def whole() -> bool:
            states = await self.states()
            known = {name: set(replicas) & self.cluster.brokers.keys() for name, (replicas, _) in states.items()}
            return bool(states) and all(
                state is not None and state.leader >= 0 and set(state.isr) == known[name]
                for name, (_, state) in states.items()
                if known[name]
            )

        await eventually(whole, within_s)

    async def led(self, topic: str, partitions: int, within_s: float = 60.0) -> None:
        """Waits until a topic has so many partitions, each with a leader."""

        async def whole() -> bool:
            states = [state for (name, _), (_, state) in (await self.states()).items() if name == topic]
            return len(states) == partitions and all(state is not None and state.leader >= 0 for state in states)

        await eventually(whole, within_s)

    async def registered(self, broker: int, *, expected: bool = True) -> None:
        """Waits until a broker is registered, or (``expected`` False) no longer."""

        async def so() -> bool:
            return (broker in await self.cluster.registered()) is expected

        await eventually(so, 30.0)

    async def producer_ids(self) -> ProducerIdBlock:
        """Reads the last block of producer ids that a controller allocated."""
        node = await self.zk.get(paths.PRODUCER_IDS)
        assert node is not None
        found = decode_producer_ids(paths.PRODUCER_IDS, node.data)
        assert isinstance(found, ProducerIdBlock)
        return found

    async def leads_nothing(self, broker: int, within_s: float = 60.0) -> None:
        """Waits until ``broker`` leads no partition, and every one has a leader."""

        async def moved() -> bool:
            return all(s is not None and s.leader not in {broker, -1} for _, s in (await self.states()).values())

        await eventually(moved, within_s)

    async def broker_controls(self, within_s: float = 60.0) -> int:
        """Waits until one of the brokers is the controller; returns its id."""

        async def one() -> int | None:
            holder = await self.controller()
            return holder if holder in self.cluster.brokers else None

        found = await eventually(one, within_s)
        assert found is not None
        return found

    def hosting(self, topic: str) -> set[tuple[int, int]]:
        """Returns (broker, partition) of each log of the topic that is not about to be deleted."""
        logs = [
            (broker, path.name.removeprefix(f"{topic}-"))
            for broker, process in self.cluster.brokers.items()
            for path in process.folder.glob(f"data-*/{topic}-*")
        ]
        return {(broker, int(number)) for broker, number in logs if number.isdigit()}

    async def move_controller(self) -> None:
        """Deletes ``/controller``, as operators of Kafka's own controller do; waits for the next election."""
        epoch = await self.epoch()
        await self.zk.delete(paths.CONTROLLER, ANY_VERSION)

        async def moved() -> bool:
            return await self.epoch() > epoch and await self.controller() in self.cluster.brokers

        await eventually(moved)

    async def active_of(self, daemons: Sequence[RegentProcess], within_s: float = 60.0) -> RegentProcess:
        """Waits until exactly one daemon is active, and ``/controller`` names it."""

        async def one() -> RegentProcess | None:
            found = [daemon for daemon in daemons if daemon.running and await daemon.is_in("active")]
            assert len(found) < 2, "two daemons are active"
            return found[0] if found and await self.controller() == found[0].id else None

        found = await eventually(one, within_s)
        assert found is not None
        return found

    async def daemons_gone(self, within_s: float = 60.0) -> None:
        """Waits until no daemon has a session: their places in the queue are ephemeral."""

        async def none() -> bool:
            listed = await self.zk.children(LOCKS)
            return listed is None or not listed[0]

        await eventually(none, within_s)

    def violations(self) -> list[str]:
        """Returns the violations of rules that the audit finds in the journals of all daemons."""
        rows = (row for daemon in self.daemons for row in read(daemon.journal) if isinstance(row, Row))
        return [str(found) for found in judge(rows)]

    def hold(self) -> dict[str, object]:
        """Returns a daemon's settings for the mode ``hold``, with credentials in a file."""
        path = self.cluster.folder / "zookeeper-digest"
        path.write_text("regent:secret\n", encoding="utf-8")
        path.chmod(0o600)
        return {"controller.on_absence": "hold", "zookeeper.digest_file": str(path)}


@asynccontextmanager
async def world(
    brokers: int = 3,
    *,
    racks: Sequence[str | None] | None = None,
    partitions: int = 6,
    chroot: str = "",
    zookeepers: int = 1,
    zookeeper_options: Mapping[str, object] | None = None,
    sasl: str | None = None,
    **options: Any,
) -> AsyncIterator[ClusterWorld]:
    """Boots a cluster; an auto-created topic gets ``partitions``, every broker gets ``options``.

    Each ZooKeeper server gets ``zookeeper_options``; ``sasl`` is the observer's user:password there.
    """
    options = {"auto_create_partitions": partitions, **options}
    cluster = EmbeddedCluster(
        brokers,
        racks=racks,
        chroot=chroot,
        zookeepers=zookeepers,
        zookeeper_options=zookeeper_options,
        broker_options=options,
    )
    async with cluster:
        zk = KazooZooKeeper(cluster.connect, session_timeout_ms=20_000, sasl=sasl)
        await zk.connect(20.0)
        made = ClusterWorld(cluster, zk)
        try:
            yield made
        finally:
            for daemon in made.daemons:
                await daemon.kill()
                leave(daemon.journal, f"{cluster.folder.name}-{daemon.id}")
            await zk.close()
        assert not made.violations()
