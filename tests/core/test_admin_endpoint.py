"""The admin endpoint over real sockets: what is passed on, changed, carried, refused; clients and brokers that fail."""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from admin.client import Client
from admin.routes import CARRIED, HIDDEN
from brokers.wire.messages import MESSAGES
from brokers.wire.messages.cluster import MetadataBroker
from brokers.wire.messages.topics import CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from brokers.wire.versions import Api
from tests.core.admin_kit import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    METADATA,
    NODE,
    answer,
    corr,
    echo,
    metadata_answer,
    place,
)
from tests.core.wire_kit import part, write_request
from tests.polling import eventually

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
PASSED = b"\x00\x0a\x00\x00" + b"\0\0\0\7" + b"\xff\xff"
"""A FindCoordinator v0 without a client id; a broker would miss the group."""


def passed(correlation: int) -> bytes:
    return PASSED[:4] + correlation.to_bytes(4, "big") + PASSED[8:]


# -- passed on


async def test_what_is_not_the_controllers_is_passed_on_and_answered_byte_by_byte() -> None:
    async with place() as p:
        client = await p.connect()
        frame = client.send(PASSED)
        assert await client.frame() == echo(frame)
        assert p.broker.frames == [frame]


async def test_answers_come_in_the_order_of_the_requests() -> None:
    """Calls to the controller and to a broker in turn, all sent at once."""
    async with place() as p:
        p.controller.answer = lambda call: CreateTopicsResponse((CreatedTopic("t"),))
        client = await p.connect()
        sent = []
        for i in range(0, 40, 2):
            sent.append(corr(client.send(passed(i))))
            sent.append(corr(client.send(write_request(CREATE_TOPICS, 0, i + 1, "me", **create(0)))))
        found = [int.from_bytes((await client.frame())[:4], "big") for _ in sent]
        assert found == sent == list(range(40))
        assert len(p.controller.calls) == len(p.broker.frames) == 20


async def test_a_client_has_one_broker_for_all_that_it_sends() -> None:
    async with place(brokers=3) as p:
        clients = [await p.connect() for _ in range(8)]
        for client in clients:
            for _ in range(5):
                client.send(PASSED)
                await client.frame()
        assert sum(broker.opened for broker in p.brokers) == 8
        assert sum(len(broker.frames) for broker in p.brokers) == 40


async def test_another_broker_is_taken_when_one_does_not_listen() -> None:
    async with place(brokers=3) as p:
        for broker in p.brokers[:2]:
            await broker.stop()
        client = await p.connect()
        client.send(PASSED)
        assert await client.frame() == echo(PASSED)


async def test_without_any_broker_the_client_is_hung_up_on(caplog: pytest.LogCaptureFixture) -> None:
    async with place(brokers=0) as p:
        client = await p.connect()
        client.send(PASSED)
        assert await client.closed()
        assert "no broker is known" in caplog.text


async def test_a_large_answer_to_a_slow_client_is_held_in_pieces() -> None:
    """64 MB for a client that reads nothing: the broker is made to wait, the endpoint holds a few pieces."""
    size = 64_000_000
    async with place(frame_timeout_ms=60_000) as p:
        p.broker.script = lambda frame: frame[4:8] + bytes(size)
        client = await p.connect()
        client.send(PASSED)
        assert int.from_bytes(await client.reader.readexactly(4), "big") == size + 4
        (to_endpoint,) = p.broker.open
        seen: list[int] = []

        def stands_still() -> bool:
            seen.append(to_endpoint.transport.get_write_buffer_size())
            return len(seen) > 3 and len(set(seen[-3:])) == 1

        await eventually(stands_still)
        assert seen[-1] > size // 2, "the rest is on its way: in the kernel's buffers, a little of it in the endpoint's"
        left = size + 4
        while left:
            left -= len(await client.reader.read(1_000_000))
        client.send(PASSED)


async def test_a_client_that_takes_nothing_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async with place(frame_timeout_ms=200) as p:
        p.broker.script = lambda frame: frame[4:8] + bytes(64_000_000)
        client = await p.connect()
        client.send(PASSED)
        await eventually(lambda: p.listener.connections == 0)
        await eventually(lambda: not p.broker.open)
        assert "not taken, in time" in caplog.text
        client.writer.transport.abort()


