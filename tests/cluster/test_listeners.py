"""Bytes that no broker and no operator would send: on the controller listener and on the HTTP socket."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable

import pytest

from brokers.wire.versions import Api
from tests.cluster.scene import Scene
from tests.polling import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")

CONNECTIONS_MAX = 40
"""``listener.connections_max`` of the shared scene; its ``listener.frame_timeout_ms`` is 1,000."""
HTTP_CONNECTIONS = 80
"""More than the daemon serves at a time."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api: int, version: int, correlation: int = 7) -> bytes:
    return struct.pack(">hhih", api, version, correlation, -1)


RANDOM = random.Random(3).randbytes(2_000)
BAD: dict[str, bytes] = {
    "noise": RANDOM,
    "http": b"GET / HTTP/1.1\r\nHost: regent\r\n\r\n",
    "tls hello": bytes.fromhex("16030100c8010000c40303") + RANDOM[:189],
    "a negative length": struct.pack(">i", -2),
    "four gigabytes announced": struct.pack(">I", 0xFFFF_FFF0) + b"x" * 100,
    "above the limit": struct.pack(">i", 16_777_217),
    "no header": framed(b"\x00"),
    "an empty frame": framed(b""),
    "a client's call": framed(header(Api.METADATA, 12) + b"\x00\x00"),
    "a controller's call": framed(header(Api.LEADER_AND_ISR, 7) + b"\x00" * 50),
    "a version of the future": framed(header(Api.ALTER_PARTITION, 99) + b"\x00" * 50),
    "a negative version": framed(header(Api.CONTROLLED_SHUTDOWN, -1) + b"\x00" * 50),
    "half a call": framed(header(Api.ALTER_PARTITION, 3) + b"\x00\x00\x00\x00\x02"),
    "an array of two billion": framed(header(Api.ALTER_PARTITION, 3) + b"\x00" + bytes(12) + b"\xff\xff\xff\xff\x07"),
}


async def test_garbage_on_the_controller_listener_ends_its_connection_and_nothing_else(stage: Scene) -> None:
    epoch = await stage.active()
    for name, payload in BAD.items():
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.daemon.port)
        writer.write(payload)
        assert await ended(reader), f"{name} was answered or left open"
        writer.close()
    half = await opened(lambda: asyncio.open_connection("127.0.0.1", stage.daemon.port), 5, b"\x00\x00\x10")
    assert all(await asyncio.gather(*(ended(reader) for reader, _ in half))), "a slow frame is cut off"
    crowd = await opened(lambda: asyncio.open_connection("127.0.0.1", stage.daemon.port), 2 * CONNECTIONS_MAX, b"")
    assert all(await asyncio.gather(*(ended(reader) for reader, _ in crowd))), "silent ones hold no place for ever"
    closed(half + crowd)
    assert stage.daemon.log_has("is closed: ")
    stopped = await stage.w.cluster.brokers[1].shut_down()
    assert stopped.first_try, "brokers are served as before"
    await stage.w.cluster.brokers[1].boot()
    assert await stage.active() == epoch
    await stage.proven()


async def test_a_future_api_versions_is_answered_with_what_is_served(stage: Scene) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.daemon.port)
    writer.write(framed(header(Api.API_VERSIONS, 99, 4_711) + b"\x00" * 20))
    [length] = struct.unpack(">i", await reader.readexactly(4))
    correlation, error = struct.unpack_from(">ih", await reader.readexactly(length))
    assert (correlation, error) == (4_711, 35), "UNSUPPORTED_VERSION, so that the broker asks again"
    writer.close()


async def test_garbage_and_idlers_on_the_http_socket_hold_nobody_up(stage: Scene) -> None:
    async def connect() -> Streams:
        return await asyncio.open_unix_connection(str(stage.daemon.socket))

    for payload in (b"GET /" + b"x" * 200_000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000):
        reader, writer = await connect()
        writer.write(payload)
        assert await refused(reader), payload[:40]
        writer.close()
    crowd = await opened(connect, HTTP_CONNECTIONS, b"GET /v1/status HTTP/1.1\r\nHost:")
    crowd += await opened(connect, 5, RANDOM)

    async def served() -> bool:
        status = await stage.daemon.status()
        return status is not None and status["mode"] == "active"

    await eventually(served, 20.0)
    assert all(await asyncio.gather(*(refused(reader) for reader, _ in crowd)))
    closed(crowd)
    await stage.proven()


async def opened(connect: Callable[[], Awaitable[Streams]], count: int, begin: bytes) -> list[Streams]:
    """So many connections, each with the beginning of something."""
    streams = [await connect() for _ in range(count)]
    for _, writer in streams:
        writer.write(begin)
    return streams


def closed(streams: list[Streams]) -> None:
    for _, writer in streams:
        writer.close()


async def refused(reader: asyncio.StreamReader) -> bool:
    """Whether HTTP answered that the request is bad, or hung up."""
    try:
        answer = await asyncio.wait_for(reader.read(100), 20.0)
    except ConnectionError:
        return True
    return answer == b"" or answer.startswith(b"HTTP/1.1 4")


async def ended(reader: asyncio.StreamReader, within_s: float = 10.0) -> bool:
    """Whether the daemon hung up without a word."""
    try:
        return await asyncio.wait_for(reader.read(100), within_s) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False
