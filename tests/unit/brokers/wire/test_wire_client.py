"""Single queries to a broker, whose responses kio writes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from brokers.client import BrokerCallFailed, BrokerClient, Node, PartitionMetadata, TopicMetadata
from brokers.wire import kio_messages
from brokers.wire.primitives import BadMessage
from brokers.wire.versions import Api
from state_machines.admin_rules.inherited_configs import Setting
from state_machines.model.types import LogDirectory, ReplicaLog
from tests.kit.wire import part, read_request, to_uuid, write_response

TOPIC_ID = bytes(range(1, 17))
NO_TIME = timedelta()
OFFERED = {2: (0, 9), 3: (0, 12), 18: (0, 4), 32: (0, 4), 35: (0, 4), 60: (0, 1)}


PARTITION: dict[str, Any] = {
    "error_code": ErrorCode.leader_not_available,
    "partition_index": 4,
    "leader_id": -1,
    "leader_epoch": 6,
    "replica_nodes": (1, 2),
    "isr_nodes": (2,),
    "offline_replicas": (1,),
}
CONFIGS = {"inter.broker.protocol.version": "3.9-IV0", "ssl.key.password": None}


class Broker:
    """Responds to queries."""

    def __init__(self) -> None:
        self.offered = dict(OFFERED)
        self.requests: list[Any] = []
        self.topics = {f"t{i}": TOPIC_ID for i in range(3)}
        self.config_error = self.versions_error = ErrorCode.none
        self.synonyms: list[tuple[str, int]] = []
        self.dirs = {"/a": ErrorCode.none, "/b": ErrorCode.kafka_storage_error}
        self.dirs_error = ErrorCode.none
        self.versions_max = 4
        self.garble: Callable[[bytes], bytes] = lambda frame: frame
        self.mute = False

    def respond(self, frame: bytes) -> bytes:
        """Returns the response to a request."""
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        if key == Api.API_VERSIONS and version > self.versions_max:
            return self._versions(0, int.from_bytes(frame[4:8], "big"), ErrorCode.unsupported_version)
        header, entity = read_request(frame)
        self.requests.append(entity)
        if key == Api.API_VERSIONS:
            return self._versions(version, header.correlation_id, self.versions_error)
        fields = {
            Api.METADATA: self._metadata,
            Api.DESCRIBE_CONFIGS: self._configs,
            Api.DESCRIBE_LOG_DIRS: self._log_dirs,
            Api.DESCRIBE_CLUSTER: self._cluster,
            Api.LIST_OFFSETS: self._offsets,
        }[Api(key)](partial(part, key, version, response=True), entity)
        return write_response(key, version, header.correlation_id, throttle_time=NO_TIME, **fields)

    def _versions(self, version: int, correlation: int, error: ErrorCode) -> bytes:
        keys = tuple(
            part(18, version, "ApiVersion", response=True, api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.offered.items()
        )
        fields: dict[str, Any] = {"throttle_time": NO_TIME} if version >= 1 else {}
        return write_response(18, version, correlation, error_code=error, api_keys=keys, **fields)

    def _metadata(self, part: Callable[..., Any], entity: Any) -> dict[str, Any]:
        assert not entity.allow_auto_topic_creation
        wanted = self.topics if entity.topics is None else [topic.name for topic in entity.topics]
        known, unknown = ErrorCode.none, ErrorCode.unknown_topic_or_partition
        partition = part("MetadataResponsePartition", **PARTITION)
        topics = tuple(
            part(
                "MetadataResponseTopic",
                error_code=known if name in self.topics else unknown,
                name=name,
                topic_id=to_uuid(self.topics.get(name)),
                is_internal=False,
                partitions=(partition,) if name in self.topics else (),
            )
            for name in wanted
        )
        node = part("MetadataResponseBroker", node_id=1, host="b1", port=9092, rack="r1")
        return {"brokers": (node,), "cluster_id": "cluster", "controller_id": 1_000_001, "topics": topics}

    def _configs(self, part: Callable[..., Any], entity: Any) -> dict[str, Any]:
        [resource] = entity.resources
        synonyms = tuple(
            part("DescribeConfigsSynonym", name="x", value=value, source=source) for value, source in self.synonyms
        )
        same = {"read_only": True, "synonyms": synonyms, "documentation": None, "config_source": 4}
        configs = tuple(
            part("DescribeConfigsResourceResult", name=name, value=value, is_sensitive=value is None, **same)
            for name, value in CONFIGS.items()
            if resource.configuration_keys is None or name in resource.configuration_keys
        )
        message = "not for you" if self.config_error else None
        kind, name = resource.resource_type, resource.resource_name
        fields = {"error_code": self.config_error, "error_message": message, "configs": configs}
        return {"results": (part("DescribeConfigsResult", resource_type=kind, resource_name=name, **fields),)}

    def _log_dirs(self, part: Callable[..., Any], entity: Any) -> dict[str, Any]:
        log = part("DescribeLogDirsPartition", partition_index=4, partition_size=7, offset_lag=2, is_future_key=False)
        asked = () if entity.topics is None else entity.topics
        topics = tuple(part("DescribeLogDirsTopic", name=topic.topic, partitions=(log,)) for topic in asked)
        results = tuple(
            part(
                "DescribeLogDirsResult",
                error_code=error,
                log_dir=path,
                topics=() if error else topics,
                total_bytes=-1,
                usable_bytes=-1,
            )
            for path, error in self.dirs.items()
        )
        newest = self.offered[Api.DESCRIBE_LOG_DIRS][1]
        return {"results": results} | ({"error_code": self.dirs_error} if newest >= 3 else {})

    def _offsets(self, part: Callable[..., Any], entity: Any) -> dict[str, Any]:
        assert (entity.replica_id, entity.isolation_level) == (-1, 0)

        def found(asked: Any) -> Any:
            error = ErrorCode.not_leader_or_follower if asked.partition_index == 9 else ErrorCode.none
            return part(
                "ListOffsetsPartitionResponse",
                partition_index=asked.partition_index,
                error_code=error,
                offset=100 + asked.timestamp,
            )

        topics = tuple(
            part("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(map(found, topic.partitions)))
            for topic in entity.topics
        )
        return {"topics": topics}

    def _cluster(self, part: Callable[..., Any], entity: Any) -> dict[str, Any]:
        node = part("DescribeClusterBroker", broker_id=2, host="b2", port=9092, rack=None)
        fields = {"error_code": ErrorCode.none, "error_message": None, "controller_id": -1}
        return {"cluster_id": "cluster", "brokers": (node,), **fields}


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[BrokerClient]:
    """Connects to ``broker``."""
    async with listening(broker) as port, await BrokerClient.connect("127.0.0.1", port) as client:
        yield client


@asynccontextmanager
async def listening(broker: Broker) -> AsyncIterator[int]:
    """Serves ``broker`` on a free port."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = broker.garble(broker.respond(await reader.readexactly(size)))
                if not broker.mute:
                    writer.write(len(frame).to_bytes(4, "big") + frame)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()


