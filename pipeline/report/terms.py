"""Puts the monotonic clocks of terms on the wall clock: within a term differences stay those of the monotonic clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Line = Mapping[str, Any]
"""One row of a journal: fields by name, absent or None where it has none."""

NONE: Final = np.iinfo(np.int64).min
"""Stands for an unknown number in an array."""

_EPOCHS: Final = np.int64(1 << 32)


class Term(NamedTuple):
    """One term of a daemon. ``offset_us`` leads from its monotonic clock to the wall clock at its first row."""

    ctl_epoch: int
    ctl_id: int
    offset_us: int
    first_us: int
    last_us: int


class Terms:
    """All terms of a cluster, oldest first; arrays of rows name them by index."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.all = tuple(sorted(terms))
        self._keys = np.array([_key(term.ctl_epoch, term.ctl_id) for term in self.all], np.int64)
        self._offsets = np.array([term.offset_us for term in self.all], np.int64)

    def index(self, epochs: Ints, ids: Ints) -> Ints:
        """Returns each row's term; all rows must be of known terms."""
        return np.searchsorted(self._keys, epochs * _EPOCHS + ids).astype(np.int64)

    def wall(self, index: Ints, times: Ints) -> Ints:
        """Returns monotonic ``times`` of terms on the wall clock; unknown ones stay unknown."""
        if not self.all:
            return times
        return np.where(times == NONE, NONE, times + self._offsets[index])

    def at(self, row: Line, *names: str) -> int:
        """Returns the earliest of a row's times on the wall clock: of those fields that it has, and its entry."""
        known = [row[name] for name in (*names, "mono_us") if row.get(name) is not None]
        earliest: int = min(known)
        return int(self._offsets[self.of(row)]) + earliest

    def of(self, row: Line) -> int:
        """Returns the index of a row's term."""
        return int(np.searchsorted(self._keys, _key(row["ctl_epoch"], row["ctl_id"])))

    def places(self, other: Terms) -> Ints:
        """Returns the index in these terms of each of ``other``; all of them must be here."""
        return np.searchsorted(self._keys, other._keys).astype(np.int64)

    def joined(self, epochs: Ints, ids: Ints, numbers: Ints, wall: Ints, monotonic: Ints) -> Terms:
        """Returns these terms and those that only these rows show."""
        fresh = np.setdiff1d(epochs * _EPOCHS + ids, self._keys)
        found = terms_of(epochs, ids, numbers, wall, monotonic) if len(fresh) else ()
        keys = set(fresh.tolist())
        return Terms([*self.all, *(term for term in found if _key(term.ctl_epoch, term.ctl_id) in keys)])


def terms_of(epochs: Ints, ids: Ints, numbers: Ints, wall: Ints, monotonic: Ints) -> list[Term]:
    """Finds the terms that rows show: the offset is that of the row with the smallest number."""
    order = np.lexsort((numbers, ids, epochs))
    found = []
    for start, end in runs(epochs[order], ids[order]):
        first = order[start]
        times = wall[order[start:end]]
        offset = int(wall[first] - monotonic[first])
        found.append(Term(int(epochs[first]), int(ids[first]), offset, int(times.min()), int(times.max())))
    return found


def ends_of_terms(epochs: Ints, ids: Ints, numbers: Ints, wall: Ints) -> Ints:
    """Returns the rows of which :func:`terms_of` makes what it makes of all: some of each term, in any order."""
    order = np.lexsort((numbers, ids, epochs))
    found = []
    for start, end in runs(epochs[order], ids[order]):
        times = wall[order[start:end]]
        found += [order[start], order[start + int(times.argmin())], order[start + int(times.argmax())]]
    return np.array(found, np.int64)


def runs(*columns: Ints) -> list[tuple[int, int]]:
    """Returns the begin and end of each run of rows with equal values in all columns."""
    count = len(columns[0])
    if not count:
        return []
    differs = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    starts = [0, *(np.flatnonzero(differs) + 1).tolist()]
    return list(zip(starts, [*starts[1:], count], strict=True))


def _key(epoch: int, daemon: int) -> int:
    return epoch * int(_EPOCHS) + daemon
