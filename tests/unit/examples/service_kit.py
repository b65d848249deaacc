"""Makes services, each like a process of its own, on one folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

from examples.kv.service import FLUSH_BYTES_MAX, KeyValueService
from examples.kv.writer import SEGMENT_BYTES_MAX, Log, Segments
from regent_agent.service import OpenedRegion


def region(token: int, number: int = 1, start: bytes = b"", end: bytes = b"", sequence: int = 0) -> OpenedRegion:
    return OpenedRegion(number, "t", start, end, token, sequence, {})


@asynccontextmanager
async def service(
    data: Path, name: str, *, segment_bytes: int = SEGMENT_BYTES_MAX, flush_bytes: int = FLUSH_BYTES_MAX
) -> AsyncIterator[KeyValueService]:
    log = Log(Segments(data, name, 1, segment_bytes))
    try:
        service = KeyValueService(data, log, flush_bytes)
        service.admit(True)
        yield service
    finally:
        await log.close()


async def take_over(successor: KeyValueService, dead: str, opened: OpenedRegion) -> int:
    """Does what the daemon has done once a server is dead: fence, split, open."""
    for part in await successor.fence(dead, 1):
        await successor.split(dead, 1, part)
    return await successor.open(opened)


async def error_of(call: Awaitable[object]) -> Exception | None:
    try:
        await call
    except Exception as error:
        return error
    return None