async def test_queries_return_versions_metadata_settings_and_the_cluster() -> None:
    async with connected(Broker()) as client:
        assert client.api_versions == OFFERED
        metadata = await client.metadata()
        assert (metadata.cluster_id, metadata.controller_id) == ("cluster", 1_000_001)
        assert metadata.nodes == (Node(1, "b1", 9092, "r1"),)
        assert metadata.topics["t2"] == TopicMetadata(0, TOPIC_ID, {4: PartitionMetadata(5, -1, 6, (1, 2), (2,), (1,))})
        assert await client.broker_configs(1) == CONFIGS
        assert await client.broker_configs(1, ["ssl.key.password"]) == {"ssl.key.password": None}
        cluster = await client.describe_cluster()
        assert (cluster.controller_id, cluster.nodes) == (-1, (Node(2, "b2", 9092, None),))


async def test_metadata_of_many_topics_is_queried_in_batches() -> None:
    broker = Broker()
    broker.topics = {f"t{i}": TOPIC_ID for i in range(1_200)}
    async with connected(broker) as client:
        metadata = await client.metadata([*broker.topics, "unknown"])
        assert len(metadata.topics) == 1_201
        assert metadata.topics["unknown"] == TopicMetadata(3, None, {})
        assert [len(entity.topics) for entity in broker.requests[1:]] == [500, 500, 201]
        assert (await client.metadata([])).nodes == metadata.nodes


