"""Decides when a daemon looks whether regions are even: after a period, and once servers have ceased to come and go.

A rolling restart moves regions again and again, so a look in the middle of it would move them once more.
"""

from __future__ import annotations

from collections.abc import Set
from enum import StrEnum
from typing import Final, TypeAlias

Share: TypeAlias = tuple[str, int, float]
"""A process of a server, with its weight."""

IDLE_MAX: Final = 16
"""Periods between two looks where balances move nothing to where it was to be."""


class Due(StrEnum):
    """What brings the next look."""

    PERIOD = "period"
    IDLE = "idle"
    CHANGE = "change"
    HINDERED = "hindered"


class Pace:
    """Remembers the last look, and when the servers that may get regions changed since. Times are in milliseconds.

    ``joins_ms``: how long these servers stay the same before a look; 0: their changes begin none.
    """

    def __init__(self, period_ms: int, joins_ms: int, now_ms: int) -> None:
        self._period_ms, self._joins_ms = period_ms, joins_ms
        self._looked_ms = now_ms
        self._changed_ms: int | None = None
        self._is_early = False
        self._servers: Set[Share] = frozenset()
        self._periods = 1

    def is_due(self, servers: Set[Share], now_ms: int) -> bool:
        """Enters the present servers, and checks whether it is time for a look.

        Servers that come and go for ever put a look off by one period at most.
        """
        if servers != self._servers:
            self._servers, self._periods, self._is_early = servers, 1, False
            if self._joins_ms:
                self._changed_ms = now_ms
        return now_ms >= self.next_ms

    @property
    def next_ms(self) -> int:
        """Returns the time of the next look, as far as nothing changes until then."""
        if self._changed_ms is None:
            return self._looked_ms + self._periods * self._period_ms
        return min(self._changed_ms + self._joins_ms, self._looked_ms + 2 * self._period_ms)

    @property
    def due(self) -> Due:
        """Returns what brings the next look."""
        if self._changed_ms is None:
            return Due.PERIOD if self._periods == 1 else Due.IDLE
        return Due.HINDERED if self._is_early else Due.CHANGE

    @property
    def periods(self) -> int:
        """Returns the number of periods between two looks: more than one after balances that moved nothing."""
        return self._periods

    def looked(self, now_ms: int) -> None:
        """Enters a look."""
        self._looked_ms, self._changed_ms, self._is_early = now_ms, None, False

    def hindered(self, now_ms: int) -> None:
        """Enters that no balance may begin for now: the next look comes as after a change of the servers."""
        self._looked_ms = now_ms
        if self._joins_ms:
            self._is_early = self._is_early or self._changed_ms is None
            self._changed_ms = now_ms

    def ended(self, *, moved: bool) -> None:
        """Enters the end of a balance. After one that moved nothing the next comes after twice the time.

        So it does where that balance itself hindered a look: only a change of the servers brings the next one earlier.
        """
        self._periods = 1 if moved else min(IDLE_MAX, 2 * self._periods)
        if self._is_early and not moved:
            self._changed_ms, self._is_early = None, False