async def test_a_client_that_hangs_up_while_its_broker_thinks_frees_both() -> None:
    async with place() as p:
        p.broker.gate.clear()
        client = await p.connect()
        client.send(PASSED)
        await eventually(lambda: bool(p.broker.frames))
        client.writer.close()
        await eventually(lambda: p.listener.connections == 0)
        p.broker.gate.set()
        await eventually(lambda: not p.broker.open)


async def test_a_broker_that_hangs_up_in_mid_answer_ends_the_clients_connection() -> None:
    async with place() as p:
        p.broker.script = lambda frame: p.broker.hang_up()
        client = await p.connect()
        client.send(PASSED)
        assert await client.closed()


async def test_a_broker_that_hangs_up_between_requests_ends_the_clients_connection() -> None:
    async with place() as p:
        client = await p.connect()
        client.send(PASSED)
        await client.frame()
        p.broker.hang_up()
        assert await client.closed()


async def test_a_broker_that_hangs_up_during_a_call_to_the_controller_leaves_its_answer() -> None:
    async with place() as p:
        p.controller.answer = lambda call: CreateTopicsResponse((CreatedTopic("t"),))
        p.controller.gate.clear()
        client = await p.connect()
        client.send(PASSED)
        await client.frame()
        client.request(CREATE_TOPICS, 0, **create(0))
        await eventually(lambda: bool(p.controller.calls))
        p.broker.hang_up()
        await eventually(lambda: not p.broker.open)
        p.controller.gate.set()
        assert len(await client.frame()) > 4
        assert await client.closed()


@pytest.mark.parametrize("answered", [b"\0\0\0\x08rest", b"\0\0"], ids=["another correlation id", "too short"])
async def test_a_broker_that_garbles_ends_the_clients_connection(answered: bytes) -> None:
    async with place() as p:
        p.broker.script = lambda frame: answered
        client = await p.connect()
        client.send(PASSED)
        assert await client.closed()


async def test_what_is_not_taken_when_the_endpoint_stops_is_dropped() -> None:
    """Waiting for it would be up to the client."""
    stream = NeverTaken()
    async with place() as p:
        serving = asyncio.create_task(Client(p.listener, stream).serve())  # type: ignore[arg-type]
        await eventually(lambda: stream.waiting)
        serving.cancel()
        await asyncio.wait({serving})
    assert serving.cancelled()
    assert stream.ends[0] == "aborted"


class NeverTaken:
    """A stream on which nothing ever comes or goes."""

    peer = "somebody"

    def __init__(self) -> None:
        self.waiting = False
        self.ends: list[str] = []

    async def wait(self, size: int, timeout_ms: int) -> bytes:
        self.waiting = True
        await asyncio.Future[bytes]()
        raise AssertionError("nothing ever comes")

    def abort(self) -> None:
        self.ends.append("aborted")

    def close(self) -> None:
        self.ends.append("closed")


# -- changed


def describe_cluster(frame: bytes, error: int = 0) -> bytes:
    version = frame[3]
    node = part(
        DESCRIBE_CLUSTER, version, "DescribeClusterBroker", response=True, broker_id=1, host="b1", port=9, rack="r"
    )
    fields: dict[str, Any] = {"error_code": error, "error_message": None, "cluster_id": "the-cluster"}
    return answer(DESCRIBE_CLUSTER, version, corr(frame), controller_id=-1, brokers=(node,), endpoint_type=1, **fields)


NODES = [MetadataBroker(1, "b1", 9092, "r1"), MetadataBroker(2, "b2", 9092, None)]
OURS = (NODE.id, NODE.host, NODE.port)


def ask_for_metadata(version: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"topics": None if version >= 1 else ()}
    if version >= 4:
        fields["allow_auto_topic_creation"] = False
    if version >= 8:
        fields["include_topic_authorized_operations"] = False
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = False
    return fields


