"""The admin endpoint over real sockets: requests that it passes on, failing clients and brokers, bounds."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from admin.client import Client
from admin.endpoint import AdminListener
from admin.streams import Stream
from brokers.wire.messages.topics import CreatedTopic, CreateTopicsResponse
from tests.kit.admin import CREATE_TOPICS, PASSED, bare, corr, create, echo, endpoint_world, passed
from tests.kit.deadlines import eventually
from tests.kit.wire import write_request


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


# -- passed on


async def test_a_request_for_a_broker_and_its_response_are_passed_on_byte_by_byte() -> None:
    async with endpoint_world() as w:
        assert await (await w.connect()).exchange(PASSED) == echo(PASSED)
        assert w.broker.frames == [PASSED]


async def test_responses_come_in_the_order_of_the_requests() -> None:
    """The client sends calls to the controller and to a broker in turn, all at once."""
    async with endpoint_world() as w:
        w.controller.respond = lambda call: CreateTopicsResponse((CreatedTopic("t"),))
        client = await w.connect()
        sent = []
        for i in range(0, 40, 2):
            sent.append(corr(client.send(passed(i))))
            sent.append(corr(client.send(write_request(CREATE_TOPICS, 0, i + 1, "me", **create(0)))))
        found = [int.from_bytes((await client.frame())[:4], "big") for _ in sent]
        assert found == sent == list(range(40))
        assert len(w.controller.calls) == len(w.broker.frames) == 20


async def test_a_client_keeps_one_broker_for_all_its_requests() -> None:
    async with endpoint_world(brokers=3) as w:
        for client in [await w.connect() for _ in range(8)]:
            for _ in range(5):
                await client.exchange(PASSED)
        assert sum(broker.opened for broker in w.brokers) == 8
        assert sum(len(broker.frames) for broker in w.brokers) == 40


async def test_brokers_that_do_not_listen_are_passed_over() -> None:
    async with endpoint_world(brokers=3) as w:
        for broker in w.brokers[:2]:
            await broker.stop()
        assert await (await w.connect()).exchange(PASSED) == echo(PASSED)


async def test_without_any_broker_the_client_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async with endpoint_world(brokers=0) as w:
        assert await (await w.connect()).refused(PASSED)
        assert "no broker is known" in caplog.text


async def test_a_client_waits_until_the_brokers_are_known() -> None:
    async with endpoint_world() as w:
        w.directory.read.clear()
        client = await w.connect()
        client.send(PASSED)
        await eventually(lambda: w.listener.buffered_bytes > 0)
        w.directory.read.set()
        assert await client.frame() == echo(PASSED)


async def test_the_wait_for_brokers_to_be_known_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async with endpoint_world(connect_timeout_ms=50) as w:
        w.directory.read.clear()
        assert await (await w.connect()).refused(PASSED)
        assert "not read yet" in caplog.text


async def test_a_large_response_to_a_slow_client_is_held_in_pieces() -> None:
    """64 MB for a client that does not read: the broker must wait, and the endpoint holds a few pieces."""
    size = 64_000_000
    async with endpoint_world(frame_timeout_ms=60_000) as w:
        w.broker.script = lambda frame: frame[4:8] + bytes(size)
        client = await w.connect()
        client.send(PASSED)
        assert int.from_bytes(await client.reader.readexactly(4), "big") == size + 4
        (to_endpoint,) = w.broker.open
        seen: list[int] = []

        def stands_still() -> bool:
            seen.append(to_endpoint.transport.get_write_buffer_size())
            return len(seen) > 3 and len(set(seen[-3:])) == 1

        await eventually(stands_still)
        assert seen[-1] > size // 2, "the rest is in the kernel's buffers, and a little of it in the endpoint"
        left = size + 4
        while left:
            left -= len(await client.reader.read(1_000_000))
        client.send(PASSED)


async def test_a_client_that_reads_nothing_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async with endpoint_world(frame_timeout_ms=2_000) as w:
        w.broker.script = lambda frame: frame[4:8] + bytes(64_000_000)
        client = await w.connect()
        client.send(PASSED)
        await eventually(lambda: w.listener.connections == 0)
        await eventually(lambda: not w.broker.open)
        assert "not taken, in time" in caplog.text
        client.writer.transport.abort()


async def test_a_client_that_hangs_up_while_its_broker_works_frees_both() -> None:
    async with endpoint_world() as w:
        w.broker.gate.clear()
        client = await w.connect()
        client.send(PASSED)
        await eventually(lambda: bool(w.broker.frames))
        client.writer.close()
        await eventually(lambda: w.listener.connections == 0)
        w.broker.gate.set()
        await eventually(lambda: not w.broker.open)


async def test_a_broker_that_hangs_up_in_mid_response_ends_the_clients_connection() -> None:
    async with endpoint_world() as w:
        w.broker.script = lambda frame: w.broker.hang_up()
        assert await (await w.connect()).refused(PASSED)


async def test_a_broker_that_hangs_up_between_requests_ends_the_clients_connection() -> None:
    async with endpoint_world() as w:
        client = await w.connect()
        await client.exchange(PASSED)
        w.broker.hang_up()
        assert await client.closed()


async def test_a_broker_that_hangs_up_during_a_call_to_the_controller_does_not_lose_the_response() -> None:
    async with endpoint_world() as w:
        w.controller.respond = lambda call: CreateTopicsResponse((CreatedTopic("t"),))
        w.controller.gate.clear()
        client = await w.connect()
        await client.exchange(PASSED)
        client.request(CREATE_TOPICS, 0, **create(0))
        await eventually(lambda: bool(w.controller.calls))
        w.broker.hang_up()
        await eventually(lambda: not w.broker.open)
        w.controller.gate.set()
        assert len(await client.frame()) > 4
        assert await client.closed()


@pytest.mark.parametrize("response", [b"\0\0\0\x08rest", b"\0\0"], ids=["another correlation id", "too short"])
async def test_a_garbled_response_ends_the_clients_connection(response: bytes) -> None:
    async with endpoint_world() as w:
        w.broker.script = lambda frame: response
        assert await (await w.connect()).refused(PASSED)


async def test_a_stop_does_not_wait_until_a_client_reads() -> None:
    stream = NeverTaken()
    async with endpoint_world() as w:
        slot = w.listener.slots.enter(stream.peer, stream.abort)
        assert slot is not None
        serving = asyncio.create_task(Client(w.listener, stream, slot).serve())  # type: ignore[arg-type]
        await eventually(lambda: stream.waiting)
        serving.cancel()
        await asyncio.wait({serving})
        slot.leave()
    assert serving.cancelled()
    assert stream.ends[0] == "aborted"


class NeverTaken:
    """A stream on which no byte ever comes or goes."""

    peer = "a client"

    def __init__(self) -> None:
        self.waiting = False
        self.ends: list[str] = []

    async def wait(self, size: int, timeout_ms: int) -> bytes:
        self.waiting = True
        await asyncio.Future[bytes]()
        raise AssertionError("no byte ever comes")

    def abort(self) -> None:
        self.ends.append("aborted")

    def close(self) -> None:
        self.ends.append("closed")


# -- bounds


@pytest.mark.parametrize(("size", "allowed"), [(-1, False), (7, False), (8, True), (1_000, True), (1_001, False)])
async def test_a_frame_must_have_an_allowed_size(size: int, allowed: bool) -> None:
    async with endpoint_world(frame_bytes_max=1_000) as w:
        client = await w.connect()
        client.writer.write(size.to_bytes(4, "big", signed=True) + PASSED[:8] + bytes(max(0, size - 8)))
        if allowed:
            assert len(await client.frame()) == size + 4
        else:
            assert await client.closed()


async def test_a_client_without_the_protocol_is_cut_off() -> None:
    async with endpoint_world() as w:
        client = await w.connect()
        client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.closed()


async def test_the_received_bytes_of_all_clients_together_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Announced bytes do not count: a few idle clients could keep all others out."""
    async with endpoint_world(frame_bytes_max=1_000_000, buffered_bytes_max=1_500_000) as w:
        idle = [await w.connect() for _ in range(3)]
        for announcing in idle:
            announcing.writer.write((900_000).to_bytes(4, "big"))
        first, second = await w.connect(), await w.connect()
        first.writer.write((900_000).to_bytes(4, "big") + bytes(800_000))
        await eventually(lambda: w.listener.buffered_bytes == 800_000)
        second.writer.write((900_000).to_bytes(4, "big") + bytes(800_000))
        assert await second.closed()
        await eventually(lambda: w.listener.buffered_bytes == 800_000)
        assert "all clients together" in caplog.text


