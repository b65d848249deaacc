"""Channels over real sockets to fake brokers, around a real model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from brokers.outbound.channels import Channels
from brokers.outbound.delivery import BrokerResponse, ChannelFailed, ChannelSettings, LogsStopped, Shared
from brokers.transport import Transport
from brokers.wire.versions import Ibp
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import Endpoint, Leadership, PartitionState, ReplicaState
from tests.kit.deadlines import WITHIN_S, eventually
from tests.kit.kafka.brokers import LEADER_AND_ISR, LISTENER, UPDATE_METADATA, FakeBroker
from tests.kit.kafka.model import EPOCH, topic

CONTROLLER = 1_000_001
OWN = Endpoint(LISTENER, "regent.example.com", 9095)
BRIEFLY_S = 0.05
"""Time in which a request would reach its broker that must not be sent."""


def settings(**changes: Any) -> ChannelSettings:
    """Returns settings with quick retries and short batch intervals; ``changes`` by name."""
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


def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the channels' clock by one that moves by hand alone."""
    now_s = [100.0]
    monkeypatch.setattr(Shared, "now_s", staticmethod(lambda: now_s[0]))
    return now_s


def stop(row: int, broker: int = 1, *, delete: bool = False) -> ReplicaMove:
    """Returns a move that stops a replica."""
    state = ReplicaState.DELETION_STARTED if delete else ReplicaState.OFFLINE
    return ReplicaMove(row, broker, state, "x", stop=True, delete=delete)


class ChannelsWorld:
    """The model, its brokers, the channels and their events."""

    def __init__(self, cluster: Cluster, brokers: dict[int, FakeBroker], chosen: ChannelSettings) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self.settings = chosen
        self.events: list[BrokerResponse | LogsStopped | ChannelFailed] = []
        self.lags: list[float] = []
        self.open = True
        self.channels = self.make()

    def make(self, transport: Transport | None = None) -> Channels:
        """Returns new channels."""
        return Channels(
            self.cluster,
            self.settings,
            lambda: self.open,
            self.events.append,
            transport,
            on_acknowledged=self.lags.append,
        )

    @property
    def one(self) -> FakeBroker:
        """Returns broker 1."""
        return self.brokers[1]

    def register(self, *ids: int) -> None:
        """Registers brokers: observed in the model, then a channel each."""
        found = self.cluster.brokers | {i: self.brokers[i].registration() for i in ids}
        self.cluster.observe_brokers(found)
        for i in ids:
            self.channels.add(found[i])

    def deregister(self, broker_id: int) -> None:
        """Removes a registration."""
        self.cluster.observe_brokers({i: b for i, b in self.cluster.brokers.items() if i != broker_id})
        self.channels.remove(broker_id)

    def add_topic(self, name: str, replicas: Iterable[tuple[int, ...]], leader_epoch: int = 3) -> list[int]:
        """Adds a topic with leaders to the model, without any request; returns its rows."""
        rows = self.cluster.observe_topic(topic(name, replicas))
        found = [self.cluster.rows[i].assignment.replicas for i in rows]
        self.cluster.load_leadership(rows, [Leadership(r[0], leader_epoch, r, EPOCH - 1, 8) for r in found])
        return rows

    async def load(self, *replicas: tuple[int, ...], name: str = "t", snapshot: bool = True) -> list[int]:
        """Adds a topic, waits until all brokers have it (or their first requests alone), and marks their requests."""
        rows = self.add_topic(name, replicas)
        if snapshot:
            self.channels.snapshot()
        await settled(self)
        for broker in self.brokers.values():
            broker.mark()
        return rows

    def elect(self, *rows: int, leader: int | None = None) -> None:
        """Elects in the model and propagates it: the leader epoch of each row rises by one."""
        changes = [self._election(i, leader) for i in rows]
        self.cluster.apply(changes)
        self.channels.propagate(changes, ())

    def _election(self, i: int, leader: int | None) -> Change:
        old = self.cluster.rows[i]
        after = replace(
            old,
            state=PartitionState.ONLINE,
            leader=old.leader if leader is None else leader,
            leader_epoch=old.leader_epoch + 1,
            controller_epoch=EPOCH,
            version=old.version + 1,
        )
        return Change(i, old, after, "test")

    def responses(self) -> list[BrokerResponse]:
        """Returns the reported responses."""
        return [event for event in self.events if isinstance(event, BrokerResponse)]

    def row_name(self, i: int) -> tuple[str, int]:
        """Returns topic and partition of a row."""
        name = self.cluster.name(i)
        return name.topic, name.partition


@asynccontextmanager
async def world(*ids: int, register: bool = True, **changes: Any) -> AsyncIterator[ChannelsWorld]:
    """Makes fake brokers with ids ``ids``, registered; ``racks`` by id; anything else is a setting."""
    racks: dict[int, str] = changes.pop("racks", {})
    async with AsyncExitStack() as stack:
        brokers = {i: await stack.enter_async_context(FakeBroker(i, 100 + i, racks.get(i))) for i in ids}
        made = ChannelsWorld(Cluster(EPOCH), brokers, settings(**changes))
        stack.push_async_callback(made.channels.close)
        if register:
            made.register(*ids)
        yield made


async def settled(made: ChannelsWorld, within_s: float = WITHIN_S) -> None:
    """Waits until every broker has acknowledged everything."""
    behind = await made.channels.quiesced(within_s)
    assert not behind, f"brokers {sorted(behind)} are behind: {made.channels.lag()}"


async def in_flight(broker: FakeBroker, apis: str) -> None:
    """Waits until the broker's requests since the mark are these; with ``hold`` the last one is in flight."""
    await eventually(lambda: broker.apis() == apis)


async def nothing_for(made: ChannelsWorld, *brokers: int) -> None:
    """Checks that changes wait, and that their requests are not sent, for these brokers and, soon, no other."""

    async def others_have_all() -> bool:
        return await made.channels.quiesced(BRIEFLY_S) == set(brokers)

    await eventually(others_have_all)


def never_lower(broker: FakeBroker) -> None:
    """Checks that no request went back in (leader epoch, partition epoch)."""
    for api in (LEADER_AND_ISR, UPDATE_METADATA):
        highest: dict[tuple[str, int], tuple[int, int]] = {}
        for request in broker.of(api):
            for partition, epochs in request.epochs().items():
                assert epochs >= highest.get(partition, (-1, -1)), (broker.id, partition)
                highest[partition] = epochs


def knows_the_model(made: ChannelsWorld, broker: FakeBroker) -> None:
    """Checks that the last entries of the broker's requests, for every partition, are the model's."""
    metadata: dict[tuple[str, int], Any] = {}
    leaders: dict[tuple[str, int], Any] = {}
    for request in broker.requests:
        if request.api in (LEADER_AND_ISR, UPDATE_METADATA):
            known = metadata if request.api == UPDATE_METADATA else leaders
            known |= request.states()
    for i, row in enumerate(made.cluster.rows):
        state = metadata[made.row_name(i)]
        assert (state.leader, state.leader_epoch, state.zk_version) == (row.leader, row.leader_epoch, row.version)
        assert state.offline_replicas == made.cluster.offline_replicas(i)
        if broker.id in row.assignment.replicas:
            state = leaders[made.row_name(i)]
            assert (state.leader, state.leader_epoch) == (row.leader, row.leader_epoch)
    live = broker.of(UPDATE_METADATA)[-1].entity.live_brokers
    assert {b.id_ for b in live} == {CONTROLLER, *made.cluster.brokers}
