"""Declares ApiVersions, Metadata and DescribeCluster: a broker responds, the admin endpoint changes a few fields."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

NO_CONTROLLER: Final = -1
"""The controller id in a response without a controller."""


class ApiVersion(Struct, frozen=True):
    """The offered versions of one API."""

    api_key: int
    min_version: int
    max_version: int


class SupportedFeature(Struct, frozen=True):
    """A cluster feature and the levels that the broker knows."""

    name: str
    min_version: int
    max_version: int


class FinalizedFeature(Struct, frozen=True):
    """A cluster feature and its finalized levels."""

    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(Struct, frozen=True):
    """The APIs and features of a broker; features from v3 on."""

    error_code: int
    api_keys: tuple[ApiVersion, ...]
    throttle_time_ms: int = 0
    supported_features: tuple[SupportedFeature, ...] = ()
    finalized_features_epoch: int = -1
    finalized_features: tuple[FinalizedFeature, ...] = ()
    zk_migration_ready: bool = False


class MetadataBroker(Struct, frozen=True):
    """A node as clients see it; ``rack`` from v1 on."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataHead(Struct, frozen=True):
    """A Metadata response up to its topics."""

    brokers: tuple[MetadataBroker, ...]
    throttle_time_ms: int = 0
    cluster_id: str | None = None
    controller_id: int = NO_CONTROLLER


class DescribeClusterBroker(Struct, frozen=True):
    """A node as admin clients see it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class DescribeClusterResponse(Struct, frozen=True):
    """Nodes and controller; ``endpoint_type`` 1 means brokers (v1)."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    cluster_id: str
    controller_id: int
    brokers: tuple[DescribeClusterBroker, ...]
    cluster_authorized_operations: int
    endpoint_type: int = 1
