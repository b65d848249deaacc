"""Sums how long partitions had too few replicas in sync (J5), and finds their reassignments (J7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from pipeline.report.history import History
from pipeline.report.terms import NONE, Flags, Ints

MinIsr: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""By topic the times (microseconds of the wall clock) from which a setting is in force, oldest first, or unknown."""
FAR: Final = 1 << 62


class Setting(NamedTuple):
    """``min.insync.replicas`` of topics from a time on, by the topics' numbers; unknown where it is not known."""

    from_us: Ints
    least: Ints


class Short(NamedTuple):
    """Microseconds by topic, all partitions together. ``minimum``: while the topic's setting is known."""

    target: Ints
    minimum: Ints


def settings(topics: Sequence[str], known: MinIsr) -> list[Setting]:
    """Returns the settings of topics one after the other: the first one of each topic, the second one, and so on."""
    count = max((len(known.get(name, ())) for name in topics), default=0)
    found = []
    for at in range(count):
        steps = [known.get(name, ())[at : at + 1] for name in topics]
        pairs = [step[0] if step else (FAR, int(NONE)) for step in steps]
        from_us, least = (np.array(values, np.int64) for values in zip(*pairs, strict=True))
        found.append(Setting(from_us, least))
    return found


def short(of: History, least: Sequence[Setting], begin_us: int, end_us: int) -> Short:
    """Returns how long partitions were under their target and under ``min.insync.replicas`` in a window.

    The target is the assignment without replicas that are being added, as Kafka counts it (Partition.scala). Before
    the first row a partition was as that row says, since the window's begin. ``least``: of :func:`settings`.
    """
    states = np.flatnonzero((of.size1 >= 0) | of.ended)
    count = len(of.topics)
    if not len(states):
        return Short(np.zeros(count, np.int64), np.zeros(count, np.int64))
    same = np.r_[_same(of, states), False]
    first = np.r_[True, ~same[:-1]]
    moment = np.clip(of.committed[states], begin_us, end_us)
    until = np.where(of.ended[states], moment, np.where(same, np.r_[moment[1:], end_us], end_us))
    since = np.where(first & (of.size0[states] >= 0), begin_us, moment)
    topic, size0, size1 = of.topic[states], of.size0[states], of.size1[states]

    def under(limit: Ints, from_us: Ints, until_us: Ints) -> Ints:
        def lasted(begin: Ints, end: Ints) -> Ints:
            return np.maximum(np.minimum(end, until_us) - np.maximum(begin, from_us), 0)

        known = (limit != NONE) & (limit > 0)
        whole = np.where(known & (size1 < limit), lasted(moment, until), 0)
        whole += np.where(known & (size0 < limit), lasted(since, moment), 0)
        total: Ints = np.zeros(count, np.int64)
        np.add.at(total, topic, whole)
        return total

    minimum: Ints = np.zeros(count, np.int64)
    for at, step in enumerate(least):
        ends = least[at + 1].from_us if at + 1 < len(least) else np.full(count, FAR)
        minimum += under(step.least[topic], step.from_us[topic], ends[topic])
    return Short(under(of.target[states], np.int64(begin_us), np.int64(end_us)), minimum)


def unknown_us(steps: Sequence[tuple[int, int]], begin_us: int, end_us: int) -> int:
    """Returns how long of a window the setting of a topic with these steps is not known, in microseconds."""
    left = end_us - begin_us
    for at, (from_us, least) in enumerate(steps):
        until_us = min(steps[at + 1][0], end_us) if at + 1 < len(steps) else end_us
        if least != NONE:
            left -= max(until_us - max(from_us, begin_us), 0)
    return left


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


def _same(of: History, rows: Ints) -> Flags:
    one, other = rows[:-1], rows[1:]
    return (of.topic[one] == of.topic[other]) & (of.partition[one] == of.partition[other])


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
