"""The admin endpoint over real sockets: what is passed on, clients and brokers that fail, bounds."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from admin.client import Client
from admin.listener import AdminListener
from admin.streams import Stream
from brokers.wire.messages.topics import CreatedTopic, CreateTopicsResponse
from tests.core.admin_kit import corr, echo, place
from tests.core.admin_requests import CREATE_TOPICS, PASSED, create, passed
from tests.core.wire_kit import write_request
from tests.polling import eventually

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


async def test_a_client_that_comes_before_the_brokers_are_known_waits_for_them() -> None:
    async with place() as p:
        p.directory.read.clear()
        client = await p.connect()
        client.send(PASSED)
        await eventually(lambda: p.listener.buffered_bytes > 0)
        p.directory.read.set()
        assert await client.frame() == echo(PASSED)


async def test_a_client_does_not_wait_for_ever_for_brokers_to_be_known(caplog: pytest.LogCaptureFixture) -> None:
    async with place(connect_timeout_ms=50) as p:
        p.directory.read.clear()
        client = await p.connect()
        client.send(PASSED)
        assert await client.closed()
        assert "not read yet" in caplog.text


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
        held = p.listener.slots.enter(stream.peer, stream.abort)
        assert held is not None
        serving = asyncio.create_task(Client(p.listener, stream, held).serve())  # type: ignore[arg-type]
        await eventually(lambda: stream.waiting)
        serving.cancel()
        await asyncio.wait({serving})
        held.leave()
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


# -- bounds


@pytest.mark.parametrize("head", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\7", b"GET "])
async def test_a_frame_of_a_size_that_is_not_allowed_ends_the_connection(head: bytes) -> None:
    async with place() as p:
        client = await p.connect()
        client.writer.write(head + bytes(64))
        assert await client.closed()


async def test_the_requests_of_all_clients_together_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """By what they have sent: what they only announce keeps nobody out."""
    async with place(frame_bytes_max=1_000_000, buffered_bytes_max=1_500_000) as p:
        idle = [await p.connect() for _ in range(3)]
        for announcing in idle:
            announcing.writer.write((900_000).to_bytes(4, "big"))
        first, second = await p.connect(), await p.connect()
        first.writer.write((900_000).to_bytes(4, "big") + bytes(800_000))
        await eventually(lambda: p.listener.buffered_bytes == 800_000)
        second.writer.write((900_000).to_bytes(4, "big") + bytes(800_000))
        assert await second.closed()
        await eventually(lambda: p.listener.buffered_bytes == 800_000)
        assert "all clients together" in caplog.text


async def test_connections_beyond_the_limit_are_closed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with place(connections_max=2) as p:
        kept = [await p.connect() for _ in range(2)]
        for client in kept:
            client.send(PASSED)
            assert await client.frame() == echo(PASSED)
        assert await (await p.connect()).closed()
        kept[0].send(PASSED)
        assert await kept[0].frame() == echo(PASSED)
        assert "raise admin.connections_max" in caplog.text


async def test_a_crowd_that_asks_for_versions_alone_makes_room_for_clients() -> None:
    async with place(connections_max=6) as p:
        first = await p.connect()
        first.send(PASSED)
        await first.frame()
        crowd = [await p.connect() for _ in range(20)]
        for stranger in crowd[-5:]:
            stranger.send(b"\0\x12\0\x63" + bytes(4) + b"\xff\xff")
            await stranger.frame()
        late = await p.connect()
        for client in (late, first):
            client.send(PASSED)
            assert await client.frame() == echo(PASSED)
        assert p.listener.connections == 6


async def test_a_large_question_for_versions_reaches_no_broker() -> None:
    async with place() as p:
        client = await p.connect()
        client.send(b"\0\x12\0\3" + bytes(4) + b"\xff\xff" + bytes(100_000))
        assert await client.closed()
        assert p.broker.frames == []


async def test_what_is_not_taken_does_not_hold_an_ended_connection_for_ever() -> None:
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    stream = Stream(reader, writer, 100)
    writer.write(bytes(20_000_000))
    stream.close()
    assert writer.transport.get_write_buffer_size() > 0
    await eventually(lambda: near.fileno() == -1)
    far.close()


async def test_whoever_only_connects_is_closed_and_so_is_a_request_that_does_not_arrive() -> None:
    async with place(frame_timeout_ms=100) as p:
        silent, halting = await p.connect(), await p.connect()
        halting.writer.write((100).to_bytes(4, "big") + PASSED)
        assert await silent.closed()
        assert await halting.closed()


async def test_an_address_that_is_taken_is_named() -> None:
    async with place() as p:
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{p.listener.port}"):
            await AdminListener("127.0.0.1", p.listener.port, p.listener.directory, p.controller).start()


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


@pytest.mark.parametrize(
    "test",
    [
        test_answers_come_in_the_order_of_the_requests,
        test_a_large_answer_to_a_slow_client_is_held_in_pieces,
        test_a_client_that_hangs_up_while_its_broker_thinks_frees_both,
        test_a_broker_that_hangs_up_in_mid_answer_ends_the_clients_connection,
        test_a_broker_that_hangs_up_between_requests_ends_the_clients_connection,
        test_a_broker_that_hangs_up_during_a_call_to_the_controller_leaves_its_answer,
        test_whoever_only_connects_is_closed_and_so_is_a_request_that_does_not_arrive,
    ],
)
def test_it_runs_on_uvloop_too(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(test())
