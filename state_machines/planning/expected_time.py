"""Estimates how long the moves of a plan take at a rate of each broker and direction, and whether they end at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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


class CopyingPartition(Protocol):
    """A move of a partition."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def partition(self) -> int:
        """Number of the partition."""

    @property
    def added(self) -> tuple[int, ...]:
        """Brokers that get a replica."""


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


class Received(NamedTuple):
    """What producers write at the same time to the partitions that a broker copies."""

    broker: int
    bytes_per_s: int


def received(moves: Iterable[CopyingPartition], traffic: Mapping[tuple[str, int], float], most: int) -> Received | None:
    """Returns the broker that has to copy most traffic, with ``most`` moves at a time; None where there is none.

    A throttled copy at a lower rate than this never catches up. ``traffic``: bytes per second by topic and partition.
    """
    by_broker: dict[int, list[float]] = {}
    for move in moves:
        for broker in move.added:
            by_broker.setdefault(broker, []).append(traffic.get((move.topic, move.partition), 0.0))
    sums = {broker: round(sum(sorted(found, reverse=True)[:most])) for broker, found in by_broker.items()}
    busiest = min(sums.items(), key=lambda item: (-item[1], item[0]), default=(0, 0))
    return Received(*busiest) if busiest[1] else None
