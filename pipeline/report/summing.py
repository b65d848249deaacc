"""Adds up figures of intervals by topic and by stop, in a bucket and over all of them, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

import numpy as np

from pipeline.report.terms import Flags, Ints

NO_STOP: Final = -1
"""Stands for the stop of an interval that none caused."""
LONGEST: Final = (3, 5)
"""Fields of :class:`Sums` of which the largest counts, not the sum."""


class Sums(NamedTuple):
    """Figures by group: intervals, microseconds at least and at most, and the longest of each.

    ``unbounded``: intervals whose length at most is not known; they are not in ``most_us``.
    """

    intervals: Ints
    partitions: Ints
    known_us: Ints
    known_us_max: Ints
    most_us: Ints
    most_us_max: Ints
    unbounded: Ints

    def some(self, places: Ints | slice | Flags) -> Sums:
        """Returns those of some groups."""
        return Sums(*(values[places] for values in self))

    def whole(self) -> list[int]:
        """Returns all groups together."""
        return [int(values.max(initial=0) if at in LONGEST else values.sum()) for at, values in enumerate(self)]


class Costs(NamedTuple):
    """Sums by stop (:data:`NO_STOP`: no stop) and topic, in this order, with the topics' numbers."""

    stop: Ints
    topic: Ints
    sums: Sums

    def of(self, stop: int) -> Costs:
        """Returns those of one stop."""
        first, last = (int(np.searchsorted(self.stop, each)) for each in (stop, stop + 1))
        return Costs(self.stop[first:last], self.topic[first:last], self.sums.some(slice(first, last)))


class Named(NamedTuple):
    """The topics of all buckets by name, and for each bucket the places of its own ones among them."""

    names: list[str]
    places: list[Ints]


def named(topics: Sequence[Sequence[str]], more: Iterable[str]) -> Named:
    """Puts the topics of buckets, and ``more`` that no bucket has, in the order of their names."""
    names = sorted({name for some in topics for name in some} | set(more))
    index = {name: at for at, name in enumerate(names)}
    return Named(names, [np.array([index[name] for name in some], np.int64) for some in topics])


def by_keys(stop: Ints, topic: Ints) -> tuple[Ints, Ints, Ints]:
    """Returns the different pairs of a stop and a topic, in order, and for each given pair its place among them."""
    count = int(topic.max(initial=0)) + 1
    keys, group = np.unique((stop - NO_STOP) * count + topic, return_inverse=True)
    return keys // count + NO_STOP, keys % count, group.reshape(-1)


def added(some: Sequence[Sums], groups: Sequence[Ints], count: int) -> Sums:
    """Adds sums up to ``count`` groups; ``groups``: of the figures, all in a row."""
    group = np.concatenate([np.zeros(0, np.int64), *groups])
    found: list[Ints] = [np.zeros(count, np.int64) for _ in Sums._fields]
    for at, total in enumerate(found):
        values = np.concatenate([np.zeros(0, np.int64), *(one[at] for one in some)])
        (np.maximum if at in LONGEST else np.add).at(total, group, values)
    return Sums(*found)


def costs_together(some: Sequence[Costs], topics: Named) -> Costs:
    """Adds up the costs of all buckets, with the numbers of topics among all of them."""
    none: Ints = np.zeros(0, np.int64)
    stop = np.concatenate([none, *(each.stop for each in some)])
    topic = np.concatenate([none, *(places[each.topic] for each, places in zip(some, topics.places, strict=True))])
    stops, names, group = by_keys(stop, topic)
    return Costs(stops, names, added([each.sums for each in some], [group], len(stops)))


WIDTH: Final = 1.01
CLASSES: Final = 2_800
"""The last class begins at 1.3 million seconds."""


class Spread(NamedTuple):
    """``counts``: durations by class. ``longest_us`` is exact, in microseconds; 0 where there is none."""

    counts: Ints
    longest_us: int

    @classmethod
    def of(cls, durations_us: Ints) -> Self:
        """Counts durations in microseconds; one below a microsecond counts as one."""
        classes = np.log(np.maximum(durations_us, 1)) / np.log(WIDTH)
        counts = np.bincount(np.minimum(classes.astype(np.int64), CLASSES - 1), minlength=CLASSES)
        return cls(counts, int(durations_us.max(initial=0)))

    def joined(self, other: Self) -> Self:
        """Returns both together."""
        return type(self)(self.counts + other.counts, max(self.longest_us, other.longest_us))

    @property
    def total(self) -> int:
        """Returns how many durations there are."""
        return int(self.counts.sum())

    def quantile_us(self, share: float) -> float:
        """Returns the duration that a share of all do not exceed, one percent too long at most; 0 where none is."""
        if not self.total:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self.counts), max(1, np.ceil(share * self.total))))
        longest: float = min(WIDTH ** (place + 1), self.longest_us)
        return longest
