"""Shows propagation the model: which rows brokers are sent, and which changes need LeaderAndIsr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from state_machines.model.decision import Change
from state_machines.model.types import NO_VERSION, Broker, PartitionRow, PartitionState, Topic

_NON_EXISTENT: Final = PartitionState.NON_EXISTENT


class ClusterView(Protocol):
    """The part of the model that propagation reads (:class:`state_machines.model.cluster.Cluster`).

    A replica is ``stopped`` only where its row is not Online or one of the row's replicas is not online: a snapshot
    does not check ordinary rows.
    """

    @property
    def epoch(self) -> int:
        """Controller epoch of the term."""

    @property
    def rows(self) -> Sequence[PartitionRow]:
        """All partition rows; only appended to, an index is never reused."""

    @property
    def present(self) -> int:
        """Rows whose topics did not vanish."""

    @property
    def topics(self) -> Sequence[Topic]:
        """Topic incarnations by :attr:`PartitionRow.topic`."""

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """Registered brokers, live or shutting down."""

    @property
    def live(self) -> frozenset[int]:
        """Brokers that are registered and not shutting down."""

    @property
    def ids_learned(self) -> int:
        """Grows with every topic that gets an id after brokers were sent it without one."""

    def find(self, topic: str, partition: int) -> int | None:
        """Returns the row of a partition that exists."""

    def offline_replicas(self, i: int) -> tuple[int, ...]:
        """Returns the replicas of a row that are not online."""

    @property
    def any_failed(self) -> bool:
        """Checks whether :meth:`offline_replicas` depends on more than the row's replicas."""

    @property
    def any_stopped(self) -> bool:
        """Checks whether :meth:`stopped` may be true of any replica."""

    def stopped(self, i: int, broker: int) -> bool:
        """Checks whether the replica was sent StopReplica and must not be sent LeaderAndIsr."""


def is_sent(row: PartitionRow) -> bool:
    """Checks whether brokers are sent the row at all: it exists and has a leadership."""
    return row.version != NO_VERSION and row.state is not _NON_EXISTENT


def is_sent_to(broker: int, row: PartitionRow) -> bool:
    """Checks whether a broker is sent LeaderAndIsr of the row."""
    return is_sent(row) and broker in row.assignment.replicas


def is_removed(row: PartitionRow) -> bool:
    """Checks whether brokers are sent that the row is gone: its topic is being deleted, or was."""
    return row.is_removed


def successor(view: ClusterView, i: int) -> int | None:
    """Returns the row of the same partition in a later incarnation of the topic, None where there is none."""
    later = view.find(view.topics[view.rows[i].topic].name, view.rows[i].partition)
    return None if later == i else later


def needs_leader_and_isr(change: Change) -> bool:
    """Checks whether replicas need LeaderAndIsr: brokers ignore it unless the leader epoch moved or is the first.

    All other changes go out by UpdateMetadata alone (ISR changes of a leader, replicas gone offline).
    """
    before, after = change.before, change.after
    return after.leader_epoch != before.leader_epoch or before.version == NO_VERSION or change.is_new
