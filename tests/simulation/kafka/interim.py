"""Elects a broker: all of them race for ``/controller`` when it vanishes, and the winner is controller.

Its term is a short form of Kafka's controller. After a while it elects leaders, with fenced writes, for partitions
whose leader is not registered, and sends them to some of the brokers. It starts no topics, serves no calls, and ends
with the first error. So a daemon that takes over finds commits that no broker has received.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from brokers.wire.versions import Api
from metadata_store import paths
from metadata_store.codecs.topic import encode_state
from metadata_store.errors import MultiFailed, ZooKeeperError
from metadata_store.kafka_store import KafkaStore
from metadata_store.port import Check, SetData
from state_machines.model.types import Assignment, Broker, Leadership, TopicAssignment
from testing.simulated.values import Head, Key, LeaderAndIsr, LeaderAndIsrEntry, UpdateMetadata
from testing.znodes import election
from tests.simulation.kafka import faults

if TYPE_CHECKING:
    from tests.simulation.kafka.brokers import BrokerNode
    from tests.simulation.kafka.zookeeper import SimZooKeeper

ROUNDS_MAX: Final = 3
PAUSE_S: Final = (0.2, 1.5)
SENT: Final = 0.6
"""Share of the brokers that receive a change."""


async def follow_controller(node: BrokerNode) -> None:
    """Reads the present controller, takes a free role, and waits for the next change."""
    zk = node.zk
    assert zk is not None
    since = zk.last_zxid
    node_found = await zk.get(paths.CONTROLLER)
    if node_found is None:
        await _elect(node, zk)
        node_found = await zk.get(paths.CONTROLLER)
    watched = [paths.CONTROLLER]
    if node_found is None:
        await zk.watch(exists=watched, since_zxid=since)
    else:
        await zk.watch(data=watched, since_zxid=since)


async def _elect(node: BrokerNode, zk: SimZooKeeper) -> None:
    """Runs Kafka's election: one multi that creates ``/controller`` and raises the epoch."""
    found = await zk.get(paths.CONTROLLER_EPOCH)
    if found is None:
        return
    try:
        await zk.multi(election(node.id, found))
    except MultiFailed:
        return
    node.world.happened(faults.INTERIM)
    assert node.process is not None
    epoch = int(found.data or b"0") + 1
    node.process.start(Interim(node, zk, epoch, found.stat.version + 1).run(), "interim controller")


class Interim:
    """Serves the term of a broker."""

    def __init__(self, node: BrokerNode, zk: SimZooKeeper, epoch: int, fence: int) -> None:
        self._node = node
        self._zk = zk
        self._epoch = epoch
        self._fence = fence
        self._chance = node.world.chance

    async def run(self) -> None:
        """Runs some rounds of elections, until another process has the role."""
        low, high = PAUSE_S
        try:
            for _ in range(ROUNDS_MAX):
                await asyncio.sleep(low + (high - low) * self._chance.random())
                await self._round()
        except ZooKeeperError:
            return

    async def _round(self) -> None:
        store = KafkaStore(self._zk)
        registered = (await store.load_brokers()).brokers
        elected: dict[Key, tuple[TopicAssignment, Leadership]] = {}
        for topic in await store.load_topics():
            if isinstance(topic, TopicAssignment):
                for partition, assignment in topic.partitions.items():
                    chosen = await self._perhaps_elect(store, topic.name, partition, assignment, registered)
                    if chosen is not None:
                        elected[topic.name, partition] = topic, chosen
        self._send(elected, registered)

    async def _perhaps_elect(
        self, store: KafkaStore, topic: str, partition: int, assignment: Assignment, live: dict[int, Broker]
    ) -> Leadership | None:
        [state] = await store.load_states([(topic, partition)])
        if not isinstance(state, Leadership) or state.leader in live:
            return None
        isr = tuple(b for b in state.isr if b in live)
        leader = next((b for b in assignment.replicas if b in isr), None)
        if leader is None:
            return None
        chosen = Leadership(leader, state.leader_epoch + 1, isr, self._epoch, state.version + 1)
        data = encode_state(leader, chosen.leader_epoch, isr, self._epoch)
        await self._zk.multi(
            [Check(paths.CONTROLLER_EPOCH, self._fence), SetData(paths.state(topic, partition), data, state.version)]
        )
        return chosen

    def _send(self, elected: dict[Key, tuple[TopicAssignment, Leadership]], live: dict[int, Broker]) -> None:
        for broker in live.values():
            node = self._node.world.brokers[broker.id]
            if node.listening and not node.wire.cut and self._chance.random() < SENT:
                entries = [
                    _entry(key, topic, chosen)
                    for key, (topic, chosen) in elected.items()
                    if broker.id in topic.partitions[key[1]].replicas
                ]
                node.core.apply(
                    UpdateMetadata(self._head(Api.UPDATE_METADATA, broker), 0, [], {}, tuple(live.values()))
                )
                if entries:
                    request = LeaderAndIsr(self._head(Api.LEADER_AND_ISR, broker), 0, entries)
                    self._node.world.invariants.received(broker.id, request)
                    node.core.apply(request)
        self._node.world.trace(f"{self._node} as controller {self._epoch} elected {sorted(elected)}")

    def _head(self, api: Api, broker: Broker) -> Head:
        return Head(api, 7, 0, None, self._node.id, False, self._epoch, broker.epoch)


def _entry(key: Key, topic: TopicAssignment, chosen: Leadership) -> LeaderAndIsrEntry:
    return LeaderAndIsrEntry(
        key[0],
        topic.topic_id,
        key[1],
        chosen.controller_epoch,
        chosen.leader,
        chosen.leader_epoch,
        chosen.isr,
        chosen.version,
        topic.partitions[key[1]].replicas,
    )
