"""Calls that clients send to each node: what the daemon, which is a node without any data, answers of itself."""

from __future__ import annotations

from msgspec import Struct

from brokers.wire.errors import Error


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


class DescribeLogDirsRequest(Struct, frozen=True):
    """DescribeLogDirs, whatever its partitions."""


class LogDir(Struct, frozen=True):
    """A log directory without replicas."""

    log_dir: str
    error_code: int = Error.NONE


class DescribeLogDirsResponse(Struct, frozen=True):
    """Log directories. A client takes an answer without any for a lack of permission."""

    results: tuple[LogDir, ...]
    error_code: int = Error.NONE


class ConfigResource(Struct, frozen=True):
    """What has configurations; ``resource_type`` 2 topic, 4 broker, 8 broker logger."""

    resource_type: int
    resource_name: str


class DescribeConfigsRequest(Struct, frozen=True):
    """DescribeConfigs."""

    resources: tuple[ConfigResource, ...]


class DescribedConfigs(Struct, frozen=True):
    """No configurations."""

    resource_type: int
    resource_name: str
    error_code: int = Error.NONE
    error_message: str | None = None


class DescribeConfigsResponse(Struct, frozen=True):
    """The answer to DescribeConfigs."""

    results: tuple[DescribedConfigs, ...]


class AlterConfigsRequest(Struct, frozen=True):
    """AlterConfigs and IncrementalAlterConfigs."""

    resources: tuple[ConfigResource, ...]


class AlteredConfigs(Struct, frozen=True):
    """Nothing went wrong."""

    resource_type: int
    resource_name: str
    error_code: int = Error.NONE
    error_message: str | None = None


class AlterConfigsResponse(Struct, frozen=True):
    """The answer to AlterConfigs and IncrementalAlterConfigs."""

    responses: tuple[AlteredConfigs, ...]


class MovedTopic(Struct, frozen=True):
    """Partitions of one topic."""

    name: str
    partitions: tuple[int, ...]


class MovedDir(Struct, frozen=True):
    """What is to be in one log directory."""

    topics: tuple[MovedTopic, ...]


class AlterReplicaLogDirsRequest(Struct, frozen=True):
    """AlterReplicaLogDirs."""

    dirs: tuple[MovedDir, ...]


class NotMovedPartition(Struct, frozen=True, gc=False):
    """Why a replica was not moved."""

    partition_index: int
    error_code: int


class NotMovedTopic(Struct, frozen=True):
    """Outcomes of one topic."""

    topic_name: str
    partitions: tuple[NotMovedPartition, ...]


class AlterReplicaLogDirsResponse(Struct, frozen=True):
    """The answer to AlterReplicaLogDirs."""

    results: tuple[NotMovedTopic, ...]
