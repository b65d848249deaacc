"""Finds reassignments of partitions (J7): when they began and ended, and how many replicas they added."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.report.history import History
from pipeline.report.replication import next_where
from pipeline.report.terms import NONE, Ints


class Moves(NamedTuple):
    """Reassignments of a bucket. ``end``: when nothing was to be added or removed any more, or unknown."""

    topic: Ints
    partition: Ints
    begin: Ints
    end: Ints
    added: Ints


def moves(of: History) -> Moves:
    """Returns the reassignments that begin in these rows, or that were on their way at a partition's first row."""
    told = (of.size1 >= 0) | of.ended
    rows = np.flatnonzero(told)
    moving = of.moving[rows] & ~of.ended[rows]
    same = (of.topic[rows[1:]] == of.topic[rows[:-1]]) & (of.partition[rows[1:]] == of.partition[rows[:-1]])
    before = np.r_[False, moving[:-1] & same][: len(rows)]
    begins = rows[moving & ~before]
    ends = next_where(of, told & (~of.moving | of.ended))[begins]
    end = np.where(ends >= 0, of.committed[ends], NONE)
    return Moves(of.topic[begins], of.partition[begins], of.committed[begins], end, of.added[begins])
