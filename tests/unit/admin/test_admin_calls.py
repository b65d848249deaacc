"""Calls that the admin endpoint carries or refuses: every version, and the error where clients look for it."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.own_node import wrong_node
from admin.routes import HIDDEN, Route, route
from brokers.wire.messages import CARRIED, MESSAGES, request_codec, response_codec
from brokers.wire.messages.cluster import DescribeClusterResponse
from brokers.wire.messages.topics import CreatableTopic, CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from brokers.wire.primitives import Reader
from brokers.wire.refusals import refusal
from brokers.wire.versions import Api
from tests.kit.admin import CREATE_TOPICS, FETCH, PASSED, PRODUCE, bare, create, echo, endpoint_world, fetch, produce
from tests.kit.deadlines import eventually
from tests.kit.wire import Place, a_few, entities, name_of, schema_of, written

# -- carried


@pytest.mark.parametrize("version", range(8))
async def test_calls_to_the_controller_are_carried_in_every_version(version: int) -> None:
    async with endpoint_world(brokers=0) as w:
        w.controller.respond = lambda call: CreateTopicsResponse((CreatedTopic("t", 36, "there", bytes(range(16))),))
        response = await (await w.connect()).call(CREATE_TOPICS, version, **create(version))
        (call,) = w.controller.calls
        sender = call.api, call.version, call.client_id, call.client_host
        assert sender == (Api.CREATE_TOPICS, version, "me", "127.0.0.1")
        assert isinstance(call.body, CreateTopicsRequest)
        assert (call.body.timeout_ms, call.body.validate_only) == (9_000, version >= 1)
        assert (call.body.topics[0].name, call.body.topics[0].num_partitions) == ("t", 3)
        assert [(t.name, t.error_code) for t in response.topics] == [("t", 36)]


async def test_a_client_that_hangs_up_cancels_its_call() -> None:
    async with endpoint_world() as w:
        w.controller.gate.clear()
        client = await w.connect()
        client.request(CREATE_TOPICS, 7, **create(7))
        await eventually(lambda: bool(w.controller.calls))
        client.writer.close()
        await eventually(lambda: w.controller.cancelled == 1)


async def test_without_a_controller_a_call_ends_with_not_controller() -> None:
    async with endpoint_world() as w:
        response = await (await w.connect()).call(CREATE_TOPICS, 7, **create(7))
        assert [(t.name, t.error_code) for t in response.topics] == [("t", 41)]
        [topic] = response.topics
        assert topic.error_message.startswith("no active daemon responds: its term is about to begin")


async def test_an_error_in_the_controllers_port_ends_the_connection_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(call: object) -> Any:
        raise ZeroDivisionError

    async with endpoint_world() as w:
        w.controller.respond = fail
        client, other = await w.connect(), await w.connect()
        client.request(CREATE_TOPICS, 7, **create(7))
        assert await client.closed()
        assert "ZeroDivisionError" in caplog.text
        assert await other.exchange(PASSED) == echo(PASSED)


async def test_a_throttled_client_is_not_read_until_its_throttle_time_is_over() -> None:
    """Older clients do not wait by themselves (KIP-219)."""
    held: list[float] = []
    over = asyncio.Event()

    async def hold(seconds: float) -> None:
        held.append(seconds)
        await over.wait()

    async with endpoint_world(brokers=0, idle_timeout_ms=50_000) as w:
        with mock.patch("admin.client.hold", hold):
            throttle_ms = iter((7_000, 0, 2**31 - 1))
            w.controller.respond = lambda call: CreateTopicsResponse((), next(throttle_ms))
            client, other = await w.connect(), await w.connect()
            response = await client.call(CREATE_TOPICS, 7, **create(7))
            assert response.throttle_time.total_seconds() == 7
            await eventually(lambda: bool(held))
            client.request(CREATE_TOPICS, 7, **create(7))
            assert (await other.call(CREATE_TOPICS, 1, **create(1))).topics == ()
            assert len(w.controller.calls) == 2
            over.set()
            assert await client.frame()
            await eventually(lambda: held == [7.0, 50.0])


async def test_a_throttled_client_that_hangs_up_is_gone_at_once() -> None:
    async with endpoint_world(brokers=0) as w:
        w.controller.respond = lambda call: CreateTopicsResponse((), 3_600_000)
        client = await w.connect()
        await client.call(CREATE_TOPICS, 7, **create(7))
        client.writer.close()
        await eventually(lambda: w.listener.connections == 0)


def many_topics(count: int) -> bytes:
    """Writes a CreateTopics v7."""
    topics = tuple(CreatableTopic(f"t{i}", 1, 1, (), ()) for i in range(count))
    body = request_codec(Api.CREATE_TOPICS, 7).write(CreateTopicsRequest(topics, 1_000))
    return bare(CREATE_TOPICS, 7) + b"\0" + body


async def test_decoded_items_count_as_well_as_bytes(caplog: pytest.LogCaptureFixture) -> None:
    """Each request has 90 KB on the wire and 1.2 MB decoded: two of them exceed the bound."""
    async with endpoint_world(buffered_bytes_max=2_000_000) as w:
        w.controller.gate.clear()
        first, second = await w.connect(), await w.connect()
        first.send(many_topics(6_000))
        await eventually(lambda: bool(w.controller.calls))
        assert w.listener.buffered_bytes > 1_200_000
        assert await second.refused(many_topics(6_000))
        assert "all clients together" in caplog.text
        w.controller.gate.set()
        assert len(await first.frame()) > 6_000
        await eventually(lambda: w.listener.buffered_bytes == 0)


# -- refused


@pytest.mark.parametrize("version", range(12))
async def test_produce_is_refused_in_every_version(version: int) -> None:
    async with endpoint_world(brokers=0) as w:
        (topic,) = (await (await w.connect()).call(PRODUCE, version, **produce(version, acks=1))).responses
        found = [(at.index, at.error_code, at.base_offset) for at in topic.partition_responses]
        assert (topic.name, found) == ("t", [(4, 6, -1)])


async def test_a_producer_without_acks_is_cut_off() -> None:
    async with endpoint_world() as w:
        client = await w.connect()
        client.request(PRODUCE, 9, **produce(9, acks=0))
        assert await client.closed()


@pytest.mark.parametrize("version", range(18))
async def test_fetch_is_refused_in_every_version(version: int) -> None:
    async with endpoint_world(brokers=0) as w:
        client = await w.connect()
        response = await client.call(FETCH, version, **fetch(version))
        (topic,) = response.responses
        assert [(at.partition_index, at.error_code) for at in topic.partitions] == [(4, 6)]
        assert topic.topic_id is None if version >= 13 else topic.topic == "t"
        if version >= 7:
            assert (response.error_code, response.session_id) == (0, 0)
            assert (await client.call(FETCH, version, **fetch(version, session_id=5))).error_code == 70


@pytest.mark.parametrize(("api", "version"), [(6, 0), (CREATE_TOPICS, 8), (FETCH, -1)])
async def test_a_request_that_is_not_offered_ends_the_connection_as_at_a_broker(api: int, version: int) -> None:
    async with endpoint_world() as w:
        assert await (await w.connect()).refused(bare(api, version))
        assert w.broker.frames == []


CALLS: list[Place] = [(api, v, False) for api in sorted(CARRIED) for v in range(MESSAGES[api].last + 1)]
ON_TOP = {Api.ALTER_PARTITION_REASSIGNMENTS, Api.LIST_PARTITION_REASSIGNMENTS, Api.UPDATE_FEATURES}


def codes(response: Any) -> list[int]:
    """Lists every error code in a response, depth first."""
    found = []
    for name in response.__struct_fields__:
        value = getattr(response, name)
        if name == "error_code":
            found.append(int(value))
        elif isinstance(value, tuple):
            found += [code for item in value if hasattr(item, "__struct_fields__") for code in codes(item)]
    return found


@pytest.mark.parametrize("error", [41, 31])
@pytest.mark.parametrize("place", CALLS, ids=name_of)
@a_few
@given(data=st.data())
def test_a_refusal_has_the_error_at_each_item_and_can_be_written(place: Place, error: int, data: st.DataObject) -> None:
    api, version, _ = place
    request = request_codec(api, version).read(Reader(written(data.draw(entities(schema_of(place))))))
    codec = response_codec(api, version)
    response = codec.read(Reader(codec.write(refusal(request, error, "no"))))
    if api is Api.ELECT_LEADERS:
        assert set(codes(response)[:-1]) <= {error}
        on_top = version >= 1 and (error == 31 or request.topic_partitions is None)
        assert codes(response)[-1] == (error if on_top else 0)
    else:
        assert set(codes(response)) <= {error}
    if api in ON_TOP:
        assert response.error_code == error
    if api is Api.ALTER_PARTITION_REASSIGNMENTS:
        assert len(codes(response)) == 1 + sum(len(topic.partitions) for topic in request.topics)


def test_an_election_everywhere_is_refused_on_top() -> None:
    request = request_codec(Api.ELECT_LEADERS, 2).read(Reader(b"\1\0\0\0\0\0\0"))
    assert request.topic_partitions is None
    assert codes(refusal(request, 41)) == [41]


def test_a_user_that_is_named_twice_has_one_result() -> None:
    body = b"\2\2u\1\0\3\2u\1\0\0\x10\0\1\1\0\2v\2\0\0\x10\0\1\1\0\0"
    request = request_codec(Api.ALTER_USER_SCRAM_CREDENTIALS, 0).read(Reader(body))
    response: Any = refusal(request, 41, "no")
    assert [(r.user, r.error_code, r.error_message) for r in response.results] == [("u", 41, "no"), ("v", 41, "no")]


def test_secrets_are_left_out_of_the_representation() -> None:
    body = b"\1\2\2v\2\0\0\x10\0\5salt\5pass\0\0"
    request = request_codec(Api.ALTER_USER_SCRAM_CREDENTIALS, 0).read(Reader(body))
    assert request.upsertions[0].salted_password == b"pass"
    assert "pass" not in repr(request)
    assert "salt" not in repr(request)


def test_other_messages_have_no_refusal() -> None:
    other = DescribeClusterResponse(0, 0, None, "c", 1, (), 0)
    with pytest.raises(TypeError, match="DescribeClusterResponse"):
        refusal(other, 41)
    with pytest.raises(TypeError, match="DescribeClusterResponse"):
        wrong_node(other)


@pytest.mark.parametrize(
    ("api", "versions", "way"),
    [
        (19, range(8), Route.CARRY),
        (0, range(12), Route.REFUSE),
        (1, range(18), Route.REFUSE),
        (3, range(13), Route.REWRITE),
        (60, range(2), Route.REWRITE),
        (16, range(6), Route.OWN),
        (34, range(3), Route.OWN),
        (17, range(1, 2), Route.AUTHENTICATE),
        (36, range(3), Route.AUTHENTICATE),
        *((api, range(0), Route.CLOSE) for api in sorted(HIDDEN)),
    ],
)
def test_a_request_is_routed_in_offered_versions_and_refused_in_others(api: int, versions: range, way: Route) -> None:
    for version in range(-1, 20):
        assert route(api, version) is (way if version in versions else Route.CLOSE), version


@pytest.mark.parametrize(
    ("api", "version", "way"),
    [(18, 4, Route.REWRITE), (18, 5, Route.PASS), (18, -1, Route.PASS), (8, 9, Route.PASS), (-7, 0, Route.PASS)],
)
def test_a_request_that_is_unknown_here_goes_to_a_broker(api: int, version: int, way: Route) -> None:
    """The broker may know it, and hangs up if it does not."""
    assert route(api, version) is way


@pytest.mark.parametrize("api", range(70))
def test_where_brokers_share_the_listener_their_three_calls_are_relayed(api: int) -> None:
    relayed = {7: range(2, 4), 56: range(4), 67: range(1)}.get(api, range(0))
    for version in range(-1, 5):
        assert route(api, version, shared=True) is (Route.RELAY if version in relayed else route(api, version))
