"""Bulk requests: cut by number of paths and by bytes, a bounded number under way, answers in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from metadata_store.kazoo_adapter import jute
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.port import REQUEST_BYTES_MAX

Request = tuple[int, bytes, int]
"""Opcode, body, and how many paths it covers."""

P = TypeVar("P", bytes, str)


def by_size(paths: Sequence[P], count_max: int, overhead: int) -> Iterator[Sequence[P]]:
    """Slices of at most ``count_max`` paths and ``REQUEST_BYTES_MAX``, ``overhead`` being added to each path."""
    start = size = 0
    for at, path in enumerate(paths):
        cost = len(path) + overhead
        if at > start and (at - start >= count_max or size + cost > REQUEST_BYTES_MAX):
            yield paths[start:at]
            start, size = at, 0
        size += cost
    if start < len(paths):
        yield paths[start:]


def multi_reads(paths: Sequence[bytes], count_max: int) -> Iterator[Request]:
    """MultiReads of all paths."""
    for chunk in by_size(paths, count_max, jute.READ_OVERHEAD):
        yield jute.MULTI_READ, jute.multi_read(chunk), len(chunk)


def single_reads(paths: Sequence[bytes]) -> Iterator[Request]:
    """The same for a server without MultiRead."""
    for path in paths:
        yield jute.GET_DATA, jute.raw_read(path), 1


def watch_chunks(*kinds: Sequence[str]) -> Iterator[tuple[Sequence[str], ...]]:
    """Paths of several kinds as chunks that hold one kind each, the rest of the kinds being empty."""
    for at, paths in enumerate(kinds):
        for chunk in by_size(paths, len(paths), jute.TEXT_OVERHEAD):
            yield tuple(chunk if kind == at else () for kind in range(len(kinds)))


async def answers(
    send: Callable[[int, bytes], asyncio.Future[Reply]], requests: Iterable[Request], in_flight_max: int
) -> AsyncIterator[tuple[Reply, int]]:
    """Sends requests, at most ``in_flight_max`` at a time, and yields each answer with the paths it covers."""
    waiting: deque[tuple[asyncio.Future[Reply], int]] = deque()
    try:
        for opcode, body, count in requests:
            if len(waiting) == in_flight_max:
                future, covered = waiting.popleft()
                yield await future, covered
            waiting.append((send(opcode, body), count))
        while waiting:
            future, covered = waiting.popleft()
            yield await future, covered
    finally:
        for future, _ in waiting:
            _abandon(future)


def _abandon(future: asyncio.Future[Reply]) -> None:
    """Nobody waits for this answer any more; an error that it holds already has been reported by another one."""
    if not future.cancel() and not future.cancelled():
        future.exception()
