"""What the admin endpoint carries to the controller, and what it refuses, in every version."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from admin.routes import HIDDEN
from brokers.wire.messages import request_codec
from brokers.wire.messages.topics import CreatableTopic, CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from brokers.wire.versions import Api
from tests.core.admin_kit import echo, place
from tests.core.admin_requests import CREATE_TOPICS, FETCH, PASSED, PRODUCE, create, fetch, produce
from tests.polling import eventually

# -- carried


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


async def test_who_is_told_to_wait_is_not_heard_meanwhile() -> None:
    """Older clients do not wait by themselves (KIP-219)."""
    held: list[float] = []
    over = asyncio.Event()

    async def hold(seconds: float) -> None:
        held.append(seconds)
        await over.wait()

    async with place(brokers=0, idle_timeout_ms=50_000) as p:
        with mock.patch("admin.client.hold", hold):
            throttle_ms = iter((7_000, 0, 2**31 - 1))
            p.controller.answer = lambda call: CreateTopicsResponse((), next(throttle_ms))
            client, other = await p.connect(), await p.connect()
            answered = await client.ask(CREATE_TOPICS, 7, **create(7))
            assert answered.throttle_time.total_seconds() == 7
            await eventually(lambda: bool(held))
            client.request(CREATE_TOPICS, 7, **create(7))
            assert (await other.ask(CREATE_TOPICS, 1, **create(1))).topics == ()
            assert len(p.controller.calls) == 2
            over.set()
            assert await client.frame()
            await eventually(lambda: held == [7.0, 50.0])


async def test_who_hangs_up_while_told_to_wait_is_gone_at_once() -> None:
    async with place(brokers=0) as p:
        p.controller.answer = lambda call: CreateTopicsResponse((), 3_600_000)
        client = await p.connect()
        await client.ask(CREATE_TOPICS, 7, **create(7))
        client.writer.close()
        await eventually(lambda: p.listener.connections == 0)


def many_topics(count: int) -> bytes:
    """A CreateTopics v7."""
    topics = tuple(CreatableTopic(f"t{i}", 1, 1, (), ()) for i in range(count))
    body = request_codec(Api.CREATE_TOPICS, 7).write(CreateTopicsRequest(topics, 1_000))
    return b"\0\x13\0\7" + b"\0\0\0\1" + b"\xff\xff" + b"\0" + body


async def test_what_is_read_of_requests_counts_as_well_as_their_bytes(caplog: pytest.LogCaptureFixture) -> None:
    """90 KB on the wire, 1.2 MB once they are read: two of them are more than may be held."""
    async with place(buffered_bytes_max=2_000_000) as p:
        p.controller.gate.clear()
        first, second = await p.connect(), await p.connect()
        first.send(many_topics(6_000))
        await eventually(lambda: bool(p.controller.calls))
        assert p.listener.buffered_bytes > 1_200_000
        second.send(many_topics(6_000))
        assert await second.closed()
        assert "all clients together" in caplog.text
        p.controller.gate.set()
        assert len(await first.frame()) > 6_000
        await eventually(lambda: p.listener.buffered_bytes == 0)


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
