"""Sends single queries to one broker, for preflight, hand-back and verification."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, Self

from msgspec import Struct

from brokers.transport import Connection, TcpTransport, Transport
from brokers.wire import kio_messages
from brokers.wire.errors import Error, error_name
from brokers.wire.frames import LARGE_BYTES, reason, run_off_loop
from brokers.wire.log_dirs import REPLICAS_MAX, encode_log_dirs, newest_version, read_log_dirs
from brokers.wire.messages import prepare
from brokers.wire.primitives import BadMessage
from brokers.wire.versions import Api
from state_machines.admin_rules.inherited_configs import Setting
from state_machines.model.types import LogDirectory

CLIENT_ID: Final = "regent"
BROKER_RESOURCE: Final = 4
STATIC_SOURCES: Final = frozenset({4, 5})
"""Sources of static settings: the broker's file, and Kafka's default."""
CLIENT_SOFTWARE: Final = {"client_software_name": "regent", "client_software_version": "1"}
VERSIONS: Final = {Api.METADATA: 12, Api.DESCRIBE_CONFIGS: 4, Api.DESCRIBE_CLUSTER: 0, Api.LIST_OFFSETS: 5}
"""Versions in use: every broker from 2.8 on has them. Of DescribeLogDirs the newest one of the broker is in use."""
QUERIES: Final = ((Api.API_VERSIONS, 3), *((api, VERSIONS[api]) for api in (Api.DESCRIBE_CONFIGS, Api.METADATA)))
"""APIs and versions of the queries within a term."""
LATEST: Final = -1
EARLIEST: Final = -2
"""Timestamps that ask for the end or the begin of a log (``ListOffsetsRequest``)."""
CLIENT: Final = -1
"""Id of a replica that is none."""
TOPICS_PER_CALL: Final = 500
"""Topics per Metadata request: reading one response then takes some tens of milliseconds."""


def prepare_queries() -> None:
    """Builds the codecs of the queries within a term: it takes tenths of a second, too long for an event loop."""
    kio_messages.prepare(QUERIES)
    prepare([Api.DESCRIBE_LOG_DIRS])


class BrokerCallFailed(OSError):
    """Raised where a broker cannot be queried, or responds with an error; the text names broker and cause."""


class Node(Struct, frozen=True):
    """A broker in the metadata of the queried listener."""

    id: int
    host: str
    port: int
    rack: str | None


class PartitionMetadata(Struct, frozen=True, gc=False):
    """A partition in a broker's metadata cache. ``error`` 5: no leader; 9: a replica is not available."""

    error: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicMetadata(Struct, frozen=True):
    """A topic in a broker's metadata cache; ``topic_id`` is None below IBP 2.8."""

    error: int
    topic_id: bytes | None
    partitions: Mapping[int, PartitionMetadata]


class ClusterMetadata(Struct, frozen=True):
    """A broker's metadata cache. ``controller_id`` is the id in its last UpdateMetadata, listed as a node or not."""

    cluster_id: str | None
    controller_id: int
    nodes: tuple[Node, ...]
    topics: Mapping[str, TopicMetadata]


