"""Results of procedures that have ended: kept for their callers for a time, and found by pid or nonce."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from state_machines.procedures.record import Caller, Record

KEPT_MS: Final = 15 * 60_000
"""Longest time that a result is kept (HBase ``hbase.procedure.cleaner.evict.ttl``)."""
FETCHED_KEPT_MS: Final = 5 * 60_000
"""Time that a result is kept after a caller has fetched it (HBase ``...acked.evict.ttl``)."""
RESULTS_MAX: Final = 10_000
"""Results that are kept; the oldest go first."""
EVICTED_TOGETHER: Final = 100
"""Results beyond ``RESULTS_MAX`` for which an eviction waits, so that it does not come after each call."""
EVICTED_EVERY_MS: Final = 30_000
"""Shortest time between two evictions of results whose time is over (HBase ``hbase.procedure.cleaner.interval``)."""

Nonce = tuple[str, str]
"""Principal and nonce: one caller's nonces never meet another's."""


def loop_ms() -> int:
    """Returns the event loop's clock in milliseconds: unlike the wall clock it is never set."""
    return int(asyncio.get_running_loop().time() * 1000)


class _Due(NamedTuple):
    at_ms: int
    pid: int


class Results:
    """Knows the pid of each nonce, and when each result goes. ``age_ms`` is any clock, always the same one."""

    def __init__(self) -> None:
        self._nonces: dict[Nonce, int] = {}
        self._ended: deque[_Due] = deque()
        self._fetched: deque[_Due] = deque()
        self._kept: set[int] = set()
        self._noted: set[int] = set()
        self._evicted_ms = 0
        self._waiters: dict[int, list[asyncio.Future[Record]]] = {}

    def pid_of(self, caller: Caller) -> int | None:
        """Returns the pid that this caller's nonce has started."""
        return self._nonces.get((caller.principal, caller.nonce)) if caller.nonce else None

    def begun(self, record: Record) -> None:
        """Notes the nonce of a root."""
        if record.caller.nonce and not record.parent:
            self._nonces[record.caller.principal, record.caller.nonce] = record.pid

    def ended(self, record: Record, age_ms: int) -> None:
        """Keeps the result of a root, and gives it to those that wait for it.

        The time runs from now, after a restart anew: the record's own is perhaps of a clock that differs by hours.
        """
        self._kept.add(record.pid)
        self._ended.append(_Due(age_ms + KEPT_MS, record.pid))
        for waiter in self._waiters.pop(record.pid, ()):
            if not waiter.done():
                waiter.set_result(record)

    def fetched(self, pid: int, age_ms: int) -> None:
        """Notes that a caller has the result: it is kept for a shorter time."""
        if pid in self._kept and pid not in self._noted:
            self._noted.add(pid)
            self._fetched.append(_Due(age_ms + FETCHED_KEPT_MS, pid))

    def wait(self, pid: int) -> asyncio.Future[Record]:
        """Returns a future of the record as it has ended."""
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(pid, [])
        waiters.append(future)
        future.add_done_callback(lambda done: _remove(waiters, done))
        return future

    @property
    def next_ms(self) -> int:
        """Returns when the next results go, 0 where none is kept."""
        first_ms = min((due[0].at_ms for due in (self._fetched, self._ended) if due), default=0)
        return first_ms and max(first_ms, self._evicted_ms + EVICTED_EVERY_MS)

    @property
    def overflow(self) -> bool:
        """Checks whether so many results are kept that the oldest go now."""
        return len(self._kept) >= RESULTS_MAX + EVICTED_TOGETHER

    def take_due(self, age_ms: int, count_max: int) -> list[int]:
        """Removes and returns at most ``count_max`` roots whose results go now."""
        found: list[int] = []
        for due in (self._fetched, self._ended):
            while due and len(found) < count_max and (due[0].at_ms <= age_ms or self._too_many(due)):
                pid = due.popleft().pid
                if pid in self._kept:
                    self._kept.discard(pid)
                    self._noted.discard(pid)
                    found.append(pid)
        if found:
            self._evicted_ms = age_ms
        return found

    def forget(self, record: Record) -> None:
        """Removes the nonce of a root that was evicted."""
        if self.pid_of(record.caller) == record.pid:
            del self._nonces[record.caller.principal, record.caller.nonce]

    def close(self, why: Exception) -> None:
        """Refuses all waiting callers."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(why)
        self._waiters.clear()

    def _too_many(self, due: deque[_Due]) -> bool:
        return due is self._ended and len(self._kept) > RESULTS_MAX


def _remove(waiters: list[asyncio.Future[Record]], done: asyncio.Future[Record]) -> None:
    """Removes a caller that stopped waiting before the procedure ended."""
    if done in waiters:
        waiters.remove(done)