def a_topic(version: int, name: str, partitions: int) -> Any:
    rows = tuple(
        part(
            METADATA,
            version,
            "MetadataResponsePartition",
            response=True,
            error_code=ErrorCode(0),
            partition_index=i,
            leader_id=1,
            leader_epoch=3,
            replica_nodes=(1, 2),
            isr_nodes=(1,),
            offline_replicas=(2,),
        )
        for i in range(partitions)
    )
    fields: dict[str, Any] = {
        "error_code": ErrorCode(0),
        "name": name,
        "topic_id": None,
        "is_internal": False,
        "partitions": rows,
    }
    return part(METADATA, version, "MetadataResponseTopic", response=True, topic_authorized_operations=0, **fields)


@pytest.mark.parametrize("version", range(13))
@pytest.mark.parametrize("listed", [False, True], ids=["not listed", "listed by brokers"])
async def test_metadata_names_the_daemon_as_controller_at_the_endpoint(version: int, listed: bool) -> None:
    nodes = [*NODES, MetadataBroker(NODE.id, "elsewhere", 1, "r9")] if listed else NODES
    topic = a_topic(version, "t", 3)
    async with place() as p:
        p.broker.script = lambda frame: metadata_answer(version, corr(frame), nodes, 2, (topic,))
        client = await p.connect()
        answered = await client.ask(METADATA, version, **ask_for_metadata(version))
        assert [(n.node_id, n.host, n.port) for n in answered.brokers] == [(1, "b1", 9092), (2, "b2", 9092), OURS]
        assert answered.topics == (topic,)
        if version >= 1:
            assert answered.controller_id == NODE.id
            assert [n.rack for n in answered.brokers] == ["r1", None, "r1"]


async def test_metadata_of_a_large_cluster_is_changed_at_its_beginning_alone() -> None:
    """2 MB of topics, more than is ever held for a change."""
    topics = tuple(a_topic(12, f"topic-{i}", 20) for i in range(2_000))
    async with place() as p:
        p.broker.script = lambda frame: metadata_answer(12, corr(frame), NODES, 2, topics)
        client = await p.connect()
        answered = await client.ask(METADATA, 12, **ask_for_metadata(12))
        assert answered.controller_id == NODE.id
        assert answered.topics == topics


async def test_while_no_daemon_holds_the_role_brokers_answers_stay_as_they_are() -> None:
    async with place() as p:
        p.controller.named = None
        p.broker.script = lambda frame: metadata_answer(12, corr(frame), NODES, 2)
        client = await p.connect()
        answered = await client.ask(METADATA, 12, **ask_for_metadata(12))
        assert (answered.controller_id, [n.node_id for n in answered.brokers]) == (2, [1, 2])


@pytest.mark.parametrize("version", range(2))
async def test_describe_cluster_names_the_daemon_as_controller(version: int) -> None:
    async with place() as p:
        p.broker.script = describe_cluster
        client = await p.connect()
        fields = {"endpoint_type": 1} if version else {}
        answered = await client.ask(DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=False, **fields)
        assert (answered.controller_id, answered.cluster_id) == (NODE.id, "the-cluster")
        assert [(n.broker_id, n.rack) for n in answered.brokers] == [(1, "r"), (NODE.id, "r")]


