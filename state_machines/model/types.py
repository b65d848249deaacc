"""Declares values that every layer shares: brokers, their logs, topics, assignments and partition rows.

All structs are frozen. Tuples of broker ids are interned by :class:`state_machines.model.cluster.Cluster`, so equality
of two assignments is mostly identity. ``gc=False`` is safe because none of them can be part of a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

NO_LEADER: Final = -1
"""Leader id in a state znode and on the wire while a partition has no leader (Kafka ``LeaderAndIsr.NoLeader``)."""

LEADER_DURING_DELETE: Final = -2
"""Leader id in UpdateMetadata that makes brokers forget the partition (``LeaderAndIsr.LeaderDuringDelete``)."""

NO_VERSION: Final = -1
"""Partition epoch of a row whose state znode does not exist yet."""

INITIAL_LEADER_EPOCH: Final = 0
INITIAL_PARTITION_EPOCH: Final = 0


class PartitionState(IntEnum):
    """States of a partition (Kafka ``PartitionStateMachine``)."""

    NEW = 0
    ONLINE = 1
    OFFLINE = 2
    NON_EXISTENT = 3


class ReplicaState(IntEnum):
    """States of a replica, with Kafka 3.9's deletion states (Kafka ``ReplicaStateMachine``)."""

    NEW = 1
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6
    NON_EXISTENT = 7


class Endpoint(Struct, frozen=True, gc=False):
    """One listener of a broker. ``security_protocol``: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    listener: str
    host: str
    port: int
    security_protocol: int = 0


class Broker(Struct, frozen=True, gc=False):
    """A registered broker. ``epoch`` is the czxid of ``/brokers/ids/N`` (KIP-380); ``version`` the znode's version."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    version: int = 0

    def endpoint(self, listener: str) -> Endpoint | None:
        """Returns the endpoint named ``listener``, or None where the broker does not have it."""
        return next((e for e in self.endpoints if e.listener == listener), None)


class Assignment(Struct, frozen=True, gc=False):
    """Replica set of a partition in preference order, with what a reassignment adds and removes (KIP-455).

    A replica that is both was to be added by a reassignment that was cancelled or overridden. It is named until its
    broker has acknowledged StopReplica. Kafka's controller forgets it at once: should the controller die then, a log
    stays on a broker. Kafka's controller computes the same origin and target from it, and stops it in the end, too.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def moving(self) -> bool:
        """Checks whether it is the assignment of a reassignment that is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once the reassignment is complete."""
        return tuple(r for r in self.replicas if r not in self.removing) if self.removing else self.replicas

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas that were there before, in the present order: the one before is not kept."""
        return tuple(r for r in self.replicas if r not in self.adding) if self.adding else self.replicas

    @property
    def kept(self) -> Assignment:
        """The same without replicas that only have to stop, as the others are sent it."""
        if not (self.adding and self.removing):
            return self
        dropped = {r for r in self.adding if r in self.removing}
        if not dropped:
            return self
        named = (self.replicas, self.adding, self.removing)
        return Assignment(*(tuple(r for r in those if r not in dropped) for those in named))

    def reassigned_to(self, target: tuple[int, ...]) -> Assignment:
        """Returns the assignment while the origin is replaced by ``target`` (Kafka ``ReplicaAssignment.reassignTo``).

        Unlike Kafka's it goes on to name replicas that were to be added and are not any more.
        """
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin, *self.replicas)))
        adding, removing = (tuple(r for r in replicas if r not in known) for known in (origin, target))
        return Assignment(replicas, adding, removing)


class TopicAssignment(Struct, frozen=True, gc=False):
    """Content of ``/brokers/topics/T``.

    ``topic_id`` is the raw 16 bytes or None; ``partitions`` maps partition number to :class:`Assignment`;
    ``version`` and ``czxid`` come from the znode's stat; ``unknown`` holds JSON fields that are carried unchanged.
    """

    name: str
    topic_id: bytes | None
    partitions: dict[int, Assignment]
    version: int
    czxid: int
    unknown: dict[str, object] = {}


class Leadership(Struct, frozen=True, gc=False):
    """Content of ``.../partitions/P/state`` with the znode's version (= partition epoch)."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int
    recovering: bool = False


class PartitionRow(Struct, frozen=True, gc=False):
    """One partition in the model.

    ``topic`` is the index of the topic's incarnation in ``Cluster.topics``; ``version`` is the partition epoch, or
    :data:`NO_VERSION` while no state znode exists (then leader, epochs and ISR mean nothing).
    """

    topic: int
    partition: int
    assignment: Assignment
    state: PartitionState
    leader: int = NO_LEADER
    leader_epoch: int = INITIAL_LEADER_EPOCH
    isr: tuple[int, ...] = ()
    controller_epoch: int = 0
    version: int = NO_VERSION
    recovering: bool = False

    @property
    def has_leadership(self) -> bool:
        """Checks whether a state znode is known: only then are brokers sent the partition."""
        return self.version != NO_VERSION

    @property
    def is_removed(self) -> bool:
        """Checks whether brokers are sent that the partition is gone: its topic is being deleted, or was.

        One without a state znode is, too, once a deletion has ended it: a broker may know it from an earlier term.
        """
        ended = self.version != NO_VERSION or self.leader == LEADER_DURING_DELETE
        return ended and self.state is PartitionState.NON_EXISTENT

    @property
    def under_replicated(self) -> bool:
        """Checks whether the ISR is smaller than the replica set; added replicas do not count, as in Kafka."""
        return len(self.isr) < len(self.assignment.origin)

    @property
    def led_as_preferred(self) -> bool:
        """Checks whether the first replica leads, or is only being added: then no other leader is preferred yet."""
        assignment = self.assignment
        return self.leader == assignment.replicas[0] or assignment.replicas[0] in assignment.adding


class Topic(Struct, frozen=True, gc=False):
    """One incarnation of a topic. ``rows`` are row indexes sorted by partition number (a range where possible)."""

    index: int
    name: str
    topic_id: bytes | None
    rows: Sequence[int]
    version: int
    czxid: int


class TopicPartition(NamedTuple):
    """A partition by name, for people and for requests."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


NO_OFFSET_LAG: Final = -1
"""Lag of a log whose replica is offline, or was not sent to its broker yet (``INVALID_OFFSET_LAG``)."""


class ReplicaLog(Struct, frozen=True, gc=False):
    """A log of one replica. ``size_bytes`` counts its segments.

    ``is_future``: it replaces the replica's log on another directory of the same broker, once it has caught up.
    ``offset_lag`` is in offsets: behind the high watermark, for a future log behind the replica's present log. It is
    :data:`NO_OFFSET_LAG` where the broker does not know it.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirectory(Struct, frozen=True):
    """A log directory of a broker. ``error`` is Kafka's error code: 0 online, 56 offline; then it lists no logs."""

    path: str
    error: int
    logs: tuple[ReplicaLog, ...] = ()
