"""Declares ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from brokers.wire.errors import Error

PREFERRED: Final = 0
"""The election type of a request that is older than the field."""


class TopicPartitions(Struct, frozen=True, gc=False):
    """Partitions of a topic that need an election."""

    topic: str
    partitions: tuple[int, ...]


class ElectLeadersRequest(Struct, frozen=True):
    """ElectLeaders; ``topic_partitions`` null: all. ``election_type`` 0 preferred, 1 unclean (from v1 on)."""

    topic_partitions: tuple[TopicPartitions, ...] | None
    timeout_ms: int
    election_type: int = PREFERRED


class ElectedPartition(Struct, frozen=True, gc=False):
    """The outcome for one partition."""

    partition_id: int
    error_code: int = Error.NONE
    error_message: str | None = None


class ElectedTopic(Struct, frozen=True):
    """The outcomes for one topic."""

    topic: str
    partition_result: tuple[ElectedPartition, ...]


class ElectLeadersResponse(Struct, frozen=True):
    """The response to ElectLeaders; v0 has no error of its own."""

    replica_election_results: tuple[ElectedTopic, ...]
    error_code: int = Error.NONE
    throttle_time_ms: int = 0


class ReassignedPartition(Struct, frozen=True, gc=False):
    """The target replicas of a partition; ``replicas`` null cancels its reassignment."""

    partition_index: int
    replicas: tuple[int, ...] | None


class ReassignedTopic(Struct, frozen=True):
    """Partitions of a topic to reassign."""

    name: str
    partitions: tuple[ReassignedPartition, ...]


class AlterPartitionReassignmentsRequest(Struct, frozen=True):
    """AlterPartitionReassignments."""

    timeout_ms: int
    topics: tuple[ReassignedTopic, ...]


class ReassignmentOutcome(Struct, frozen=True, gc=False):
    """The outcome for one partition: its reassignment began or was cancelled, or an error."""

    partition_index: int
    error_code: int = Error.NONE
    error_message: str | None = None


class TopicReassignmentOutcome(Struct, frozen=True):
    """The outcomes for one topic."""

    name: str
    partitions: tuple[ReassignmentOutcome, ...]


class AlterPartitionReassignmentsResponse(Struct, frozen=True):
    """The response to AlterPartitionReassignments."""

    responses: tuple[TopicReassignmentOutcome, ...] = ()
    error_code: int = Error.NONE
    error_message: str | None = None
    throttle_time_ms: int = 0


class ListedTopic(Struct, frozen=True, gc=False):
    """Partitions of a topic whose reassignments are requested."""

    name: str
    partition_indexes: tuple[int, ...]


class ListPartitionReassignmentsRequest(Struct, frozen=True):
    """ListPartitionReassignments; ``topics`` null: all."""

    timeout_ms: int
    topics: tuple[ListedTopic, ...] | None


class OngoingReassignment(Struct, frozen=True, gc=False):
    """A partition under reassignment."""

    partition_index: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class OngoingTopic(Struct, frozen=True):
    """Reassignments of one topic."""

    name: str
    partitions: tuple[OngoingReassignment, ...]


class ListPartitionReassignmentsResponse(Struct, frozen=True):
    """The response to ListPartitionReassignments."""

    topics: tuple[OngoingTopic, ...] = ()
    error_code: int = Error.NONE
    error_message: str | None = None
    throttle_time_ms: int = 0
