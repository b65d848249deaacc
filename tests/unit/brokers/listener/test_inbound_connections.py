"""Connections to the controller listener that misbehave: garbage, slow peers, crowds, and large requests."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.kit.deadlines import eventually
from tests.kit.listener import ALLOCATE, ALTER, SHUTDOWN, VERSIONS, desk, isr_change
from tests.kit.wire import write_request


def framed(text: str) -> bytes:
    """Returns bytes in hexadecimal with their length."""
    data = bytes.fromhex(text)
    return len(data).to_bytes(4, "big") + data


ISR_HEAD = "0038 0003 00000001 0001 32 00 00000001"
GARBAGE = {
    "http": (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes where at most 1000 are allowed"),
    "tls": (bytes.fromhex("160301020001000001fc0303") + bytes(300), "a frame of"),
    "negative length": (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
    "long frame": ((1_001).to_bytes(4, "big"), "a frame of 1001 bytes"),
    "empty frame": (framed(""), "does not fit into 0 bytes"),
    "short header": (framed("0038 0003 00"), "does not fit into 5 bytes"),
    "other api": (
        framed("0003 000c 00000001 0001 32 00 00 00"),
        "API key 3 v12, which the controller listener does not serve",
    ),
    "other version": (framed("0038 0009 00000001 0001 32 00 00 00"), "API key 56 v9, which"),
    "shutdown v0": (framed("0007 0000 00000001 00000002"), "API key 7 v0, which"),
    "shutdown v1": (framed("0007 0001 00000001 0001 61 00000002"), "API key 7 v1, which"),
    "cut body": (framed(ISR_HEAD), "does not fit into 16 bytes"),
    "huge array": (framed(f"{ISR_HEAD} 0000000000000009 ffffffff0f 00"), "array of 4294967294 items"),
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_closes_its_own_connection_alone_with_one_log_line_for_its_peer(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, why = GARBAGE[kind]
    async with desk(frame_bytes_max=1_000) as d:
        good = await d.connect()
        await good.call(VERSIONS, 0)
        for _ in range(20):
            bad = await d.connect()
            bad.writer.write(data)
            assert await bad.closed()
        assert (await good.allocate()).error_code == 0
        assert d.listener.connections == 1
    [line] = [r.getMessage() for r in caplog.records if "a connection from 127.0.0.1 is closed: " in r.getMessage()]
    assert why in line


# -- slow peers


@pytest.mark.parametrize("begun", [b"\0\0\0\x20\0\x38", b"\0\0"])
@pytest.mark.parametrize("served", [False, True])
async def test_an_incomplete_request_ends_its_connection(
    begun: bytes, served: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With ``served`` it comes in one piece with a request that is served."""
    async with desk(frame_timeout_ms=1_500) as d:
        peer = await d.connect()
        if served:
            frame = peer.frame(ALLOCATE, 0, broker_id=1, broker_epoch=1)
            begun = len(frame).to_bytes(4, "big") + frame + begun
        peer.writer.write(begun)
        assert await peer.closed()
        assert len(d.double.calls) == served
    assert "does not arrive whole" in caplog.text


async def test_a_peer_that_does_not_take_its_responses_loses_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(frame_timeout_ms=100) as d:
        d.double.remaining = [("a-topic-with-a-long-name", p) for p in range(50_000)]
        peer = await d.connect()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            peer.begin(SHUTDOWN, 3)
        await eventually(lambda: d.double.calls and d.listener.connections == 0)
    assert "does not take its response" in caplog.text


async def test_an_idle_connection_ends_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(idle_timeout_ms=1_500) as d:
        peer = await d.connect()
        await peer.allocate()
        assert await peer.closed()
    assert not caplog.records


