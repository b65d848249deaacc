"""TLS handshakes of one listener: each costs about a millisecond, so they begin one after the other, in fair turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

UNDER_WAY_MAX: Final = 32
"""Handshakes under way at once: as many may be due in one turn of the loop."""
PAUSE_S: Final = 0.005
"""Between the beginnings of two handshakes that waited: the loop keeps more than half of its time."""
TURN_S: Final = 1.0
"""After it a handshake that is not complete ends, if another one waits."""


class Handshakes:
    """Whoever waits gets its turn by address: a crowd at one of them keeps no other waiting."""

    def __init__(self, under_way_max: int = UNDER_WAY_MAX, turn_s: float = TURN_S) -> None:
        self._under_way_max = under_way_max
        self._turn_s = turn_s
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._under_way: dict[asyncio.Timeout, float] = {}
        self._last_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """A handshake with ``address``; TimeoutError ends it where it is slow and another one waits."""
        await self._turn_of(address)
        try:
            async with asyncio.timeout(None) as bound:
                self._under_way[bound] = _now_s()
                try:
                    yield
                finally:
                    del self._under_way[bound]
        finally:
            self._next()

    def close(self) -> None:
        """Nothing begins any more by itself."""
        if self._timer is not None:
            self._timer.cancel()

    async def _turn_of(self, address: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, []).append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            self._forget(address, turn)
            self._next()
            raise

    def _forget(self, address: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(address, [])
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(address, None)

    def _next(self) -> None:
        """Begins what may begin, and comes again when more may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        now_s = _now_s()
        due_s = self._last_s + PAUSE_S
        if len(self._under_way) >= self._under_way_max:
            due_s = max(due_s, self._make_room(now_s))
        if due_s <= now_s:
            self._last_s = now_s
            self._begin()
            due_s = now_s + PAUSE_S
        self._timer = asyncio.get_running_loop().call_at(due_s, self._next)

    def _make_room(self, now_s: float) -> float:
        """Ends the oldest if it has had its time; when to look again."""
        oldest, began_s = next(iter(self._under_way.items()))
        if (over_s := began_s + self._turn_s) > now_s:
            return over_s
        if oldest.when() is None:
            oldest.reschedule(now_s)
        return now_s + PAUSE_S

    def _begin(self) -> None:
        """The last that came of the address whose turn it is: a crowd that was there before keeps it no longer."""
        address, turns = next(iter(self._waiting.items()))
        del self._waiting[address]
        turn = turns.pop()
        if turns:
            self._waiting[address] = turns
        if not turn.done():  # it may have been cancelled in this turn of the loop
            turn.set_result(None)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
