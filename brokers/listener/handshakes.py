"""Schedules the TLS handshakes of one listener: each costs about a millisecond, so they begin in fair turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

UNDER_WAY_MAX: Final = 32
"""Most handshakes in progress at once: as many may be due in one turn of the loop."""
KEPT_FOR_KNOWN: Final = 8
"""The number of these that is reserved for known addresses."""
PAUSE_S: Final = 0.005
"""Pause between the beginnings of two handshakes that waited: the loop keeps more than half of its time."""
TURN_S: Final = 1.0
"""Time after which an incomplete handshake ends, if another one waits for its room."""


class _Line:
    """Handshakes of one kind: the waiting ones, by address, and the start times of those in progress."""

    def __init__(self, under_way_max: int) -> None:
        self.under_way_max = under_way_max
        self.waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.under_way: dict[asyncio.Timeout, float] = {}

    @property
    def full(self) -> bool:
        """Returns whether the handshakes of this kind in progress have reached their limit."""
        return len(self.under_way) >= self.under_way_max

    def wait(self, address: str) -> asyncio.Future[None]:
        """Returns a future that is done when a handshake with ``address`` may begin."""
        turn = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(address, []).append(turn)
        return turn

    def forget(self, address: str, turn: asyncio.Future[None]) -> None:
        """Removes a handshake that waits no longer."""
        turns = self.waiting.get(address, [])
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self.waiting.pop(address, None)

    def begin(self) -> None:
        """Begins the newest handshake of the next address: many older ones of that address do not delay it."""
        address, turns = next(iter(self.waiting.items()))
        del self.waiting[address]
        turn = turns.pop()
        if turns:
            self.waiting[address] = turns
        if not turn.done():  # it may have been cancelled in this turn of the loop
            turn.set_result(None)


class Handshakes:
    """Gives each address its turn, so that many handshakes of one address do not delay the others.

    Known and unknown addresses take turns, so neither kind waits for many of the other. Unknown ones that do not finish
    leave room for known ones.
    """

    def __init__(
        self, under_way_max: int = UNDER_WAY_MAX, turn_s: float = TURN_S, kept_for_known: int = KEPT_FOR_KNOWN
    ) -> None:
        self._under_way_max = under_way_max
        self._turn_s = turn_s
        self._known = _Line(under_way_max)
        self._unknown = _Line(under_way_max - kept_for_known)
        self._lines = [self._known, self._unknown]
        """Ordered by the last beginning, the newest last."""
        self._last_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, address: str, *, known: bool = False) -> AsyncIterator[None]:
        """Waits for the turn of ``address``, and raises TimeoutError in a slow handshake while another one waits."""
        line = self._known if known else self._unknown
        await self._turn_of(line, address)
        try:
            async with asyncio.timeout(None) as bound:
                line.under_way[bound] = _now_s()
                try:
                    yield
                finally:
                    del line.under_way[bound]
        finally:
            self._next()

    def close(self) -> None:
        """Cancels the timer of the next beginning."""
        if self._timer is not None:
            self._timer.cancel()

    async def _turn_of(self, line: _Line, address: str) -> None:
        turn = line.wait(address)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            line.forget(address, turn)
            self._next()
            raise

    def _next(self) -> None:
        """Begins the handshakes that may begin, and sets a timer for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [line for line in self._lines if line.waiting]
        if not waiting:
            return
        now_s = _now_s()
        due_s = self._last_s + PAUSE_S
        if due_s <= now_s:
            due_s = self._begun(waiting, now_s)
        self._timer = asyncio.get_running_loop().call_at(due_s, self._next)

    def _begun(self, waiting: Iterable[_Line], now_s: float) -> float:
        """Begins the next handshake for which there is room; returns the time of the next check."""
        for line in waiting:
            if not line.full and sum(len(one.under_way) for one in self._lines) < self._under_way_max:
                line.begin()
                self._lines.remove(line)
                self._lines.append(line)
                self._last_s = now_s
                return now_s + PAUSE_S
        return min(self._make_room(line, now_s) for line in waiting)

    def _make_room(self, line: _Line, now_s: float) -> float:
        """Ends the oldest handshake in the way of ``line`` after its time; returns the time of the next check."""
        before = [line] if line.full else self._lines
        oldest, began_s = min(
            (next(iter(one.under_way.items())) for one in before if one.under_way), key=lambda found: found[1]
        )
        if (over_s := began_s + self._turn_s) > now_s:
            return over_s
        if oldest.when() is None:
            oldest.reschedule(now_s)
        return now_s + PAUSE_S


def _now_s() -> float:
    return asyncio.get_running_loop().time()
