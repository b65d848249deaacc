"""Finds partitions that lost their leader in a row that is missing: one had a leader, and its next row finds none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.report.history import History, leads
from pipeline.report.terms import NONE, Flags, Ints


class Unseen(NamedTuple):
    """Rows before which a leader went unseen. Arrays are by the given rows, times are microseconds of the wall clock.

    ``leader``: the last one that a row shows, or -1. ``since``: when a row last showed it. ``begin``: the end of the
    last time between the two in which rows are missing, for it went in that time at the latest.
    """

    flags: Flags
    leader: Ints
    since: Ints
    begin: Ints


def unseen(of: History, rows: Ints, ceased: Ints, gaps: Sequence[tuple[int, int]]) -> Unseen:
    """Looks which of ``rows`` find no leader, although their partition had one, or was deleted and is there again.

    ``ceased``: when the leader before each row had ceased to serve, as far as it tells. ``gaps``: disjoint, in order.
    """
    before = _told_before(of)[rows]
    known = before >= 0
    led, deleted = known & leads(of.leader1[before]) & ~of.ended[before], known & of.ended[before]
    flags = (of.leader0[rows] == -1) & ~of.ended[rows] & (led | deleted)
    since = np.where(known, of.committed[before], NONE)
    begin = ceased
    if gaps:
        starts, ends = (np.array([gap[side] for gap in gaps], np.int64) for side in (0, 1))
        last = np.searchsorted(starts, ceased, side="right") - 1
        begin = np.where((last >= 0) & (ends[last] >= since), np.minimum(ends[last], ceased), ceased)
    return Unseen(flags, np.where(flags & led, of.leader1[before], -1), since, begin)


def _told_before(of: History) -> Ints:
    """Returns for each row the last one before it, of its partition, that tells the leader; or -1."""
    rows = np.arange(len(of))
    told = np.maximum.accumulate(np.where((of.leader1 != NONE) | of.ended, rows, -1))
    first = np.maximum.accumulate(np.where(of.first, rows, 0))
    before = np.r_[-1, told[:-1]][: len(of)]
    return np.where(before >= first, before, -1).astype(np.int64)
