"""Sums how long partitions had too few replicas in sync (J5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.report.history import History
from pipeline.report.terms import NONE, Flags, Ints


class Short(NamedTuple):
    """Microseconds by topic, all partitions together. ``minimum``: unknown where the topic's setting is not known."""

    target: Ints
    minimum: Ints


def short(of: History, min_isr: Ints, begin_us: int, end_us: int) -> Short:
    """Returns how long partitions were under their target and under their topic's ``min_isr`` in a window.

    The target is the assignment without replicas that are being added, as Kafka counts it (Partition.scala). Before
    the first row a partition was as that row says, since the window's begin.
    """
    states = np.flatnonzero((of.size1 >= 0) | of.ended)
    if not len(states):
        return Short(np.zeros(len(of.topics), np.int64), _where_known(np.zeros(len(of.topics), np.int64), min_isr))
    same = np.r_[_same(of, states), False]
    first = np.r_[True, ~same[:-1]]
    at = np.clip(of.committed[states], begin_us, end_us)
    until = np.where(same, np.r_[at[1:], end_us], end_us)
    lasted = np.where(of.ended[states], 0, np.maximum(until - at, 0))
    before = np.where(first & (of.size0[states] >= 0), at - begin_us, 0)
    target, topic = of.target[states], of.topic[states]

    def under(limit: Ints, known: Flags) -> Ints:
        after_us = np.where(known & (of.size1[states] < limit), lasted, 0)
        before_us = np.where(known & (of.size0[states] < limit), before, 0)
        return np.bincount(topic, (after_us + before_us).astype(np.float64), len(of.topics)).astype(np.int64)

    least = min_isr[topic]
    return Short(under(target, target > 0), _where_known(under(least, least != NONE), min_isr))


def next_where(of: History, wanted: Flags) -> Ints:
    """Returns for each row the first row from it on, of its partition, that is wanted; or -1."""
    count = len(of)
    if not count:
        return np.array([], np.int64)
    far = np.where(wanted, np.arange(count), count)
    found = np.minimum.accumulate(far[::-1])[::-1]
    ends = np.flatnonzero(of.last)
    last = ends[np.searchsorted(ends, np.arange(count))]
    return np.where(found <= last, found, -1)


def _where_known(sums: Ints, min_isr: Ints) -> Ints:
    return np.where(min_isr == NONE, NONE, sums)


def _same(of: History, rows: Ints) -> Flags:
    one, other = rows[:-1], rows[1:]
    return (of.topic[one] == of.topic[other]) & (of.partition[one] == of.partition[other])
