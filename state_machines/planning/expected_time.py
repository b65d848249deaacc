"""Estimates how long the moves of a plan take at a rate of each broker and direction, as throttles have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Protocol


class CopyingMove(Protocol):
    """A move that copies ``bytes`` in all, None or 0 where that is not known."""

    @property
    def origin(self) -> tuple[int, ...]:
        """Replicas before."""

    @property
    def added(self) -> tuple[int, ...]:
        """Brokers that get a replica."""

    @property
    def bytes(self) -> int | None:
        """Bytes of all added replicas."""


class Expected(NamedTuple):
    """The time of a plan, and the broker and direction (``receives``, ``sends``) that it depends on."""

    seconds: int
    broker: int
    direction: str
    bytes: int


def expected(moves: Iterable[CopyingMove], rate_bytes_per_s: int) -> Expected | None:
    """Returns the time that the busiest broker needs; None where nothing is to be copied.

    The first replica counts as the source, because it usually leads. Replication beside the plan is not counted.
    """
    busy: Counter[tuple[int, str]] = Counter()
    for move in moves:
        for broker in move.added:
            share = (move.bytes or 0) // len(move.added)
            busy[broker, "receives"] += share
            busy[move.origin[0] if move.origin else broker, "sends"] += share
    if not busy.total():
        return None
    (broker, direction), most = min(busy.items(), key=lambda item: (-item[1], item[0]))
    return Expected(-(-most // rate_bytes_per_s), broker, direction, most)
