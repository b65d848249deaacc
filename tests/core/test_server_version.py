"""What a server is asked by four-letter commands, and what answers that is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from metadata_store.kazoo_adapter.server_version import server_limits, server_version

LONG = b"x" * 200_000


@asynccontextmanager
async def answering(said: bytes) -> AsyncIterator[int]:
    """A server at a port of this machine that says this to everybody."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("said", [LONG, LONG + b"\n", b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_what_is_no_zookeeper_server_says_nothing(said: bytes) -> None:
    async with answering(said) as port:
        assert await server_version("127.0.0.1", port) is None
        assert await server_limits("127.0.0.1", port) is None


async def test_a_zookeeper_server_says_its_release() -> None:
    async with answering(b"Zookeeper version: 3.8.4-abc, built on 2024\nLatency\n") as port:
        assert await server_version("127.0.0.1", port) == (3, 8)
