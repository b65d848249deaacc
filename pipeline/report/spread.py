"""Counts durations in classes that are one percent wide: quantiles of any number of them in constant memory."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np

from pipeline.report.terms import Ints

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
