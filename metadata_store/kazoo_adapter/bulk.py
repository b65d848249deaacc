"""Sends bulk requests: cut by number of paths and by bytes, a bounded number under way, replies in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import TypeVar

from metadata_store.kazoo_adapter import jute
from metadata_store.kazoo_adapter.jute import Reply

Request = tuple[int, bytes, int]
"""Opcode, body, and how many paths it covers."""

P = TypeVar("P", bytes, str)


def by_size(paths: Sequence[P], count_max: int, bytes_max: int, overhead: int) -> Iterator[Sequence[P]]:
    """Yields slices of at most ``count_max`` paths and ``bytes_max`` bytes, each path with ``overhead`` added."""
    start = 0
    while start < len(paths):
        chunk = paths[start : start + count_max]
        if len(chunk) * overhead + sum(map(len, chunk)) > bytes_max:
            sizes = accumulate(len(path) + overhead for path in chunk)
            chunk = chunk[: max(1, sum(1 for _ in takewhile(lambda size: size <= bytes_max, sizes)))]
        yield chunk
        start += len(chunk)


def multi_reads(paths: Sequence[bytes], count_max: int, bytes_max: int) -> Iterator[Request]:
    """Yields MultiReads of all paths."""
    for chunk in by_size(paths, count_max, bytes_max, jute.READ_OVERHEAD):
        yield jute.MULTI_READ, jute.multi_read(chunk), len(chunk)


def single_reads(paths: Sequence[bytes]) -> Iterator[Request]:
    """Yields the same for a server without MultiRead."""
    for path in paths:
        yield jute.GET_DATA, jute.raw_read(path), 1


def watch_chunks(kinds: Sequence[Sequence[str]], bytes_max: int) -> Iterator[tuple[Sequence[str], ...]]:
    """Yields paths of several kinds as chunks of one kind each, the other kinds being empty."""
    for at, paths in enumerate(kinds):
        for chunk in by_size(paths, len(paths), bytes_max, jute.TEXT_OVERHEAD):
            yield tuple(chunk if kind == at else () for kind in range(len(kinds)))


async def answers(
    send: Callable[[int, bytes], asyncio.Future[Reply]], requests: Iterable[Request], in_flight_max: int
) -> AsyncIterator[tuple[Reply, int]]:
    """Sends requests, at most ``in_flight_max`` at a time, and yields each reply with its paths."""
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
    """Abandons a reply that has no caller any more; another reply has reported any error that it holds."""
    if not future.cancel() and not future.cancelled():
        future.exception()
