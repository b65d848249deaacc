"""One-off questions to a broker, answered by kio as a broker would."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from brokers.client import BrokerCallFailed, BrokerClient, Node, PartitionMetadata, TopicMetadata
from brokers.wire import kio_messages
from brokers.wire.primitives import Malformed
from brokers.wire.versions import Api
from tests.core.wire_kit import part, read_request, to_uuid, write_response

TOPIC_ID = bytes(range(1, 17))
NO_TIME = timedelta()
OFFERED = {3: (0, 12), 18: (0, 4), 32: (0, 4), 60: (0, 1)}


class Broker:
    """Answers what the client asks."""

    def __init__(self) -> None:
        self.offered = dict(OFFERED)
        self.asked: list[Any] = []
        self.topics = {f"t{i}": TOPIC_ID for i in range(3)}
        self.config_error = ErrorCode.none
        self.versions_max = 4
        self.garble: Callable[[bytes], bytes] = lambda frame: frame
        self.answers = True

    def answer(self, frame: bytes) -> bytes:
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        if key == Api.API_VERSIONS and version > self.versions_max:
            return self._versions(0, int.from_bytes(frame[4:8], "big"), ErrorCode.unsupported_version)
        header, entity = read_request(frame)
        self.asked.append(entity)
        match key:
            case Api.API_VERSIONS:
                return self._versions(version, header.correlation_id, ErrorCode.none)
            case Api.METADATA:
                return self._metadata(version, header.correlation_id, entity)
            case Api.DESCRIBE_CONFIGS:
                return self._configs(version, header.correlation_id, entity)
            case _:
                return self._cluster(version, header.correlation_id)

    def _versions(self, version: int, correlation: int, error: ErrorCode) -> bytes:
        keys = tuple(
            part(18, version, "ApiVersion", response=True, api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.offered.items()
        )
        fields: dict[str, Any] = {"error_code": error, "api_keys": keys}
        if version >= 1:
            fields["throttle_time"] = NO_TIME
        return write_response(18, version, correlation, **fields)

    def _metadata(self, version: int, correlation: int, entity: Any) -> bytes:
        wanted = self.topics if entity.topics is None else {topic.name: None for topic in entity.topics}
        assert not entity.allow_auto_topic_creation
        partition = part(
            3,
            version,
            "MetadataResponsePartition",
            response=True,
            error_code=ErrorCode.leader_not_available,
            partition_index=4,
            leader_id=-1,
            leader_epoch=6,
            replica_nodes=(1, 2),
            isr_nodes=(2,),
            offline_replicas=(1,),
        )
        topics = tuple(
            part(
                3,
                version,
                "MetadataResponseTopic",
                response=True,
                error_code=ErrorCode.none if name in self.topics else ErrorCode.unknown_topic_or_partition,
                name=name,
                topic_id=to_uuid(self.topics.get(name)),
                is_internal=False,
                partitions=(partition,) if name in self.topics else (),
            )
            for name in wanted
        )
        node = part(3, version, "MetadataResponseBroker", response=True, node_id=1, host="b1", port=9092, rack="r1")
        return write_response(
            3,
            version,
            correlation,
            throttle_time=NO_TIME,
            brokers=(node,),
            cluster_id="cluster",
            controller_id=1_000_001,
            topics=topics,
        )

    def _configs(self, version: int, correlation: int, entity: Any) -> bytes:
        resource = entity.resources[0]
        values = {"inter.broker.protocol.version": "3.9-IV0", "ssl.key.password": None}
        configs = tuple(
            part(
                32,
                version,
                "DescribeConfigsResourceResult",
                response=True,
                name=name,
                value=value,
                read_only=True,
                is_sensitive=value is None,
                synonyms=(),
                documentation=None,
            )
            for name, value in values.items()
            if resource.configuration_keys is None or name in resource.configuration_keys
        )
        result = part(
            32,
            version,
            "DescribeConfigsResult",
            response=True,
            error_code=self.config_error,
            error_message="not for you" if self.config_error else None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=configs,
        )
        return write_response(32, version, correlation, throttle_time=NO_TIME, results=(result,))

    def _cluster(self, version: int, correlation: int) -> bytes:
        node = part(60, version, "DescribeClusterBroker", response=True, broker_id=2, host="b2", port=9092, rack=None)
        return write_response(
            60,
            version,
            correlation,
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            error_message=None,
            cluster_id="cluster",
            controller_id=-1,
            brokers=(node,),
        )


@asynccontextmanager
async def listening(broker: Broker) -> AsyncIterator[int]:
    """Serves ``broker`` on a free port."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = broker.garble(broker.answer(await reader.readexactly(size)))
                if broker.answers:
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


