"""Channels over real sockets to fake brokers, around a real model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from brokers.outbound.channels import Channels
from brokers.outbound.delivery import BrokerResponse, ChannelFailed, ChannelSettings
from brokers.transport import Transport
from brokers.wire.versions import Ibp
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change
from state_machines.model.types import Broker, Endpoint, Leadership, PartitionRow, PartitionState
from tests.core.fake_broker import LEADER_AND_ISR, LISTENER, UPDATE_METADATA, FakeBroker
from tests.core.model import EPOCH, topic

CONTROLLER = 1_000_001
OWN = Endpoint(LISTENER, "regent.example.com", 9095)


def settings(**changes: Any) -> ChannelSettings:
    """Quick retries, short batch intervals; ``changes`` by name."""
    defaults: dict[str, Any] = {
        "controller_id": CONTROLLER,
        "controller_epoch": EPOCH,
        "ibp": Ibp.parse("3.9"),
        "listeners": (LISTENER,),
        "own_endpoints": (OWN,),
        "retry_backoff_ms": 10,
        "retry_backoff_ms_max": 40,
        "seal_interval_ms": 5,
    }
    return ChannelSettings(**(defaults | changes))


class World:
    """The model, its brokers, the channels and what they reported."""

    def __init__(self, cluster: Cluster, brokers: dict[int, FakeBroker], chosen: ChannelSettings) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.settings = chosen
        self.events: list[BrokerResponse | ChannelFailed] = []
        self.lags: list[float] = []
        self.open = True
        self.channels = self.make()

    def make(self, transport: Transport | None = None) -> Channels:
        return Channels(
            self.cluster,
            self.settings,
            lambda: self.open,
            self.events.append,
            transport,
            on_acknowledged=self.lags.append,
        )

    def register(self, *ids: int) -> None:
        """Registers brokers: observed in the model, then a channel each."""
        found = self.cluster.brokers | {i: self.brokers[i].registration() for i in ids}
        self.cluster.observe_brokers(found)
        for i in ids:
            self.channels.add(found[i])

    def deregister(self, broker_id: int) -> None:
        """A registration is gone."""
        self.cluster.observe_brokers({i: b for i, b in self.cluster.brokers.items() if i != broker_id})
        self.channels.remove(broker_id)

    def add_topic(self, name: str, replicas: Iterable[tuple[int, ...]], leader_epoch: int = 3) -> list[int]:
        """A topic with leaders, in the model only."""
        rows = self.cluster.observe_topic(topic(name, replicas))
        found = [self.cluster.rows[i].assignment.replicas for i in rows]
        self.cluster.load_leadership(rows, [Leadership(r[0], leader_epoch, r, EPOCH - 1, 8) for r in found])
        return rows

    def elect(self, *rows: int, leader: int | None = None) -> list[Change]:
        """Elections, in the model and told: the leader epoch of each row rises by one."""
        changes = [self._election(i, leader) for i in rows]
        self.cluster.apply(changes)
        self.channels.propagate(changes, ())
        return changes

    def _election(self, i: int, leader: int | None) -> Change:
        old = self.cluster.rows[i]
        chosen = old.leader if leader is None else leader
        after = PartitionRow(
            old.topic,
            old.partition,
            old.assignment,
            PartitionState.ONLINE,
            chosen,
            old.leader_epoch + 1,
            old.isr,
            EPOCH,
            old.version + 1,
        )
        return Change(i, old, after, "test")

    def answers(self) -> list[BrokerResponse]:
        return [event for event in self.events if isinstance(event, BrokerResponse)]

    def row_name(self, i: int) -> tuple[str, int]:
        name = self.cluster.name(i)
        return name.topic, name.partition


@asynccontextmanager
async def world(*ids: int, register: bool = True, **changes: Any) -> AsyncIterator[World]:
    """Fake brokers with ids ``ids``, registered; ``racks`` by id; anything else is a setting."""
    racks: dict[int, str] = changes.pop("racks", {})
    async with AsyncExitStack() as stack:
        brokers = {i: await stack.enter_async_context(FakeBroker(i, 100 + i, racks.get(i))) for i in ids}
        made = World(Cluster(EPOCH), brokers, settings(**changes))
        stack.push_async_callback(made.channels.close)
        if register:
            made.register(*ids)
        yield made


async def settled(made: World, within_s: float = 10.0) -> None:
    """Every broker has acknowledged everything."""
    behind = await made.channels.quiesced(within_s)
    assert not behind, f"brokers {sorted(behind)} are behind: {made.channels.lag()}"


def never_lower(broker: FakeBroker) -> None:
    """Neither LeaderAndIsr nor UpdateMetadata ever went back in (leader epoch, partition epoch)."""
    for api in (LEADER_AND_ISR, UPDATE_METADATA):
        highest: dict[tuple[str, int], tuple[int, int]] = {}
        for heard in broker.of(api):
            for partition, epochs in heard.epochs().items():
                assert epochs >= highest.get(partition, (-1, -1)), (broker.id, partition)
                highest[partition] = epochs


def knows_the_model(made: World, broker: FakeBroker, registration: Broker | None = None) -> None:
    """The broker's last word on every partition is the model's."""
    metadata: dict[tuple[str, int], Any] = {}
    leaders: dict[tuple[str, int], Any] = {}
    for heard in broker.heard:
        if heard.api in (LEADER_AND_ISR, UPDATE_METADATA):
            known = metadata if heard.api == UPDATE_METADATA else leaders
            known |= {
                (t.topic_name, p.partition_index): p for t in heard.entity.topic_states for p in t.partition_states
            }
    for i, row in enumerate(made.cluster.rows):
        told = metadata[made.row_name(i)]
        assert (told.leader, told.leader_epoch, told.zk_version) == (row.leader, row.leader_epoch, row.version)
        assert told.offline_replicas == made.cluster.offline_replicas(i)
        if broker.id in row.assignment.replicas:
            told = leaders[made.row_name(i)]
            assert (told.leader, told.leader_epoch) == (row.leader, row.leader_epoch)
    live = broker.of(UPDATE_METADATA)[-1].entity.live_brokers
    assert {b.id_ for b in live} == {CONTROLLER, *made.cluster.brokers}