async def test_an_error_of_describe_cluster_is_passed_on() -> None:
    async with place() as p:
        p.broker.script = lambda frame: describe_cluster(frame, error=31)
        client = await p.connect()
        answered = await client.ask(DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        assert (answered.error_code, answered.controller_id) == (31, -1)


OFFERED = {
    0: (0, 11),
    1: (0, 17),
    3: (0, 12),
    4: (0, 7),
    7: (0, 3),
    10: (0, 6),
    17: (0, 1),
    18: (0, 4),
    19: (0, 5),
    60: (0, 2),
}


def api_versions(frame: bytes, version: int | None = None) -> bytes:
    at = frame[3] if version is None else version
    keys = tuple(
        part(API_VERSIONS, at, "ApiVersion", response=True, api_key=key, min_version=low, max_version=high)
        for key, (low, high) in OFFERED.items()
    )
    return answer(API_VERSIONS, at, corr(frame), error_code=0 if version is None else 35, api_keys=keys)


@pytest.mark.parametrize("version", range(5))
async def test_what_the_broker_offers_is_offered_with_the_controllers_calls_and_without_what_brokers_say(
    version: int,
) -> None:
    software = {"client_software_name": "a", "client_software_version": "1"}
    async with place() as p:
        p.broker.script = api_versions
        client = await p.connect()
        answered = await client.ask(API_VERSIONS, version, **(software if version >= 3 else {}))
        offered = {key.api_key: (key.min_version, key.max_version) for key in answered.api_keys}
        own = {int(api): MESSAGES[api][:2] for api in CARRIED}
        assert offered == {0: (0, 11), 1: (0, 17), 3: (0, 12), 10: (0, 6), 17: (1, 1), 18: (0, 4), 60: (0, 1)} | own
        assert offered[CREATE_TOPICS] == (0, 7)


async def test_an_unknown_version_of_api_versions_is_answered_by_the_broker() -> None:
    async with place() as p:
        p.broker.script = lambda frame: api_versions(frame, version=0)
        client = await p.connect()
        frame = client.send(b"\0\x12\0\x09" + b"\0\0\0\1" + b"\xff\xff")
        assert await client.frame() == api_versions(frame, version=0)


@pytest.mark.parametrize("version", [0, 12])
async def test_an_answer_that_cannot_be_read_ends_the_clients_connection(version: int) -> None:
    async with place() as p:
        p.broker.script = lambda frame: frame[4:8] + b"\xff" * 40
        client = await p.connect()
        client.request(METADATA, version, **ask_for_metadata(version))
        assert await client.closed()


# -- carried


def create(version: int) -> dict[str, Any]:
    """Fields of a CreateTopics of one topic."""
    topic = part(
        CREATE_TOPICS,
        version,
        "CreatableTopic",
        name="t",
        num_partitions=3,
        replication_factor=2,
        assignments=(),
        configs=(),
    )
    fields: dict[str, Any] = {"topics": (topic,), "timeout": datetime.timedelta(seconds=9)}
    return fields | ({"validate_only": True} if version >= 1 else {})


@pytest.mark.parametrize("version", range(8))
async def test_calls_to_the_controller_are_carried_in_every_version(version: int) -> None:
    async with place(brokers=0) as p:
        p.controller.answer = lambda call: CreateTopicsResponse((CreatedTopic("t", 36, "there", bytes(range(16))),))
        client = await p.connect()
        answered = await client.ask(CREATE_TOPICS, version, **create(version))
        (call,) = p.controller.calls
        assert (call.api, call.version, call.client_id, call.client_host) == (
            Api.CREATE_TOPICS,
            version,
            "me",
            "127.0.0.1",
        )
        assert isinstance(call.body, CreateTopicsRequest)
        assert (call.body.timeout_ms, call.body.validate_only) == (9_000, version >= 1)
        assert (call.body.topics[0].name, call.body.topics[0].num_partitions) == ("t", 3)
        assert [(t.name, t.error_code) for t in answered.topics] == [("t", 36)]


async def test_a_client_that_hangs_up_gives_its_call_up() -> None:
    async with place() as p:
        p.controller.gate.clear()
        client = await p.connect()
        client.request(CREATE_TOPICS, 7, **create(7))
        await eventually(lambda: bool(p.controller.calls))
        client.writer.close()
        await eventually(lambda: p.controller.cancelled == 1)


async def test_without_a_controller_clients_are_told_to_look_for_it() -> None:
    async with place() as p:
        client = await p.connect()
        answered = await client.ask(CREATE_TOPICS, 7, **create(7))
        assert [(t.name, t.error_code) for t in answered.topics] == [("t", 41)]


async def test_an_error_in_the_controllers_side_ends_the_connection_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(call: object) -> Any:
        raise ZeroDivisionError

    async with place() as p:
        p.controller.answer = fail
        client, other = await p.connect(), await p.connect()
        client.request(CREATE_TOPICS, 7, **create(7))
        assert await client.closed()
        assert "ZeroDivisionError" in caplog.text
        other.send(PASSED)
        assert await other.frame() == echo(PASSED)


# -- answered as a node

LIST_GROUPS, DESCRIBE_LOG_DIRS, LIST_TRANSACTIONS = 16, 35, 66
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44


@pytest.mark.parametrize("version", range(6))
async def test_the_daemon_as_a_node_has_no_groups(version: int) -> None:
    filters: dict[str, Any] = {"states_filter": ("Stable",)} if version >= 4 else {}
    async with place(brokers=0) as p:
        client = await p.connect()
        answered = await client.ask(LIST_GROUPS, version, **filters, **({"types_filter": ()} if version >= 5 else {}))
        assert (answered.error_code, answered.groups) == (0, ())


@pytest.mark.parametrize("version", range(5))
async def test_the_daemon_as_a_node_has_a_log_directory_without_replicas(version: int) -> None:
    async with place(brokers=0) as p:
        answered = await (await p.connect()).ask(DESCRIBE_LOG_DIRS, version, topics=None)
        assert [(r.error_code, r.log_dir, r.topics) for r in answered.results] == [(0, "-", ())]


@pytest.mark.parametrize("version", range(2))
async def test_the_daemon_as_a_node_has_no_transactions(version: int) -> None:
    longer = {"duration_filter": -1} if version else {}
    async with place(brokers=0) as p:
        client = await p.connect()
        answered = await client.ask(LIST_TRANSACTIONS, version, state_filters=(), producer_id_filters=(), **longer)
        assert (answered.error_code, answered.transaction_states) == (0, ())


def resource(key: int, version: int, kind: int, name: str) -> Any:
    what = "DescribeConfigsResource" if key == DESCRIBE_CONFIGS else "AlterConfigsResource"
    fields: dict[str, Any] = {"resource_type": kind, "resource_name": name, "configs": (), "configuration_keys": None}
    return part(key, version, what, **fields)


def about(key: int, version: int, *resources: tuple[int, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"validate_only": False, "include_synonyms": False, "include_documentation": False}
    known = load_request_schema(key, version).__dataclass_fields__
    given = {name: value for name, value in fields.items() if name in known}
    return {**given, "resources": tuple(resource(key, version, *named) for named in resources)}


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, v) for key, last in ((DESCRIBE_CONFIGS, 4), (ALTER_CONFIGS, 2), (44, 1)) for v in range(last + 1)],
)
async def test_the_daemon_as_a_node_has_no_configurations(key: int, version: int) -> None:
    own = (4, str(NODE.id)), (8, str(NODE.id))
    async with place(brokers=0) as p:
        answered = await (await p.connect()).ask(key, version, **about(key, version, *own))
        found = answered.results if key == DESCRIBE_CONFIGS else answered.responses
        assert [(r.resource_type, r.resource_name, r.error_code, r.error_message) for r in found] == [
            (kind, name, 0, None) for kind, name in own
        ]


