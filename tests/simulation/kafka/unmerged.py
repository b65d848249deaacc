"""Sends the same changes without channels: a second set of brokers applies each change as one request, at once.

Channels merge: two changes of a row are sent once, metadata of many changes is one body, a snapshot goes in turns. A
broker must end as if it had received every change alone and in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from brokers.outbound.channels import Channels
from brokers.wire.partitions import EPOCH_DURING_DELETE
from brokers.wire.versions import Api
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import LEADER_DURING_DELETE, Broker, PartitionState
from state_machines.propagation.view import ClusterView, is_removed, is_sent, needs_leader_and_isr
from testing.simulated.broker import SimulatedBroker
from testing.simulated.digest import Led, View, differences, view
from testing.simulated.values import (
    Head,
    Key,
    LeaderAndIsr,
    LeaderAndIsrEntry,
    MetadataEntry,
    Request,
    StopEntry,
    StopReplica,
    UpdateMetadata,
)

if TYPE_CHECKING:
    from tests.simulation.kafka.world import SimulatedKafka


class Unmerged:
    """Holds the second set of brokers. They restart when the first ones do; :class:`Witness` sends them requests."""

    def __init__(self, world: SimulatedKafka) -> None:
        self.cores = {b: SimulatedBroker(b, ibp=world.ibp) for b in world.brokers}
        self.sends_ids = world.sends_ids
        self.requests = 0

    def registered(self, broker: int, epoch: int, *, fresh: bool) -> None:
        """Registers a broker with a new epoch; a fresh broker was restarted."""
        core = self.cores[broker]
        if fresh:
            core.restart(epoch)
        else:
            core.epoch = epoch

    def take(self, broker: Broker, request: Request) -> None:
        """Applies one request, if it is for the present incarnation."""
        core = self.cores[broker.id]
        if core.epoch == broker.epoch:
            self.requests += 1
            core.apply(request)

    def compared(self, broker: int, merged: SimulatedBroker, leaderless: set[Key], ended: Collection[Key]) -> list[str]:
        """Returns the differences of a broker that received merged requests, in words."""
        mine, theirs = (_reduced(view(core), leaderless, ended) for core in (merged, self.cores[broker]))
        return differences(mine, theirs, 3) if mine.digest() != theirs.digest() else []


def _reduced(found: View, leaderless: set[Key], ended: Collection[Key]) -> View:
    """Leaves out the ISR that leaders know from their own changes, and all data of partitions without a leader.

    Partitions that ``ended`` by hand are left out too: their last changes are never sent.
    """
    led: dict[Key, Led] = {
        key: (epoch, (), 0, replicas) for key, (epoch, _, _, replicas) in found.led.items() if key not in ended
    }
    metadata = {key: known for key, known in found.metadata.items() if key not in ended}
    followed = {k: known for k, known in found.followed.items() if k not in leaderless and k not in ended}
    return View(found.live, metadata, led, followed)


class Witness(Channels):
    """Sends as the channels of a term, and also every change alone to the second set of brokers."""

    def __init__(self, unmerged: Unmerged, cluster: ClusterView, *more: Any, **options: Any) -> None:
        super().__init__(cluster, *more, **options)
        self._unmerged = unmerged
        self._view = cluster
        self._settings = self._shared.settings

    # -- requests of the controller

    def add(self, broker: Broker) -> None:
        """Adds a broker; see the base."""
        super().add(broker)
        self._to_all()

    def remove(self, broker_id: int) -> None:
        """Removes a broker; see the base."""
        super().remove(broker_id)
        self._to_all()

    def live_list_changed(self) -> None:
        """Sends the live list; see the base."""
        super().live_list_changed()
        self._to_all()

    def propagate(self, changes: Sequence[Change], moves: Sequence[ReplicaMove]) -> None:
        """Sends changes and moves; see the base."""
        super().propagate(changes, moves)
        for change in changes:
            if is_sent(change.after):
                if needs_leader_and_isr(change):
                    for broker in change.after.assignment.replicas:
                        self._lead(broker, change.entity, is_new=change.is_new or change.creates)
                self._to_all(change.entity)
            elif is_removed(change.after):
                self._to_all(change.entity)
        for move in moves:
            if move.stop:
                self._stop(move)
            if move.order:
                self._lead(move.broker, move.entity, is_new=move.is_new)
                self._to_all(move.entity)

    def metadata_changed(self, rows: Iterable[int]) -> None:
        """Sends metadata; see the base."""
        rows = list(rows)
        super().metadata_changed(rows)
        for i in rows:
            self._to_all(i)

    def leader_and_isr_to(self, broker_id: int, rows: Iterable[int], is_new: bool = False) -> None:
        """Sends LeaderAndIsr to one broker; see the base."""
        rows = list(rows)
        super().leader_and_isr_to(broker_id, rows, is_new)
        for i in rows:
            self._lead(broker_id, i, is_new=is_new)

    def snapshot(self, broker_ids: Iterable[int] | None = None, *, came_up: bool = False) -> None:
        """Sends snapshots; see the base."""
        wanted = list(self._channels) if broker_ids is None else list(broker_ids)
        super().snapshot(wanted, came_up=came_up)
        for broker in wanted:
            self._metadata(broker, None)
            for i in range(len(self._view.rows)):
                self._lead(broker, i, is_new=False)
                if is_sent(self._view.rows[i]):
                    self._metadata(broker, i)

    # -- one request each

    def _head(self, api: Api, broker: Broker) -> Head:
        settings = self._settings
        return Head(api, 7, 0, None, settings.controller_id, False, settings.controller_epoch, broker.epoch)

    def _to_all(self, i: int | None = None) -> None:
        for broker in self._channels:
            self._metadata(broker, i)

    def _metadata(self, broker_id: int, i: int | None) -> None:
        channel = self._channels.get(broker_id)
        if channel is None or (i is not None and not self._is_known(i)):
            return
        entries = [] if i is None else [self._metadata_entry(i)]
        topics = {entry.topic: entry.topic_id if self._unmerged.sends_ids else None for entry in entries}
        live = tuple(self._view.brokers.values())
        head = self._head(Api.UPDATE_METADATA, channel.broker)
        self._unmerged.take(channel.broker, UpdateMetadata(head, 0, entries, topics, live))

    def _is_known(self, i: int) -> bool:
        return is_sent(self._view.rows[i]) or is_removed(self._view.rows[i])

    def _metadata_entry(self, i: int) -> MetadataEntry:
        row, view_ = self._view.rows[i], self._view
        topic = view_.topics[row.topic]
        leadership = row.controller_epoch, row.leader, row.leader_epoch, row.isr, row.version, row.assignment.replicas
        if is_removed(row):
            leadership = row.controller_epoch, LEADER_DURING_DELETE, 0, row.isr, 0, row.assignment.replicas
        return MetadataEntry(topic.name, topic.topic_id, row.partition, *leadership, view_.offline_replicas(i))

    def _lead(self, broker_id: int, i: int, *, is_new: bool) -> None:
        row, channel = self._view.rows[i], self._channels.get(broker_id)
        hosts = channel is not None and broker_id in row.assignment.replicas
        if channel is None or not hosts or not is_sent(row) or self._view.stopped(i, broker_id):
            return
        topic = self._view.topics[row.topic]
        leadership = row.controller_epoch, row.leader, row.leader_epoch, row.isr, row.version, row.assignment.replicas
        topic_id = topic.topic_id if self._unmerged.sends_ids else None
        entry = LeaderAndIsrEntry(topic.name, topic_id, row.partition, *leadership, is_new=is_new)
        head = self._head(Api.LEADER_AND_ISR, channel.broker)
        self._unmerged.take(channel.broker, LeaderAndIsr(head, 0, [entry]))

    def _stop(self, move: ReplicaMove) -> None:
        channel, row = self._channels.get(move.broker), self._view.rows[move.entity]
        if channel is not None:
            topic = self._view.topics[row.topic]
            epoch = EPOCH_DURING_DELETE if row.state is PartitionState.NON_EXISTENT else row.leader_epoch
            entry = StopEntry(topic.name, row.partition, epoch, move.delete)
            head = self._head(Api.STOP_REPLICA, channel.broker)
            self._unmerged.take(channel.broker, StopReplica(head, [entry]))