async def test_a_broker_that_refuses_api_versions_v3_gives_its_versions_in_v0() -> None:
    broker = Broker()
    broker.versions_max = 2
    async with connected(broker) as client:
        assert client.api_versions == OFFERED


async def test_an_error_in_the_response_to_api_versions_ends_the_connection() -> None:
    broker = Broker()
    broker.versions_error = ErrorCode.cluster_authorization_failed
    with pytest.raises(BrokerCallFailed, match=r"API_VERSIONS with CLUSTER_AUTHORIZATION_FAILED \(31\)"):
        async with connected(broker):
            pass


@pytest.mark.parametrize(
    ("synonyms", "static"),
    [
        ([], "3.9-IV0"),
        ([("dynamic", 2), ("of the file", 4), ("default", 5)], "of the file"),
        ([("dynamic", 2), ("of all brokers", 3), ("default", 5)], "default"),
        ([("dynamic", 2)], "3.9-IV0"),
    ],
)
async def test_static_settings_are_those_of_the_file_or_else_the_default(
    synonyms: list[tuple[str, int]], static: str
) -> None:
    broker, name = Broker(), "inter.broker.protocol.version"
    broker.synonyms = synonyms
    async with connected(broker) as client:
        assert await client.static_configs(1, [name]) == {name: static}
        assert await client.broker_settings(1, [name]) == {name: Setting("3.9-IV0", 4)}
        assert [entity.include_synonyms for entity in broker.requests[1:]] == [True, False]


async def test_log_directories_are_listed_with_their_errors_and_none_means_no_permission() -> None:
    broker = Broker()
    async with connected(broker) as client:
        assert await client.log_dirs() == {"/a": 0, "/b": 56}
        broker.dirs = {}
        with pytest.raises(BrokerCallFailed, match="allow the daemon's principal Describe on the cluster"):
            await client.log_dirs()


@pytest.mark.parametrize("newest", range(5))
async def test_logs_are_listed_by_the_newest_version_of_the_broker(newest: int) -> None:
    broker = Broker()
    broker.offered[Api.DESCRIBE_LOG_DIRS] = (0, newest)
    async with connected(broker) as client:
        logs = tuple(ReplicaLog(topic, 4, 7, 2, False) for topic in ("t", "u"))
        found = await client.replica_logs({"t": [4], "u": (4, 5)})
        assert found == (LogDirectory("/a", 0, logs), LogDirectory("/b", 56))
        assert await client.replica_logs(None) == (LogDirectory("/a", 0), LogDirectory("/b", 56))
        assert [type(entity).__version__ for entity in broker.requests[1:]] == [newest, newest]
        assert [{t.topic: t.partitions for t in entity.topics or ()} for entity in broker.requests[1:]] == [
            {"t": (4,), "u": (4, 5)},
            {},
        ]
        assert broker.requests[2].topics is None


async def test_a_refused_or_too_long_list_of_logs_is_reported() -> None:
    broker = Broker()
    async with connected(broker) as client:
        broker.dirs_error = ErrorCode.cluster_authorization_failed
        with pytest.raises(BrokerCallFailed, match="allow the daemon's principal Describe on the cluster"):
            await client.replica_logs(None)
        broker.dirs_error = ErrorCode.unknown_server_error
        with pytest.raises(BrokerCallFailed, match=r"to DESCRIBE_LOG_DIRS with UNKNOWN_SERVER_ERROR \(-1\)"):
            await client.replica_logs(None)
        broker.dirs_error = ErrorCode.none
        assert len(await client.replica_logs({"t": [4]}, replicas_max=4)) == 2, "two directories, a topic, a replica"
        with pytest.raises(BrokerCallFailed, match="more array items"):
            await client.replica_logs({"t": [4]}, replicas_max=3)
        with pytest.raises(BrokerCallFailed, match="does not respond"):
            await client.replica_logs({"t": [4]})