@pytest.mark.parametrize("others", [(), ((2, "t"),), ((4, "1"),), ((4, str(NODE.id)), (4, "1"))])
async def test_configurations_of_others_are_passed_on(others: tuple[tuple[int, str], ...]) -> None:
    async with place() as p:
        client = await p.connect()
        client.request(INCREMENTAL_ALTER_CONFIGS, 1, **about(INCREMENTAL_ALTER_CONFIGS, 1, *others))
        assert (await client.frame())[4:] == p.broker.frames[0]


async def test_an_endpoint_that_is_no_node_passes_on_what_nodes_answer_of_themselves() -> None:
    async with place() as p:
        p.controller.named = None
        client = await p.connect()
        client.request(LIST_GROUPS, 0)
        assert (await client.frame())[4:] == p.broker.frames[0]


# -- refused


@pytest.mark.parametrize("version", range(12))
async def test_produce_is_refused_in_every_version(version: int) -> None:
    async with place(brokers=0) as p:
        client = await p.connect()
        answered = await client.ask(PRODUCE, version, **produce(version, acks=1))
        (topic,) = answered.responses
        assert (topic.name, [(at.index, at.error_code, at.base_offset) for at in topic.partition_responses]) == (
            "t",
            [(4, 6, -1)],
        )


def produce(version: int, acks: int) -> dict[str, Any]:
    data = part(PRODUCE, version, "PartitionProduceData", index=4, records=bytes(1_000))
    topic = part(PRODUCE, version, "TopicProduceData", name="t", partition_data=(data,))
    fields: dict[str, Any] = {"acks": acks, "timeout": datetime.timedelta(seconds=1), "topic_data": (topic,)}
    return fields | ({"transactional_id": None} if version >= 3 else {})


