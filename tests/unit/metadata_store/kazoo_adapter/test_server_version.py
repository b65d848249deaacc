"""Four-letter commands to ZooKeeper servers, and to servers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from metadata_store.kazoo_adapter.server_version import server_limits, server_version

LONG = b"x" * 200_000


@asynccontextmanager
async def serving(response: bytes) -> AsyncIterator[int]:
    """Serves one response to every connection; yields the port."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("response", [LONG, LONG + b"\n", b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_server_that_is_not_zookeeper_has_no_version(response: bytes) -> None:
    async with serving(response) as port:
        assert await server_version("127.0.0.1", port) is None
        assert await server_limits("127.0.0.1", port) is None


async def test_a_zookeeper_server_has_a_version() -> None:
    async with serving(b"Zookeeper version: 3.8.4-abc, built on 2024\nLatency\n") as port:
        assert await server_version("127.0.0.1", port) == (3, 8)
