"""Runs a shadow beside Kafka's own controller on a real cluster, and causes events there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from controller.kafka.shadow.events import Kind
from controller.kafka.shadow.report import Report
from controller.kafka.shadow.shadow import Shadow
from metadata_store import paths
from metadata_store.codecs.topic import encode_state
from metadata_store.kazoo_adapter import KazooZooKeeper
from testing.znodes import create_topic
from tests.kit.cluster.world import ClusterWorld
from tests.kit.deadlines import eventually
from tests.kit.kafka.shadow_store import NoWrites

EVENT_S_MAX = 60.0


def spread(partitions: int, replicas: int) -> dict[int, tuple[int, ...]]:
    """Spreads leaders and followers over brokers 1 to 3."""
    return {p: tuple((p + k) % 3 + 1 for k in range(replicas)) for p in range(partitions)}


@dataclass
class Watch:
    """Causes events in ``w`` and waits until the shadow has judged them."""

    w: ClusterWorld
    shadow: Shadow

    def report(self) -> Report:
        return self.shadow.report()

    def agreed(self, event: Kind) -> int:
        return sum(count for kind, count in self.shadow.statistics.compared.items() if kind.event == event)

    async def caught_up(self) -> None:
        """Waits until no decision lacks its counterpart and the shadow has read every replica in sync."""

        def whole() -> bool:
            rows = self.shadow.tracker.model.rows
            return not self.shadow.tracker.waiting and all(set(r.isr) == set(r.assignment.replicas) for r in rows)

        await eventually(whole, EVENT_S_MAX)

    async def settled(self, event: Kind, count: int) -> None:
        """Waits until the shadow has ``count`` such events and no decision lacks its counterpart."""

        def done() -> bool:
            return self.shadow.statistics.events[event] >= count and not self.shadow.tracker.waiting

        await eventually(done, EVENT_S_MAX)

    async def sees_another_controller(self) -> None:
        """Moves the role to another broker, or to the same one in a new term."""
        expected = self.shadow.statistics.events[Kind.FAILOVER] + 1
        await self.w.move_controller()
        await self.settled(Kind.FAILOVER, expected)

    async def creates(self, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
        count = self.agreed(Kind.CREATION) + len(assignment)
        await create_topic(self.w.zk, name, assignment)
        await eventually(lambda: self.agreed(Kind.CREATION) == count, EVENT_S_MAX)
        await self.caught_up()

    async def kills(self, broker: int) -> None:
        """Kills a broker and boots it again; a controller's death leads to a failover."""
        was_controller = await self.w.controller() == broker
        event = Kind.FAILOVER if was_controller else Kind.DEATH
        expected, returns = self.shadow.statistics.events[event] + 1, self.shadow.statistics.events[Kind.RETURN] + 1
        await self.w.cluster.brokers[broker].kill()
        await self.settled(event, expected)
        await self.w.cluster.brokers[broker].boot()
        await self.settled(Kind.RETURN, returns)
        await self.caught_up()

    async def shuts_down(self, broker: int) -> None:
        """Stops a broker cleanly and boots it again."""
        was_controller = await self.w.controller() == broker
        gone = Kind.FAILOVER if was_controller else Kind.DEATH
        events = self.shadow.statistics.events
        expected, returns, shutdowns = events[gone] + 1, events[Kind.RETURN] + 1, events[Kind.SHUTDOWN] + 1
        assert (await self.w.cluster.brokers[broker].shut_down()).succeeded
        await self.settled(gone, expected)
        await self.settled(Kind.SHUTDOWN, shutdowns)
        await self.w.cluster.brokers[broker].boot()
        await self.settled(Kind.RETURN, returns)
        await self.caught_up()


@asynccontextmanager
async def watching(w: ClusterWorld, *, wait_s: float = 30.0) -> AsyncIterator[Watch]:
    """Runs a shadow with a session of its own, in which a write is a failure."""
    zk = KazooZooKeeper(w.cluster.connect, session_timeout_ms=20_000, hooks=NoWrites())
    await zk.connect(20.0)
    shadow = Shadow(poll_s=2.0, wait_s=wait_s)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shadow.run, zk)
            await eventually(shadow.following.is_set)
            yield Watch(w, shadow)
            tasks.cancel_scope.cancel()
    finally:
        await zk.close()


async def plant(w: ClusterWorld, topic: str, partition: int, *, leader: int, isr: Sequence[int], epochs: int) -> None:
    """Writes a state znode by hand, as no controller would."""
    _, held = (await w.states())[topic, partition]
    assert held is not None
    data = encode_state(leader, held.leader_epoch + epochs, tuple(isr), held.controller_epoch)
    await w.zk.set(paths.state(topic, partition), data, held.version)
