"""An admin endpoint between scripted brokers and clients, over real sockets, and requests to it."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from msgspec import Struct, structs

from admin.endpoint import AdminListener
from admin.ports import Address, Call, EndpointLimits, Node, NotController
from brokers.wire.messages.cluster import MetadataBroker
from tests.kit.deadlines import eventually
from tests.kit.wire import part, read_response, write_request, write_response

NODE = Node(1_000_001, "regent1", 9096)
METADATA, API_VERSIONS, DESCRIBE_CLUSTER = 3, 18, 60
PATIENT = {"connect_timeout_ms": 600_000, "frame_timeout_ms": 600_000}
"""Limits that no pause of a machine reaches, unless a test gives others."""
Script = Callable[[bytes], bytes | None]


def corr(frame: bytes) -> int:
    """Returns the correlation id of a request."""
    return int.from_bytes(frame[4:8], "big")


def echo(frame: bytes) -> bytes:
    """Returns a response that contains its request."""
    return frame[4:8] + frame


class ScriptedBroker:
    """Responds to each request as its script says; None: not at all. A closed ``gate`` delays the responses."""

    def __init__(self) -> None:
        self.script: Script = echo
        self.frames: list[bytes] = []
        self.opened = 0
        self.open: set[asyncio.StreamWriter] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    @property
    def address(self) -> Address:
        assert self._server is not None
        return Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    def hang_up(self) -> None:
        for writer in self.open:
            writer.transport.abort()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()
        await eventually(lambda: not self.open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open.add(writer)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                self.frames.append(frame)
                await self.gate.wait()
                if (response := self.script(frame)) is not None:
                    writer.write(len(response).to_bytes(4, "big") + response)
                    await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()


class FakeController:
    """Records every call and responds with ``respond(call)`` once ``gate`` is open."""

    def __init__(self) -> None:
        self.named: Node | None = NODE
        self.calls: list[Call] = []
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.respond: Callable[[Call], Struct] | None = None
        self.relayed: list[tuple[bytes, str, str]] = []
        self.relay_response: bytes | None = None

    def node(self) -> Node | None:
        return self.named

    async def carry(self, call: Call) -> Struct:
        self.calls.append(call)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.respond is None:
            raise NotController
        return self.respond(call)

    async def relay(self, frame: bytes, principal: str, client_host: str) -> bytes:
        self.relayed.append((frame, principal, client_host))
        if self.relay_response is None:
            raise NotController
        return self.relay_response


class KafkaClient:
    """A connection of a client to the endpoint."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation = 100

    def send(self, frame: bytes) -> bytes:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)
        return frame

    def request(self, key: int, version: int, **fields: object) -> int:
        """Sends a request; returns its correlation id."""
        self._correlation += 1
        self.send(write_request(key, version, self._correlation, "me", **fields))
        return self._correlation

    async def frame(self) -> bytes:
        """Receives a response without its length."""
        async with asyncio.timeout(60):
            return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))

    async def exchange(self, frame: bytes) -> bytes:
        """Sends a request without its length and returns the response."""
        self.send(frame)
        return await self.frame()

    async def call(self, key: int, version: int, **fields: object) -> Any:
        """Sends a request and returns its response, read with kio."""
        wanted = self.request(key, version, **fields)
        found, response = read_response(key, version, await self.frame())
        assert found == wanted
        return response

    async def closed(self) -> bool:
        """Waits until the endpoint closes the connection; no byte may come before."""
        try:
            async with asyncio.timeout(60):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def refused(self, frame: bytes) -> bool:
        """Sends a request for which the endpoint closes the connection."""
        self.send(frame)
        return await self.closed()


@dataclass
class EndpointWorld:
    """An endpoint, its brokers and its controller."""

    listener: AdminListener
    brokers: Sequence[ScriptedBroker]
    controller: FakeController
    directory: Addresses
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def broker(self) -> ScriptedBroker:
        return self.brokers[0]

    async def connect(self) -> KafkaClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        self.writers.append(writer)
        return KafkaClient(reader, writer)

    def hang_up(self) -> None:
        for writer in self.writers:
            writer.close()


class Addresses:
    """A directory that tests change."""

    def __init__(self, addresses: list[Address]) -> None:
        self.addresses = addresses
        self.sasl = False
        self.tls_alone = False
        self.read = asyncio.Event()
        self.read.set()

    def brokers(self) -> Sequence[Address]:
        return self.addresses

    def secured(self) -> bool:
        return self.sasl or self.tls_alone

    def authenticating(self) -> bool:
        return self.sasl

    async def known(self) -> None:
        await self.read.wait()


