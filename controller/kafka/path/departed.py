"""Remembers since when brokers are dead: exactly of those that died in this term, or just before it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

BROKERS_MAX: Final = 1_000
"""Dead brokers whose times are kept; the earliest are dropped first, and count as dead since before the term."""


class Departed:
    """Holds times of the wall clock, in milliseconds. ``began_ms``: when this term read the brokers, 0 before."""

    def __init__(self) -> None:
        self.began_ms = 0
        self._since_ms: dict[int, int] = {}

    def gone(self, brokers: Collection[int], now_ms: int) -> None:
        """Notes that brokers died now."""
        for broker in brokers:
            self._since_ms.pop(broker, None)
            self._since_ms[broker] = now_ms
        while len(self._since_ms) > BROKERS_MAX:
            del self._since_ms[next(iter(self._since_ms))]

    def back(self, brokers: Collection[int]) -> None:
        """Notes that brokers registered."""
        for broker in brokers:
            self._since_ms.pop(broker, None)

    def learn(self, earlier_ms: Mapping[int, int]) -> None:
        """Takes over the times of terms before; what this term saw itself stays."""
        self._since_ms = dict(sorted(earlier_ms.items(), key=lambda one: one[1])[-BROKERS_MAX:]) | self._since_ms

    def since_ms(self, broker: int) -> int | None:
        """Returns when a dead broker died; None where it was dead before the terms that are known."""
        return self._since_ms.get(broker)