class BrokerClient:
    """A connection for queries: ``async with await BrokerClient.connect(host, port) as broker``."""

    def __init__(self, connection: Connection, address: str, timeout_s: float) -> None:
        self._connection = connection
        self._address = address
        self._timeout_s = timeout_s
        self._correlation = 0
        self.api_versions: dict[int, tuple[int, int]] = {}

    @classmethod
    async def connect(
        cls, host: str, port: int, timeout_s: float = 10.0, transport: Transport | None = None
    ) -> BrokerClient:
        """Connects and queries the API versions; raises :class:`BrokerCallFailed`. ``timeout_s`` is per step."""
        address = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout_s):
                connection = await (transport or TcpTransport()).connect(host, port, lambda: None)
        except TimeoutError:
            raise BrokerCallFailed(f"{address} does not accept a connection within {timeout_s:g} s") from None
        except OSError as error:
            raise BrokerCallFailed(f"{address} cannot be reached: {reason(error)}") from error
        client = cls(connection, address, timeout_s)
        try:
            await client._query_versions()
        except BaseException:
            client.close()
            raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Returns the broker's metadata of ``topics`` (None: all), queried in batches so that no response is huge."""
        if topics is None:
            response = await self._metadata(None)
            return await run_off_loop(partial(_cluster_metadata, response), LARGE_BYTES + 1)
        names = list(topics)
        found = [await self._metadata(names[i : i + TOPICS_PER_CALL]) for i in range(0, len(names), TOPICS_PER_CALL)]
        parts = [_cluster_metadata(response) for response in found or [await self._metadata([])]]
        merged = {name: topic for part in parts for name, topic in part.topics.items()}
        return ClusterMetadata(parts[-1].cluster_id, parts[-1].controller_id, parts[-1].nodes, merged)

    async def _metadata(self, topics: list[str] | None) -> Any:
        version = VERSIONS[Api.METADATA]
        wanted = None
        if topics is not None:
            kind = "MetadataRequestTopic"
            wanted = tuple(
                kio_messages.nested(Api.METADATA, version, kind, topic_id=None, name=name) for name in topics
            )
        return await self._query(
            Api.METADATA, topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )

    async def broker_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        """Returns the broker's effective settings (None: all); sensitive values are None."""
        return {config.name: config.value for config in await self._configs(broker_id, names)}

    async def broker_settings(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, Setting]:
        """Returns the broker's effective settings with their sources."""
        found = await self._configs(broker_id, names)
        return {config.name: Setting(config.value, int(config.config_source)) for config in found}

    async def static_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        """Returns the broker's settings of its file and Kafka's defaults, without dynamic ones."""
        found = await self._configs(broker_id, names, synonyms=True)
        return {config.name: _static_value(config) for config in found}

    async def _configs(self, broker_id: int, names: Iterable[str] | None, *, synonyms: bool = False) -> Any:
        resource = kio_messages.nested(
            Api.DESCRIBE_CONFIGS,
            VERSIONS[Api.DESCRIBE_CONFIGS],
            "DescribeConfigsResource",
            resource_type=BROKER_RESOURCE,
            resource_name=str(broker_id),
            configuration_keys=None if names is None else tuple(names),
        )
        response = await self._query(
            Api.DESCRIBE_CONFIGS, resources=(resource,), include_synonyms=synonyms, include_documentation=False
        )
        result = response.results[0]
        self._check(Api.DESCRIBE_CONFIGS, result.error_code, result.error_message)
        return result.configs

    async def log_dirs(self) -> dict[str, int]:
        """Returns the error code of each log directory, 0 where it is online; 56 is offline."""
        return {directory.path: directory.error for directory in await self.replica_logs({})}

    async def replica_logs(
        self, partitions: Mapping[str, Collection[int]] | None, replicas_max: int = REPLICAS_MAX
    ) -> tuple[LogDirectory, ...]:
        """Returns the log directories with the logs of ``partitions`` by topic; None: all that the broker has.

        A response of more than ``replicas_max`` replicas is refused, as is one above the transport's bound of bytes.
        """
        api = Api.DESCRIBE_LOG_DIRS
        offered = self.api_versions.get(api, (0, -1))
        version = newest_version(offered)
        if version is None:
            raise BrokerCallFailed(
                f"{self._address} offers {api.name} v{offered[0]} to v{offered[1]} where one of v0 to v4 is needed"
            )
        self._correlation += 1
        frame = await self._exchange(api, encode_log_dirs(version, self._correlation, CLIENT_ID, partitions))
        read = partial(read_log_dirs, version, frame, self._correlation, replicas_max)
        try:
            error, directories = await run_off_loop(read, len(frame))
        except BadMessage as malformed:
            self.close()
            raise BrokerCallFailed(f"{self._address}: response to {api.name} v{version}: {malformed}") from malformed
        if error == Error.CLUSTER_AUTHORIZATION_FAILED or not (error or directories):
            raise BrokerCallFailed(
                f"{self._address} lists no log directory: allow the daemon's principal Describe on the cluster"
            )
        self._check(api, error, None)
        return directories

    async def offsets(
        self, partitions: Mapping[str, Collection[int]], *, earliest: bool = False
    ) -> dict[tuple[str, int], int | str]:
        """Returns the end offsets of partitions that the broker leads, by topic and number; or the error's name.

        The end is the high watermark. ``earliest``: the first offsets instead.
        """
        version, when = VERSIONS[Api.LIST_OFFSETS], EARLIEST if earliest else LATEST
        wanted = tuple(
            kio_messages.nested(
                Api.LIST_OFFSETS,
                version,
                "ListOffsetsTopic",
                name=topic,
                partitions=tuple(
                    kio_messages.nested(
                        Api.LIST_OFFSETS, version, "ListOffsetsPartition", partition_index=p, timestamp=when
                    )
                    for p in numbers
                ),
            )
            for topic, numbers in partitions.items()
        )
        response = await self._query(Api.LIST_OFFSETS, replica_id=CLIENT, isolation_level=0, topics=wanted)
        return {
            (topic.name, p.partition_index): p.offset if p.error_code == Error.NONE else error_name(p.error_code)
            for topic in response.topics
            for p in topic.partitions
        }

    async def describe_cluster(self) -> ClusterMetadata:
        """Returns nodes and controller as admin clients see them; -1 for a controller that is no node."""
        response = await self._query(Api.DESCRIBE_CLUSTER, include_cluster_authorized_operations=False)
        self._check(Api.DESCRIBE_CLUSTER, response.error_code, response.error_message)
        nodes = tuple(Node(n.broker_id, n.host, n.port, n.rack) for n in response.brokers)
        return ClusterMetadata(response.cluster_id, response.controller_id, nodes, {})

    async def _query_versions(self) -> None:
        """Sends ApiVersions v3; a broker that does not know it responds in v0."""
        correlation, request = self._request(Api.API_VERSIONS, 3, CLIENT_SOFTWARE)
        frame = await self._exchange(Api.API_VERSIONS, request)
        version = 0 if frame[4:6] == Error.UNSUPPORTED_VERSION.to_bytes(2, "big") else 3
        response = self._decode(Api.API_VERSIONS, version, frame, correlation)
        if version == 3:
            self._check(Api.API_VERSIONS, response.error_code, None)
        self.api_versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}

    async def _query(self, api: Api, **fields: object) -> Any:
        version = VERSIONS[api]
        first, last = self.api_versions.get(api, (0, -1))
        if not first <= version <= last:
            raise BrokerCallFailed(
                f"{self._address} offers {api.name} v{first} to v{last} where v{version} is needed: "
                "is it a Kafka broker of 2.8 or later?"
            )
        correlation, request = self._request(api, version, fields)
        frame = await self._exchange(api, request)
        read = partial(kio_messages.decode_response, api, version, frame, correlation)
        try:
            return await run_off_loop(read, len(frame))
        except BadMessage as error:
            raise self._malformed(error) from error

    def _request(self, api: Api, version: int, fields: Mapping[str, object]) -> tuple[int, bytes]:
        self._correlation += 1
        return self._correlation, kio_messages.encode_request(api, version, self._correlation, CLIENT_ID, **fields)

    async def _exchange(self, api: Api, request: bytes) -> bytes:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._connection.exchange([request])
        except TimeoutError:
            why = f"{self._address} does not respond to {api.name} within {self._timeout_s:g} s"
            raise BrokerCallFailed(why) from None
        except OSError as error:
            raise BrokerCallFailed(f"{self._address} does not respond to {api.name}: {reason(error)}") from error

    def _decode(self, api: Api, version: int, frame: bytes, correlation: int) -> Any:
        try:
            return kio_messages.decode_response(api, version, frame, correlation)
        except BadMessage as error:
            raise self._malformed(error) from error

    def _malformed(self, error: BadMessage) -> BrokerCallFailed:
        self.close()
        return BrokerCallFailed(f"{self._address}: {error}")

    def _check(self, api: Api, error: int, message: str | None) -> None:
        if error != Error.NONE:
            detail = f": {message}" if message else ""
            raise BrokerCallFailed(f"{self._address} responded to {api.name} with {error_name(error)}{detail}")


def _static_value(config: Any) -> str | None:
    """Returns the value without dynamic settings: the one of the broker's file, else the default."""
    value: str | None = next((s.value for s in config.synonyms or () if s.source in STATIC_SOURCES), config.value)
    return value


def _cluster_metadata(response: Any) -> ClusterMetadata:
    nodes = tuple(Node(n.node_id, n.host, n.port, n.rack) for n in response.brokers)
    topics = {t.name: _topic_metadata(t) for t in response.topics if t.name is not None}
    return ClusterMetadata(response.cluster_id, response.controller_id, nodes, topics)


def _topic_metadata(topic: Any) -> TopicMetadata:
    partitions = {
        p.partition_index: PartitionMetadata(
            int(p.error_code), p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes, p.offline_replicas
        )
        for p in topic.partitions
    }
    return TopicMetadata(int(topic.error_code), topic.topic_id.bytes if topic.topic_id else None, partitions)