@asynccontextmanager
async def endpoint_world(brokers: int = 1, *, shared: bool = False, **limits: int) -> AsyncIterator[EndpointWorld]:
    """Serves an endpoint on a free port in front of ``brokers`` scripted brokers."""
    scripted = [ScriptedBroker() for _ in range(brokers)]
    for broker in scripted:
        await broker.start()
    controller = FakeController()
    directory = Addresses([broker.address for broker in scripted])
    listener = AdminListener("127.0.0.1", 0, directory, controller, EndpointLimits(**PATIENT | limits), shared=shared)
    await listener.start()
    made = EndpointWorld(listener, scripted, controller, directory)
    try:
        yield made
    finally:
        made.hang_up()
        controller.gate.set()
        await listener.stop()
        for broker in scripted:
            broker.gate.set()
            await broker.stop()
    await eventually(lambda: listener.connections == 0)
    assert listener.buffered_bytes == 0


def metadata_response(
    version: int, correlation: int, nodes: Sequence[MetadataBroker], controller: int, topics: tuple[Any, ...] = ()
) -> bytes:
    """Writes a broker's response to Metadata."""
    brokers = tuple(
        part(METADATA, version, "MetadataResponseBroker", response=True, **structs.asdict(node)) for node in nodes
    )
    fields: dict[str, Any] = {"brokers": brokers, "topics": topics}
    return response_frame(METADATA, version, correlation, controller_id=controller, cluster_id="the-cluster", **fields)


def response_frame(key: int, version: int, correlation: int, **fields: Any) -> bytes:
    """Writes a response with the given fields that the version has, and with defaults for common ones."""
    known = load_response_schema(key, version).__dataclass_fields__
    rest = {"throttle_time": datetime.timedelta(0), "cluster_authorized_operations": -(2**31), "error_code": 0}
    given = {name: value for name, value in {**rest, **fields}.items() if name in known}
    if "error_code" in given:
        given["error_code"] = ErrorCode(given["error_code"])
    return write_response(key, version, correlation, **given)


PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
PASSED = b"\x00\x0a\x00\x00" + b"\0\0\0\7" + b"\xff\xff"
"""A FindCoordinator v0 without a client id; a real broker would refuse it, because the group is missing."""


def bare(api: int, version: int, size: int = 0) -> bytes:
    """Writes a request of any API with a null client id and ``size`` zeros as its body."""
    head = api.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return head + b"\0\0\0\1" + b"\xff\xff" + bytes(size)


def passed(correlation: int) -> bytes:
    """Writes a request that the endpoint passes to a broker."""
    return PASSED[:4] + correlation.to_bytes(4, "big") + PASSED[8:]


def create(version: int) -> dict[str, Any]:
    """Returns the fields of a CreateTopics of one topic."""
    fields: dict[str, Any] = {"name": "t", "num_partitions": 3, "replication_factor": 2}
    topic = part(CREATE_TOPICS, version, "CreatableTopic", assignments=(), configs=(), **fields)
    return _of_version(
        CREATE_TOPICS, version, topics=(topic,), timeout=datetime.timedelta(seconds=9), validate_only=True
    )


def produce(version: int, acks: int) -> dict[str, Any]:
    """Returns the fields of a Produce of one partition."""
    data = part(PRODUCE, version, "PartitionProduceData", index=4, records=bytes(1_000))
    topic = part(PRODUCE, version, "TopicProduceData", name="t", partition_data=(data,))
    fields: dict[str, Any] = {"acks": acks, "timeout": datetime.timedelta(seconds=1), "transactional_id": None}
    return _of_version(PRODUCE, version, topic_data=(topic,), **fields)


def fetch(version: int, session_id: int = 0) -> dict[str, Any]:
    """Returns the fields of a Fetch of one partition."""
    position: dict[str, Any] = {"partition": 4, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1}
    at = part(FETCH, version, "FetchPartition", log_start_offset=-1, partition_max_bytes=1, **position)
    topic = part(FETCH, version, "FetchTopic", topic="t", topic_id=None, partitions=(at,))
    fields: dict[str, Any] = {"max_wait": datetime.timedelta(0), "min_bytes": 1, "session_epoch": 0, "rack_id": ""}
    return _of_version(FETCH, version, topics=(topic,), session_id=session_id, forgotten_topics_data=(), **fields)


def resource(key: int, version: int, kind: int, name: str) -> Any:
    """Returns a resource of a configuration request."""
    what = "DescribeConfigsResource" if key == DESCRIBE_CONFIGS else "AlterConfigsResource"
    fields: dict[str, Any] = {"resource_type": kind, "resource_name": name, "configs": (), "configuration_keys": None}
    return part(key, version, what, **fields)


def about(key: int, version: int, *resources: tuple[int, str]) -> dict[str, Any]:
    """Returns the fields of a configuration request about some resources."""
    fields: dict[str, Any] = {"validate_only": False, "include_synonyms": False, "include_documentation": False}
    named = tuple(resource(key, version, *one) for one in resources)
    return _of_version(key, version, resources=named, **fields)


def _of_version(key: int, version: int, **fields: Any) -> dict[str, Any]:
    """Leaves out the fields that a version does not have."""
    known = load_request_schema(key, version).__dataclass_fields__
    return {name: value for name, value in fields.items() if name in known}