async def test_versions_metadata_configs_and_cluster() -> None:
    async with listening(Broker()) as port, await BrokerClient.connect("127.0.0.1", port) as client:
        assert client.api_versions == OFFERED
        metadata = await client.metadata()
        assert (metadata.cluster_id, metadata.controller_id) == ("cluster", 1_000_001)
        assert metadata.nodes == (Node(1, "b1", 9092, "r1"),)
        assert metadata.topics["t2"] == TopicMetadata(0, TOPIC_ID, {4: PartitionMetadata(5, -1, 6, (1, 2), (2,), (1,))})
        assert await client.broker_configs(1) == {
            "inter.broker.protocol.version": "3.9-IV0",
            "ssl.key.password": None,
        }
        assert await client.broker_configs(1, ["inter.broker.protocol.version"]) == {
            "inter.broker.protocol.version": "3.9-IV0"
        }
        cluster = await client.describe_cluster()
        assert (cluster.controller_id, cluster.nodes) == (-1, (Node(2, "b2", 9092, None),))


async def test_many_topics_are_asked_for_in_batches() -> None:
    broker = Broker()
    broker.topics = {f"t{i}": TOPIC_ID for i in range(1_200)}
    async with listening(broker) as port, await BrokerClient.connect("127.0.0.1", port) as client:
        metadata = await client.metadata([*broker.topics, "unknown"])
        assert len(metadata.topics) == 1_201
        assert metadata.topics["unknown"] == TopicMetadata(3, None, {})
        assert [len(entity.topics) for entity in broker.asked[1:]] == [500, 500, 201]
        assert (await client.metadata([])).nodes == metadata.nodes


async def test_a_broker_that_knows_only_the_first_form_of_api_versions() -> None:
    broker = Broker()
    broker.versions_max = 2
    async with listening(broker) as port, await BrokerClient.connect("127.0.0.1", port) as client:
        assert client.api_versions == OFFERED


async def test_what_a_broker_does_not_offer_is_named() -> None:
    broker = Broker()
    broker.offered[3] = (0, 8)
    async with listening(broker) as port, await BrokerClient.connect("127.0.0.1", port) as client:
        with pytest.raises(BrokerCallFailed, match="offers METADATA v0 to v8 where v12 is needed"):
            await client.metadata()


async def test_an_error_of_the_broker_is_named() -> None:
    broker = Broker()
    broker.config_error = ErrorCode.cluster_authorization_failed
    async with listening(broker) as port, await BrokerClient.connect("127.0.0.1", port) as client:
        with pytest.raises(BrokerCallFailed, match=r"CLUSTER_AUTHORIZATION_FAILED \(31\): not for you"):
            await client.broker_configs(1)


async def test_nobody_listens() -> None:
    async with listening(Broker()) as port:
        pass
    with pytest.raises(BrokerCallFailed, match=f"127.0.0.1:{port} cannot be reached: Connection refused"):
        await BrokerClient.connect("127.0.0.1", port)


async def test_somebody_listens_and_says_nothing() -> None:
    broker = Broker()
    broker.answers = False
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
async def test_answers_that_cannot_be_read_are_refused(garble: Callable[[bytes], bytes]) -> None:
    broker = Broker()
    async with listening(broker) as port, await BrokerClient.connect("127.0.0.1", port) as client:
        broker.garble = garble
        with pytest.raises(BrokerCallFailed, match=str(port)):
            await client.metadata()


def test_bytes_that_nobody_asked_for_never_reach_the_native_reader() -> None:
    hostile = bytes.fromhex("00000007 00 00000000 ffffffff0f")
    with pytest.raises(Malformed, match="response to request 7 instead of request 8"):
        kio_messages.decode_response(Api.METADATA, 12, hostile, 8)


def test_kio_is_imported_late_and_by_one_module() -> None:
    program = (
        "import sys, brokers.outbound.channels, brokers.listener.controller_listener, brokers.client;"
        "assert not any(name.split('.')[0] == 'kio' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