async def test_a_list_of_many_logs_is_read_whole() -> None:
    broker = Broker()
    async with connected(broker) as client:
        topics = {f"topic-{i}": [4] for i in range(2_000)}
        [directory, _] = await client.replica_logs(topics)
        assert [log.topic for log in directory.logs] == list(topics)


async def test_a_broker_without_a_known_version_of_the_list_of_logs_is_named() -> None:
    broker = Broker()
    broker.offered[Api.DESCRIBE_LOG_DIRS] = (5, 6)
    async with connected(broker) as client:
        with pytest.raises(BrokerCallFailed, match="offers DESCRIBE_LOG_DIRS v5 to v6 where one of v0 to v4 is needed"):
            await client.replica_logs(None)


async def test_a_version_that_a_broker_does_not_offer_is_named() -> None:
    broker = Broker()
    broker.offered[3] = (0, 8)
    async with connected(broker) as client:
        with pytest.raises(BrokerCallFailed, match="offers METADATA v0 to v8 where v12 is needed"):
            await client.metadata()


async def test_an_error_in_a_response_is_named() -> None:
    broker = Broker()
    broker.config_error = ErrorCode.cluster_authorization_failed
    async with connected(broker) as client:
        with pytest.raises(BrokerCallFailed, match=r"CLUSTER_AUTHORIZATION_FAILED \(31\): not for you"):
            await client.broker_configs(1)


async def test_a_refused_connection_is_reported() -> None:
    async with listening(Broker()) as port:
        pass
    with pytest.raises(BrokerCallFailed, match=f"127.0.0.1:{port} cannot be reached: Connection refused"):
        await BrokerClient.connect("127.0.0.1", port)


async def test_a_missing_response_is_reported() -> None:
    broker = Broker()
    broker.mute = True
    async with listening(broker) as port:
        with pytest.raises(BrokerCallFailed, match=r"does not respond to API_VERSIONS within 0\.1 s"):
            await BrokerClient.connect("127.0.0.1", port, timeout_s=0.1)


@pytest.mark.parametrize(
    "garble",
    [
        lambda frame: frame[:-1],
        lambda frame: frame + b"\0",
        lambda frame: b"\0\0\0\x63" + frame[4:],
        lambda frame: frame[:2],
        lambda frame: b"",
    ],
)
async def test_malformed_responses_are_reported_with_the_address(garble: Callable[[bytes], bytes]) -> None:
    broker = Broker()
    async with connected(broker) as client:
        broker.garble = garble
        with pytest.raises(BrokerCallFailed, match=r"127\.0\.0\.1:"):
            await client.metadata()


def test_bytes_without_a_request_never_reach_the_native_reader() -> None:
    hostile = bytes.fromhex("00000007 00 00000000 ffffffff0f")
    with pytest.raises(BadMessage, match="response to request 7 instead of request 8"):
        kio_messages.decode_response(Api.METADATA, 12, hostile, 8)


def test_kio_is_imported_late_and_by_one_module() -> None:
    program = (
        "import sys, brokers.outbound.channels, brokers.listener.controller_listener, brokers.client;"
        "assert not any(name.split('.')[0] == 'kio' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_offsets_are_those_of_the_end_or_of_the_begin_and_an_error_is_one_partitions() -> None:
    async with connected(Broker()) as client:
        last = await client.offsets({"t0": [0, 9], "t1": [3]})
        first = await client.offsets({"t0": [0]}, earliest=True)
    assert last == {("t0", 0): 99, ("t0", 9): "NOT_LEADER_OR_FOLLOWER (6)", ("t1", 3): 99}
    assert first == {("t0", 0): 98}