async def test_a_producer_that_reads_no_answers_is_hung_up_on() -> None:
    async with place() as p:
        client = await p.connect()
        client.request(PRODUCE, 9, **produce(9, acks=0))
        assert await client.closed()


@pytest.mark.parametrize("version", range(18))
async def test_fetch_is_refused_in_every_version(version: int) -> None:
    async with place(brokers=0) as p:
        client = await p.connect()
        answered = await client.ask(FETCH, version, **fetch(version))
        (topic,) = answered.responses
        assert [(at.partition_index, at.error_code) for at in topic.partitions] == [(4, 6)]
        assert topic.topic_id is None if version >= 13 else topic.topic == "t"
        if version >= 7:
            assert (answered.error_code, answered.session_id) == (0, 0)
            assert (await client.ask(FETCH, version, **fetch(version, session_id=5))).error_code == 70


def fetch(version: int, session_id: int = 0) -> dict[str, Any]:
    at = part(
        FETCH,
        version,
        "FetchPartition",
        partition=4,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1,
    )
    topic = part(FETCH, version, "FetchTopic", topic="t", topic_id=None, partitions=(at,))
    fields: dict[str, Any] = {
        "max_wait": datetime.timedelta(0),
        "min_bytes": 1,
        "topics": (topic,),
        "session_id": session_id,
        "session_epoch": 0,
        "forgotten_topics_data": (),
        "rack_id": "",
    }
    known = load_request_schema(FETCH, version).__dataclass_fields__
    return {name: value for name, value in fields.items() if name in known}


@pytest.mark.parametrize("api", sorted(HIDDEN))
async def test_what_brokers_say_to_each_other_is_neither_answered_nor_passed_on(api: int) -> None:
    async with place() as p:
        client = await p.connect()
        client.send(api.to_bytes(2, "big") + b"\0\0" + b"\0\0\0\1" + b"\xff\xff")
        assert await client.closed()
        assert p.broker.frames == []


@pytest.mark.parametrize(("api", "version"), [(19, 8), (3, 13), (0, 12), (1, -1), (60, 2), (17, 0)])
async def test_versions_that_are_not_offered_end_the_connection_as_at_a_broker(api: int, version: int) -> None:
    async with place() as p:
        client = await p.connect()
        client.send(api.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1" + b"\xff\xff")
        assert await client.closed()
        assert p.broker.frames == []


# -- bounds


@pytest.mark.parametrize("head", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\7", b"GET "])
async def test_a_frame_of_a_size_that_is_not_allowed_ends_the_connection(head: bytes) -> None:
    async with place() as p:
        client = await p.connect()
        client.writer.write(head + bytes(64))
        assert await client.closed()


async def test_the_requests_of_all_clients_together_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async with place(frame_bytes_max=1_000_000, buffered_bytes_max=1_500_000) as p:
        first, second = await p.connect(), await p.connect()
        first.writer.write((900_000).to_bytes(4, "big") + b"\0")
        await eventually(lambda: p.listener.buffered_bytes == 900_000)
        second.writer.write((900_000).to_bytes(4, "big") + b"\0")
        assert await second.closed()
        assert p.listener.buffered_bytes == 900_000
        assert "by all clients together" in caplog.text


async def test_connections_beyond_the_limit_are_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with place(connections_max=2) as p:
        kept = [await p.connect() for _ in range(2)]
        await eventually(lambda: p.listener.connections == 2)
        assert await (await p.connect()).closed()
        kept[0].send(PASSED)
        assert await kept[0].frame() == echo(PASSED)
        assert "2 are open" in caplog.text


async def test_whoever_only_connects_is_closed_and_so_is_a_request_that_does_not_arrive() -> None:
    async with place(frame_timeout_ms=100) as p:
        silent, halting = await p.connect(), await p.connect()
        halting.writer.write((100).to_bytes(4, "big") + PASSED)
        assert await silent.closed()
        assert await halting.closed()


async def test_an_address_that_is_taken_is_named() -> None:
    from admin.listener import AdminListener

    async with place() as p:
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{p.listener.port}"):
            await AdminListener("127.0.0.1", p.listener.port, p.listener.directory, p.controller).start()


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
