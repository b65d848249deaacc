"""Declares calls of admin clients as values, independent of the wire: about deletions, elections and reassignments.

Permissions are the concern of :mod:`controller.kafka.requests.admission`, errors in the versions of the request that of
:mod:`controller.kafka.requests.codec`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from brokers.wire.errors import Error
from controller.kafka.access import Payer
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.reassignment import NotReassigned
from state_machines.model.types import Assignment, TopicPartition
from state_machines.procedures.record import Caller


class DeleteTopicsCall(Struct, frozen=True):
    """Topics by name, or by id (16 bytes). ``timeout_ms``: how long the caller waits; 0 or less: not at all.

    Marked topics are deleted, whether a caller waits or not. ``payer``: owner of the charged quota.
    ``again``: an earlier attempt of the call may have deleted a topic; then one that is unknown is a success.
    ``caller``: of the call's record, None without one.
    """

    topics: Sequence[str | bytes]
    timeout_ms: int
    payer: Payer | None = None
    again: bool = False
    caller: Caller | None = None


class DeletedTopic(Struct, frozen=True):
    """Outcome of one topic. ``name`` is None where an id is unknown, ``topic_id`` where the topic has none.

    Errors: TOPIC_DELETION_DISABLED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, THROTTLING_QUOTA_EXCEEDED,
    REQUEST_TIMED_OUT (brokers may still show it, or have not said whether they allow it), UNKNOWN_SERVER_ERROR
    (ZooKeeper refused the marker). ``why``: the message for people, if any.
    """

    name: str | None
    topic_id: bytes | None
    error: Error
    why: str | None = None


class DeleteTopicsReply(Struct, frozen=True):
    """Results in the order of the call, and the throttle time of the caller."""

    topics: Sequence[DeletedTopic]
    throttle_time_ms: int = 0


class ElectLeadersCall(Struct, frozen=True):
    """``partitions`` None: all. ``timeout_s`` bounds the wait for the new leaders, not the election itself.

    ``again``: an earlier attempt of the call may have held the election; then one that is not needed is a success.
    ``caller``: for the journal.
    """

    kind: ElectionType
    partitions: Sequence[TopicPartition] | None
    timeout_s: float
    again: bool = False
    caller: Caller = Caller()


class Elected(Struct, frozen=True, gc=False):
    """Outcome of one partition: ``error`` is a Kafka error code, ``why`` its cause here (None: no error)."""

    topic: str
    partition: int
    error: int = Error.NONE
    why: str | None = None


class ElectLeadersReply(Struct, frozen=True):
    """Results in the order of the call, each partition once.

    A request for all partitions leaves out those that needed no election, as in Kafka.
    """

    results: Sequence[Elected]


class AlterReassignments(Struct, frozen=True):
    """AlterPartitionReassignments: the target of each partition; None cancels its reassignment.

    ``again``: an earlier attempt of the call may have cancelled it; then a missing reassignment is a success.
    ``principal``: of the client, for the log. ``caller``: of the call's record, None without one.
    """

    targets: dict[TopicPartition, tuple[int, ...] | None]
    again: bool = False
    principal: str = "an admin client"
    caller: Caller | None = None


class AlterReassignmentsReply(Struct, frozen=True):
    """Partitions of the call that are not reassigned, and why; all others are under way, or done already."""

    refused: dict[TopicPartition, NotReassigned]


class ListReassignments(Struct, frozen=True):
    """ListPartitionReassignments: of these partitions, or of all (None)."""

    partitions: tuple[TopicPartition, ...] | None = None


class ListReassignmentsReply(Struct, frozen=True):
    """Partitions under reassignment, each with its replicas and those that it adds and removes."""

    under_way: dict[TopicPartition, Assignment]
