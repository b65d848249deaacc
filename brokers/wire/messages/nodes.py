"""Declares requests that clients send to each node, and the daemon's responses as a node without any data."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.primitives import ZERO_ID


class ListGroupsRequest(Struct, frozen=True):
    """ListGroups, whatever its filters."""


class ListGroupsResponse(Struct, frozen=True):
    """No groups."""

    error_code: int = Error.NONE


class ListTransactionsRequest(Struct, frozen=True):
    """ListTransactions, whatever its filters."""


class ListTransactionsResponse(Struct, frozen=True):
    """No transactions."""

    error_code: int = Error.NONE


class DescribableTopic(Struct, frozen=True):
    """Partitions of one topic."""

    topic: str
    partitions: tuple[int, ...]


class DescribeLogDirsRequest(Struct, frozen=True):
    """DescribeLogDirs; no topics (null) means all replicas."""

    topics: tuple[DescribableTopic, ...] | None = None


class DescribedReplica(Struct, frozen=True, gc=False):
    """A log of a replica; its size is in bytes."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribedTopic(Struct, frozen=True):
    """The replicas of one topic on a log directory."""

    name: str
    partitions: tuple[DescribedReplica, ...]


class LogDir(Struct, frozen=True):
    """A log directory. The daemon's sizes are numbers, not Kafka's -1 (unknown): clients add them up."""

    log_dir: str
    error_code: int = Error.NONE
    total_bytes: int = 0
    usable_bytes: int = 0
    topics: tuple[DescribedTopic, ...] = ()


class DescribeLogDirsResponse(Struct, frozen=True):
    """Log directories. Clients take a response without any for a lack of permission."""

    results: tuple[LogDir, ...]
    error_code: int = Error.NONE


class DescribedResource(Struct, frozen=True):
    """A resource to describe; ``resource_type`` 2 topic, 4 broker, 8 broker logger. No keys (null) means all keys."""

    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None = None


class DescribeConfigsRequest(Struct, frozen=True):
    """DescribeConfigs."""

    resources: tuple[DescribedResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False


class ConfigSynonym(Struct, frozen=True):
    """Another source of the same configuration."""

    name: str
    value: str | None
    source: int


class ConfigEntry(Struct, frozen=True):
    """A configuration; ``is_default`` in v0 alone, ``config_source`` and ``synonyms`` from v1 on."""

    name: str
    value: str | None
    read_only: bool
    is_sensitive: bool
    is_default: bool = False
    config_source: int = -1
    synonyms: tuple[ConfigSynonym, ...] = ()
    config_type: int = 0
    documentation: str | None = None


class DescribedConfigs(Struct, frozen=True):
    """The configurations of one resource."""

    resource_type: int
    resource_name: str
    error_code: int = Error.NONE
    error_message: str | None = None
    configs: tuple[ConfigEntry, ...] = ()


class DescribeConfigsResponse(Struct, frozen=True):
    """The response to DescribeConfigs."""

    results: tuple[DescribedConfigs, ...]
    throttle_time_ms: int = 0


class AlteredConfig(Struct, frozen=True):
    """A configuration and its new value, which may be a secret; ``config_operation`` in IncrementalAlterConfigs."""

    name: str
    value: str | None
    config_operation: int = 0

    def __repr__(self) -> str:
        return f"AlteredConfig(name={self.name!r}, config_operation={self.config_operation})"


class AlteredResource(Struct, frozen=True):
    """A resource to change; ``resource_type`` as in :class:`DescribedResource`."""

    resource_type: int
    resource_name: str
    configs: tuple[AlteredConfig, ...] = ()


class AlterConfigsRequest(Struct, frozen=True):
    """AlterConfigs and IncrementalAlterConfigs."""

    resources: tuple[AlteredResource, ...]
    validate_only: bool = False


class AlteredConfigs(Struct, frozen=True):
    """The outcome for one resource."""

    resource_type: int
    resource_name: str
    error_code: int = Error.NONE
    error_message: str | None = None


class AlterConfigsResponse(Struct, frozen=True):
    """The response to AlterConfigs and IncrementalAlterConfigs."""

    responses: tuple[AlteredConfigs, ...]
    throttle_time_ms: int = 0


class MovedTopic(Struct, frozen=True):
    """Partitions of one topic."""

    name: str
    partitions: tuple[int, ...]


class MovedDir(Struct, frozen=True):
    """The target replicas of one log directory."""

    topics: tuple[MovedTopic, ...]


class AlterReplicaLogDirsRequest(Struct, frozen=True):
    """AlterReplicaLogDirs."""

    dirs: tuple[MovedDir, ...]


class NotMovedPartition(Struct, frozen=True, gc=False):
    """The error of a replica that was not moved."""

    partition_index: int
    error_code: int


class NotMovedTopic(Struct, frozen=True):
    """The outcomes for one topic."""

    topic_name: str
    partitions: tuple[NotMovedPartition, ...]


class AlterReplicaLogDirsResponse(Struct, frozen=True):
    """The response to AlterReplicaLogDirs."""

    results: tuple[NotMovedTopic, ...]


NO_OFFSET: Final = -1
"""Stands for no offset."""


class ProducedPartition(Struct, frozen=True, gc=False):
    """A partition of the request; its records are skipped."""

    index: int


class ProducedTopic(Struct, frozen=True):
    """Partitions of one topic."""

    name: str
    partition_data: tuple[ProducedPartition, ...]


class ProduceRequest(Struct, frozen=True):
    """Produce; with ``acks`` 0 the client expects no response."""

    acks: int
    topic_data: tuple[ProducedTopic, ...]


class PartitionProduceResponse(Struct, frozen=True, gc=False):
    """The error of one partition."""

    index: int
    error_code: int
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1


class TopicProduceResponse(Struct, frozen=True):
    """The outcomes for one topic."""

    name: str
    partition_responses: tuple[PartitionProduceResponse, ...]


class ProduceResponse(Struct, frozen=True):
    """The response to Produce."""

    responses: tuple[TopicProduceResponse, ...]


class FetchedPartition(Struct, frozen=True, gc=False):
    """A requested partition."""

    partition: int


class FetchedTopic(Struct, frozen=True):
    """Partitions of one topic, named up to v12, by id after."""

    partitions: tuple[FetchedPartition, ...]
    topic: str = ""
    topic_id: bytes = ZERO_ID


class FetchRequest(Struct, frozen=True):
    """Fetch; ``session_id`` from v7 on."""

    topics: tuple[FetchedTopic, ...]
    session_id: int = 0


class PartitionFetchResponse(Struct, frozen=True, gc=False):
    """The error of one partition."""

    partition_index: int
    error_code: int
    high_watermark: int = NO_OFFSET
    records: bytes = b""


class TopicFetchResponse(Struct, frozen=True):
    """The outcomes for one topic."""

    partitions: tuple[PartitionFetchResponse, ...]
    topic: str = ""
    topic_id: bytes = ZERO_ID


class FetchResponse(Struct, frozen=True):
    """The response to Fetch; v0 to v6 have no error of their own."""

    responses: tuple[TopicFetchResponse, ...]
    error_code: int = 0
