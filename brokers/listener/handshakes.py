"""TLS handshakes of one listener: each costs about a millisecond, so they begin one after the other, in fair turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

UNDER_WAY_MAX: Final = 32
"""Handshakes under way at once: as many may be due in one turn of the loop."""
KEPT_FOR_KNOWN: Final = 8
"""Of these, how many strangers cannot have."""
PAUSE_S: Final = 0.005
"""Between the beginnings of two handshakes that waited: the loop keeps more than half of its time."""
TURN_S: Final = 1.0
"""After it a handshake that is not complete ends, if another one waits for its room."""


class _Line:
    """Handshakes of one kind: those that wait, by address, and when those under way began."""

    def __init__(self, under_way_max: int) -> None:
        self.under_way_max = under_way_max
        self.waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.under_way: dict[asyncio.Timeout, float] = {}

    @property
    def full(self) -> bool:
        """Whether as many are under way as may be of this kind."""
        return len(self.under_way) >= self.under_way_max

    def wait(self, address: str) -> asyncio.Future[None]:
        """Done when a handshake with ``address`` may begin."""
        turn = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(address, []).append(turn)
        return turn

    def forget(self, address: str, turn: asyncio.Future[None]) -> None:
        """It waits no longer."""
        turns = self.waiting.get(address, [])
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self.waiting.pop(address, None)

    def begin(self) -> None:
        """The last that came of the address whose turn it is: a crowd that was there before keeps it no longer."""
        address, turns = next(iter(self.waiting.items()))
        del self.waiting[address]
        turn = turns.pop()
        if turns:
            self.waiting[address] = turns
        if not turn.done():  # it may have been cancelled in this turn of the loop
            turn.set_result(None)


class Handshakes:
    """Whoever waits gets its turn by address: a crowd at one of them keeps no other waiting.

    Known addresses and strangers take turns, so neither kind waits for a crowd of the other, and strangers that do not
    finish leave room for known ones.
    """

    def __init__(
        self, under_way_max: int = UNDER_WAY_MAX, turn_s: float = TURN_S, kept_for_known: int = KEPT_FOR_KNOWN
    ) -> None:
        self._under_way_max = under_way_max
        self._turn_s = turn_s
        self._known = _Line(under_way_max)
        self._strangers = _Line(under_way_max - kept_for_known)
        self._lines = [self._known, self._strangers]
        """The one that began last comes last."""
        self._last_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, address: str, *, known: bool = False) -> AsyncIterator[None]:
        """A handshake with ``address``; TimeoutError ends it where it is slow and another one waits."""
        line = self._known if known else self._strangers
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
        """Nothing begins any more by itself."""
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
        """Begins what may begin, and comes again when more may."""
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
        """Begins the next for which there is room; when to look again."""
        for line in waiting:
            if not line.full and sum(len(one.under_way) for one in self._lines) < self._under_way_max:
                line.begin()
                self._lines.remove(line)
                self._lines.append(line)
                self._last_s = now_s
                return now_s + PAUSE_S
        return min(self._make_room(line, now_s) for line in waiting)

    def _make_room(self, line: _Line, now_s: float) -> float:
        """Ends the oldest that ``line`` waits for if it has had its time; when to look again."""
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