@pytest.mark.parametrize("requests_versions", [False, True])
async def test_a_connection_that_was_never_served_ends_sooner_than_an_idle_one(
    requests_versions: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(frame_timeout_ms=1_500) as d:
        broker, stranger = await d.connect(), await d.connect()
        await broker.allocate()
        if requests_versions:
            await stranger.call(VERSIONS, 0)
        assert await stranger.closed()
        assert (await broker.call(VERSIONS, 0)).error_code == 0
    assert not caplog.records


async def test_a_connection_whose_first_call_is_slow_does_not_count_as_never_served() -> None:
    """Nor does its request count as incomplete, which arrived in two pieces."""
    async with desk(frame_timeout_ms=1_500) as d:
        d.double.gate.clear()
        broker, stranger = await d.connect(), await d.connect()
        frame = broker.frame(ALLOCATE, 0, broker_id=1, broker_epoch=1)
        broker.writer.write(len(frame).to_bytes(4, "big") + frame[:2])
        await eventually(lambda: d.listener.slots.held == 6)
        broker.writer.write(frame[2:])
        await d.in_progress()
        assert await stranger.closed()
        d.double.gate.set()
        assert (await broker.response(ALLOCATE, 0)).error_code == 0


async def test_a_flood_of_requests_for_versions_does_not_count_as_a_slow_call() -> None:
    async with desk(frame_timeout_ms=1_500, call_timeout_ms=3_000) as d:
        stranger = await d.connect()

        async def flood() -> None:
            while True:
                stranger.send(write_request(VERSIONS, 0, 1))
                await stranger.writer.drain()
                await stranger.reader.read(100_000)

        flooding = asyncio.create_task(flood())
        await d.left(1)
        await d.left(0)
        flooding.cancel()


# -- crowds


async def test_strangers_that_fill_every_slot_give_way_to_brokers(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(connections_max=5) as d:
        broker = await d.connect()
        await broker.allocate()
        crowd = [await d.connect() for _ in range(20)]
        for stranger in crowd[-4:]:
            await stranger.call(VERSIONS, 0)
        assert d.listener.connections == 5
        other = await d.connect()
        assert (await other.allocate(2)).error_code == 0
        assert (await broker.allocate()).error_code == 0
    assert not caplog.records


async def test_brokers_above_the_bound_are_refused_until_one_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with desk(connections_max=2) as d:
        peers = [await d.connect() for _ in range(2)]
        for peer in peers:
            await peer.allocate()
        for _ in range(10):
            assert await (await d.connect()).closed()
        peers[0].writer.close()
        await d.left(1)
        assert (await (await d.connect()).call(VERSIONS, 0)).error_code == 0
    [refused] = [r.getMessage() for r in caplog.records if "is refused" in r.getMessage()]
    assert "raise listener.connections_max" in refused


async def test_bytes_of_all_peers_are_bounded_as_they_arrive_and_not_as_they_are_announced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    size = 1_000_000
    head = write_request(ALTER, 3, 0, **isr_change(partitions=3_000))[:2_000]
    async with desk(buffered_bytes_max=2 * size) as d:
        peers = [await d.connect() for _ in range(3)]
        for peer in peers:
            peer.writer.write(size.to_bytes(4, "big") + head[:1])
        await eventually(lambda: d.listener.slots.held == 15)
        for peer in peers[:2]:
            peer.writer.write(head[1:] + bytes(size - len(head) - 10))
        await eventually(lambda: d.listener.slots.held >= 2 * size - 20)
        peers[2].writer.write(head[1:] + bytes(size - len(head) - 10))
        assert await peers[2].closed()
        broker = await d.connect()
        assert (await broker.allocate(2)).error_code == 0
        broker.writer.write(size.to_bytes(4, "big") + bytes(size - 10))
        await d.left(2)
        await eventually(lambda: d.listener.slots.held >= 2 * size - 20)
        assert d.listener.slots.held <= 2 * size
    assert "all peers together" in caplog.text


async def test_a_call_counts_until_its_response_is_sent() -> None:
    async with desk() as d:
        d.double.gate.clear()
        peer = await d.connect()
        peer.begin(ALTER, 3, **isr_change(partitions=3_000))
        await d.in_progress()
        assert d.listener.slots.held > 60_000
        d.double.gate.set()
        await peer.response(ALTER, 3)
        await eventually(lambda: d.listener.slots.held == 0)


# -- large requests


async def test_a_large_call_of_a_registered_broker_is_read_while_others_are_served() -> None:
    async with desk() as d:
        d.double.known = {(1, 57)}
        peer, quick = await d.connect(), await d.connect()
        response, versions = await asyncio.gather(
            peer.call(ALTER, 3, **isr_change(partitions=3_000)), quick.call(VERSIONS, 0)
        )
        assert (response.error_code, len(response.topics[0].partitions)) == (0, 3_000)
        assert versions.error_code == 0


@pytest.mark.parametrize("known", [(1, 56), (2, 57)])
async def test_a_large_call_is_refused_unread_unless_its_broker_is_registered(known: tuple[int, int]) -> None:
    async with desk() as d:
        d.double.known = {known}
        peer = await d.connect()
        await peer.allocate()
        frame = peer.frame(ALTER, 3, **isr_change(partitions=3_000))
        peer.send(frame[:60] + b"\xff" * (len(frame) - 60))
        assert (await peer.response(ALTER, 3)).error_code == 77
        assert len(d.double.calls) == 1


@pytest.mark.parametrize("serving", [True, False])
@pytest.mark.parametrize("kind", ["ISR changes", "another broker's epoch", "versions", "an envelope", "zeros"])
async def test_of_a_strangers_large_request_only_the_beginning_is_taken(kind: str, serving: bool) -> None:
    large = isr_change(partitions=3_000)
    heads = {
        "ISR changes": write_request(ALTER, 3, 1, **large),
        "another broker's epoch": write_request(ALTER, 3, 1, **(large | {"broker_id": 2})),
        "versions": write_request(VERSIONS, 0, 1),
        "an envelope": bytes.fromhex("003a 0000 00000001 ffff 00"),
    }
    async with desk(serving=serving) as d:
        d.double.known = {(1, 56), (2, 56)}
        peer = await d.connect()
        peer.writer.write((10_000_000).to_bytes(4, "big") + heads.get(kind, b"").ljust(2_000, b"\0")[:2_000])
        assert await peer.closed()
        assert d.double.calls == []


async def test_a_large_first_call_of_a_registered_broker_is_taken_in_whatever_pieces_it_arrives() -> None:
    async with desk() as d:
        d.double.known = {(1, 57)}
        peer = await d.connect()
        frame = peer.frame(ALTER, 3, **isr_change(partitions=3_000))
        framed = len(frame).to_bytes(4, "big") + frame
        for start in range(0, len(framed), 700):
            peer.writer.write(framed[start : start + 700])
            await asyncio.sleep(0)
        assert (await peer.response(ALTER, 3)).error_code == 0


async def test_a_large_call_of_an_api_whose_calls_are_small_closes_its_connection() -> None:
    async with desk() as d:
        peer = await d.connect()
        peer.send(peer.frame(ALLOCATE, 0, broker_id=1, broker_epoch=1) + bytes(40_000))
        assert await peer.closed()


def test_misbehaving_connections_end_on_uvloop_too(caplog: pytest.LogCaptureFixture) -> None:
    uvloop.run(test_garbage_closes_its_own_connection_alone_with_one_log_line_for_its_peer("long frame", caplog))
    uvloop.run(test_a_peer_that_does_not_take_its_responses_loses_its_connection(caplog))
