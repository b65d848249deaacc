"""Declares the requests of callers to the engine, and keeps the results for them.

Requests wait until the engine's next turn, which decides on them one after the other. Results of procedures that have
ended are kept for a time, and found by pid or nonce.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from state_machines.procedures.record import Caller, Ending, Record
from state_machines.procedures.states import State

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


# -- requests


class Submit(NamedTuple):
    """Starts a procedure; the response is its pid, or that of the earlier one with the same nonce."""

    kind: str
    data: bytes
    caller: Caller
    expires_ms: int

    def record(self, now_ms: int) -> Record:
        """Returns the first record, which has no pid yet."""
        kind, data, caller, expires_ms = self
        return Record(0, kind, State.RUNNABLE, 0, now_ms, now_ms, data=data, caller=caller, expires_ms=expires_ms)


class Abort(NamedTuple):
    """Aborts the family of a procedure; the response is 0 where it has ended, failed, or cannot be undone any more."""

    pid: int
    ending: Ending


class Bypass(NamedTuple):
    """Ends a procedure and its ancestors as they are; the response is 0 where it has ended or has children."""

    pid: int
    ending: Ending


class Remove(NamedTuple):
    """Removes a record that cannot be used, with its family; the response is its pid once all of them are gone."""

    pid: int
    ending: Ending


class Command(NamedTuple):
    """Changes the message of a procedure as its kind understands it; the response is 0 where it failed or ended."""

    pid: int
    command: bytes
    ending: Ending


End: TypeAlias = Abort | Bypass | Remove
ENDS: Final[Mapping[str, type[End]]] = {"abort": Abort, "bypass": Bypass, "remove": Remove}
"""Requests that end a procedure, by the word of an operator."""
Request: TypeAlias = Submit | Abort | Bypass | Remove | Command


class Pending(NamedTuple):
    """A request and the future of its response, a pid."""

    request: Request
    response: asyncio.Future[int]

    def respond(self, pid: int) -> None:
        """Responds, unless the caller has gone."""
        if not self.response.done():
            self.response.set_result(pid)

    def refuse(self, why: Exception) -> None:
        """Refuses the request, unless the caller has gone."""
        if not self.response.done():
            self.response.set_exception(why)


class ProcedureRefused(Exception):
    """A request cannot be carried out; the text says why, and what would make it succeed."""


class Unknown(ProcedureRefused):
    """A request is about a procedure that has no record."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"pid {pid}: it is not known: it never was, or its result was removed")
        self.pid = pid


class Unusable(ProcedureRefused):
    """A request is about a record that cannot be used: an operator may have it removed."""

    def __init__(self, pid: int, text: str) -> None:
        super().__init__(text)
        self.pid = pid


# -- results


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
