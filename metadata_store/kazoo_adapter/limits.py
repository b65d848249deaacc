"""Sends bulk requests in parts, a bounded number under way, and learns limits of sizes from connections that ended.

A server closes the connection of a client that announces more than ``jute.maxbuffer`` bytes, and reports it in its own
log alone. A daemon that sends the same again meets the same end, for ever. Other reasons end connections, too, so one
end teaches nothing, and a learned limit holds for some minutes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Final, NamedTuple, TypeVar

from metadata_store.kazoo_adapter import jute
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.port import REQUEST_BYTES_MAX, WRITE_BYTES_MAX

SUSPECT_BYTES: Final = 64 * 1024
"""Requests up to this size are never taken for the reason."""
CUT_BYTES: Final = 56 * 1024
"""Size of batches where larger ones are not accepted: with everything around it, such a request is no suspect."""
BATCH_BYTES_MAX: Final = REQUEST_BYTES_MAX + 4_096
"""Larger requests are no batches: they cannot be cut."""
SOON_S: Final = 2.0
"""A server hangs up when it reads the length; a request that was under way for longer was accepted."""
HOLDS_S: Final = 600.0
"""How long a learned limit holds: then the usual sizes are tried again."""

_log = logging.getLogger("regent.metadata_store")


class Sent(NamedTuple):
    """A request by its operation and its bytes."""

    opcode: int
    size: int

    def like(self, other: Sent) -> bool:
        """Checks whether it may be a retry: that has other epochs and versions in it, of other lengths."""
        return self.opcode == other.opcode and abs(self.size - other.size) * 8 <= self.size


_NOTHING: Final = Sent(0, 0)


class LearnedLimits:
    """Learned sizes. ``batch_bytes`` cuts batches; writes above ``write_bytes`` are refused instead of sent.

    ``clock``: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._batch_bytes, self._write_bytes = REQUEST_BYTES_MAX, WRITE_BYTES_MAX
        self._until_s: float | None = None
        self._refused_bytes = 0
        self._largest = self._suspect = _NOTHING

    @property
    def batch_bytes(self) -> int:
        """Bytes of one batched request."""
        self._expire()
        return self._batch_bytes

    @property
    def write_bytes(self) -> int:
        """Bytes of one write."""
        self._expire()
        return self._write_bytes

    def unanswered(self, opcode: int, size: int, under_way_s: float) -> None:
        """Notes that a connection ended before the reply to a request that had been sent ``under_way_s`` ago."""
        if size > max(SUSPECT_BYTES, self._largest.size) and under_way_s <= SOON_S:
            self._largest = Sent(opcode, size)

    def answered(self, size: int) -> None:
        """Notes a reply: requests of this size are accepted."""
        if size <= SUSPECT_BYTES:
            return
        if size >= self._suspect.size:
            self._suspect = _NOTHING
        if self._until_s is not None and size >= self._refused_bytes:
            self._restore(f"one of {size} bytes got a reply")

    def ended(self) -> None:
        """Judges the end of a connection, after all requests under way on it were noted."""
        found, before = self._largest, self._suspect
        self._largest = _NOTHING
        if found is _NOTHING or before is _NOTHING or not found.like(before):
            self._suspect = found
            return
        self._suspect = _NOTHING
        self._learn(min(found.size, before.size))

    def _learn(self, size: int) -> None:
        """Cuts batches first; a larger request, or one as large although batches are cut, is not sent again."""
        if size > BATCH_BYTES_MAX or self._batch_bytes == CUT_BYTES:
            self._write_bytes = min(self._write_bytes, size - 1)
            bound, bytes_max = "writes are refused above", self._write_bytes
        else:
            self._batch_bytes = CUT_BYTES
            bound, bytes_max = "batches are cut at", CUT_BYTES
        self._refused_bytes, self._until_s = size, self._clock() + HOLDS_S
        _log.warning(
            "two connections to ZooKeeper in a row ended at a request of %d bytes: %s %d bytes for %d minutes, then "
            "larger ones are tried again. Where the servers' logs say 'Len error', their jute.maxbuffer is too small: "
            "raise it to 1048575 (its default) or above",
            size,
            bound,
            bytes_max,
            HOLDS_S / 60,
        )

    def _expire(self) -> None:
        if self._until_s is not None and self._clock() >= self._until_s:
            self._restore(f"after {HOLDS_S / 60:.0f} minutes they are tried again")

    def _restore(self, why: str) -> None:
        self._batch_bytes, self._write_bytes, self._until_s = REQUEST_BYTES_MAX, WRITE_BYTES_MAX, None
        _log.info("requests to ZooKeeper have their usual sizes: %s", why)


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