async def test_connections_beyond_the_limit_are_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with endpoint_world(connections_max=2) as w:
        kept = [await w.connect() for _ in range(2)]
        for client in kept:
            assert await client.exchange(PASSED) == echo(PASSED)
        assert await (await w.connect()).closed()
        assert await kept[0].exchange(PASSED) == echo(PASSED)
        assert "raise admin.connections_max" in caplog.text


async def test_a_crowd_that_sends_nothing_but_api_versions_makes_room_for_clients() -> None:
    async with endpoint_world(connections_max=6) as w:
        first = await w.connect()
        await first.exchange(PASSED)
        crowd = [await w.connect() for _ in range(20)]
        for stranger in crowd[-5:]:
            await stranger.exchange(bare(18, 99))
        late = await w.connect()
        for client in (late, first):
            assert await client.exchange(PASSED) == echo(PASSED)
        assert w.listener.connections == 6


async def test_a_large_api_versions_request_reaches_no_broker() -> None:
    async with endpoint_world() as w:
        assert await (await w.connect()).refused(bare(18, 3, 100_000))
        assert w.broker.frames == []


async def test_unread_bytes_do_not_hold_an_ended_connection_for_ever() -> None:
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    stream = Stream(reader, writer, 100)
    writer.write(bytes(20_000_000))
    stream.close()
    assert writer.transport.get_write_buffer_size() > 0
    await eventually(lambda: near.fileno() == -1)
    far.close()


async def test_a_client_that_sends_nothing_or_half_a_request_is_closed() -> None:
    async with endpoint_world(frame_timeout_ms=100) as w:
        silent, halting = await w.connect(), await w.connect()
        halting.writer.write((100).to_bytes(4, "big") + PASSED)
        assert await silent.closed()
        assert await halting.closed()


async def test_an_address_that_is_in_use_is_named() -> None:
    async with endpoint_world() as w:
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{w.listener.port}"):
            await AdminListener("127.0.0.1", w.listener.port, w.listener.directory, w.controller).start()


@pytest.mark.parametrize(
    "test",
    [
        test_responses_come_in_the_order_of_the_requests,
        test_a_large_response_to_a_slow_client_is_held_in_pieces,
        test_a_client_that_hangs_up_while_its_broker_works_frees_both,
        test_a_broker_that_hangs_up_in_mid_response_ends_the_clients_connection,
        test_a_broker_that_hangs_up_between_requests_ends_the_clients_connection,
        test_a_broker_that_hangs_up_during_a_call_to_the_controller_does_not_lose_the_response,
        test_a_client_that_sends_nothing_or_half_a_request_is_closed,
    ],
)
def test_it_runs_on_uvloop_too(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(test())
