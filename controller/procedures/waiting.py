"""Procedures that wait for a time or an event, and the one timer that wakes the engine for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

STALE_MAX: Final = 1_000
"""Deadlines of procedures that were woken before, at which the heap is built anew."""


class Waiting:
    """Holds procedures that are neither queued nor under way.

    ``on_due`` is called when the first deadline has come. A wake-up that comes before its procedure waits is kept for
    it (HBASE-20939).
    """

    def __init__(self, now_ms: Callable[[], int], on_due: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._on_due = on_due
        self._deadlines: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._woken: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._last_ms = 0

    def __contains__(self, pid: int) -> bool:
        return pid in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, pid: int, deadline_ms: int) -> bool:
        """Enters a procedure; ``deadline_ms`` 0: for an event alone. False where it was woken already, and goes on."""
        if pid in self._woken:
            self._woken.discard(pid)
            return False
        self._deadlines[pid] = deadline_ms
        if deadline_ms:
            if len(self._heap) > 2 * len(self._deadlines) + STALE_MAX:
                self._heap = sorted((at_ms, one) for one, at_ms in self._deadlines.items() if at_ms)
            else:
                heappush(self._heap, (deadline_ms, pid))
        return True

    def begin(self, pid: int) -> None:
        """Notes that a step begins: it sees all that earlier wake-ups were about."""
        self._woken.discard(pid)

    def wake(self, pid: int) -> bool:
        """Removes a procedure that waits, and returns True; where it does not wait yet, its next wait ends at once."""
        if self.take(pid):
            return True
        self._woken.add(pid)
        return False

    def take(self, pid: int) -> bool:
        """Removes a procedure that waits; returns whether it did."""
        return self._deadlines.pop(pid, None) is not None

    def forget(self, pid: int) -> None:
        """Removes all of a procedure that has ended."""
        self._deadlines.pop(pid, None)
        self._woken.discard(pid)

    def due(self) -> list[int]:
        """Returns the procedures whose deadline has come since the last call, the earliest first."""
        found: list[int] = []
        now_ms = self._read_clock()
        while self._heap and (self._heap[0][0] <= now_ms or self._is_stale()):
            deadline_ms, pid = heappop(self._heap)
            if self._deadlines.get(pid) == deadline_ms:
                found.append(pid)
        return found

    def arm(self, also_ms: int = 0) -> None:
        """Sets the timer to the first deadline, or to ``also_ms`` where that comes first (0: never)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._heap and self._is_stale():
            heappop(self._heap)
        now_ms = self._read_clock()
        first_ms = self._heap[0][0] if self._heap else also_ms
        if first_ms:
            delay_s = max(0, min(first_ms, also_ms or first_ms) - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_due)

    def close(self) -> None:
        """Cancels the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _read_clock(self) -> int:
        """Returns the time. Where the wall clock was set back, deadlines go back with it: no wait becomes longer."""
        now_ms = self._now_ms()
        back_ms, self._last_ms = self._last_ms - now_ms, now_ms
        if back_ms > 0:
            self._deadlines = {pid: max(1, at_ms - back_ms) if at_ms else 0 for pid, at_ms in self._deadlines.items()}
            self._heap = sorted((at_ms, pid) for pid, at_ms in self._deadlines.items() if at_ms)
        return now_ms

    def _is_stale(self) -> bool:
        deadline_ms, pid = self._heap[0]
        return self._deadlines.get(pid) != deadline_ms
