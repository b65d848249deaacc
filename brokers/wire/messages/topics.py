"""Declares CreateTopics, DeleteTopics and CreatePartitions, one struct per message for all its versions.

Fields that a version lacks have their defaults; -1 as a number of partitions or replicas means the cluster's default.
"""

from __future__ import annotations

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.primitives import ZERO_ID


class ReplicaAssignment(Struct, frozen=True, gc=False):
    """The requested replicas of one partition, the preferred leader first."""

    partition_index: int
    broker_ids: tuple[int, ...]


class TopicConfig(Struct, frozen=True, gc=False):
    """A requested configuration of the topic; null is refused later, as INVALID_CONFIG."""

    name: str
    value: str | None


class CreatableTopic(Struct, frozen=True):
    """A topic to create."""

    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[ReplicaAssignment, ...]
    configs: tuple[TopicConfig, ...]


class CreateTopicsRequest(Struct, frozen=True):
    """CreateTopics; ``validate_only`` from v1 on."""

    topics: tuple[CreatableTopic, ...]
    timeout_ms: int
    validate_only: bool = False


class CreatedConfig(Struct, frozen=True, gc=False):
    """An effective configuration of a new topic."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False


class CreatedTopic(Struct, frozen=True):
    """The outcome for one topic; from v5 on with its properties, ``configs`` null for unauthorized clients."""

    name: str
    error_code: int = Error.NONE
    error_message: str | None = None
    topic_id: bytes = ZERO_ID
    topic_config_error_code: int = Error.NONE
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[CreatedConfig, ...] | None = ()


class CreateTopicsResponse(Struct, frozen=True):
    """The response to CreateTopics."""

    topics: tuple[CreatedTopic, ...]
    throttle_time_ms: int = 0


class TopicToDelete(Struct, frozen=True, gc=False):
    """A topic by name, or by id with the name null (v6)."""

    name: str | None
    topic_id: bytes


class DeleteTopicsRequest(Struct, frozen=True):
    """DeleteTopics: ``topic_names`` up to v5, ``topics`` in v6."""

    timeout_ms: int
    topic_names: tuple[str, ...] = ()
    topics: tuple[TopicToDelete, ...] = ()


class DeletedTopic(Struct, frozen=True, gc=False):
    """The outcome for one topic."""

    name: str | None
    error_code: int = Error.NONE
    error_message: str | None = None
    topic_id: bytes = ZERO_ID


class DeleteTopicsResponse(Struct, frozen=True):
    """The response to DeleteTopics."""

    responses: tuple[DeletedTopic, ...]
    throttle_time_ms: int = 0


class NewPartitionAssignment(Struct, frozen=True, gc=False):
    """The requested replicas of one new partition."""

    broker_ids: tuple[int, ...]


class GrownTopic(Struct, frozen=True):
    """A topic and its requested total of partitions; ``assignments`` null: the controller places them."""

    name: str
    count: int
    assignments: tuple[NewPartitionAssignment, ...] | None


class CreatePartitionsRequest(Struct, frozen=True):
    """CreatePartitions."""

    topics: tuple[GrownTopic, ...]
    timeout_ms: int
    validate_only: bool


class CreatedPartitions(Struct, frozen=True, gc=False):
    """The outcome for one topic."""

    name: str
    error_code: int = Error.NONE
    error_message: str | None = None


class CreatePartitionsResponse(Struct, frozen=True):
    """The response to CreatePartitions."""

    results: tuple[CreatedPartitions, ...]
    throttle_time_ms: int = 0
