"""Sums how long partitions lacked replicas (J5), and finds when they were whole again (J6) and reassigned (J7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from pipeline.report.history import History
from pipeline.report.intervals import FAR, Intervals
from pipeline.report.stops import Stop, latest_stop, next_begins
from pipeline.report.terms import NONE, Flags, Ints

MinIsr: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""By topic the times (microseconds of the wall clock) from which a setting is in force, oldest first, or unknown."""


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


LAG_US: Final = 30_000_000
"""A broker that is back may still leave an ISR by its stop: ``replica.lag.time.max.ms`` of Kafka is 30 s."""


class Whole(NamedTuple):
    """How partitions became whole after stops, in arrays by the stop's number.

    ``partitions``: those that were not. ``last_us``: when the last one of those whose row is known became whole; 0:
    none. ``unseen``: became whole in a time whose rows are missing. ``left``: were not whole before the broker's next
    stop or the end.
    """

    partitions: Ints
    last_us: Ints
    unseen: Ints
    left: Ints

    def joined(self, other: Whole) -> Whole:
        """Returns both buckets together."""
        return Whole(
            self.partitions + other.partitions,
            np.maximum(self.last_us, other.last_us),
            self.unseen + other.unseen,
            self.left + other.left,
        )


class Recovery(NamedTuple):
    """``full``: partitions that lost the broker from their ISR, until all replicas were in sync.

    ``back``: partitions that the broker led by preference, until it led them again.
    """

    full: Whole
    back: Whole


def recovery(of: History, found: Intervals, stops: Sequence[Stop], topics: Flags) -> Recovery:
    """Returns when the partitions that stops concern were whole again.

    ``found`` are all intervals of the bucket. ``topics``: whether each topic of the history counts.
    """
    lost = of.members0.without(of.members1)
    shrunk = (of.size1[lost.row] >= 0) & topics[of.topic[lost.row]]
    row, broker = lost.row[shrunk], lost.broker[shrunk]
    short_by = _while_stopped(stops, latest_stop(stops, broker, of.committed[row]), of.committed[row])
    full = ((of.size1 >= of.target) & (of.size1 >= 0)) | of.ended
    mine = (found.stop >= 0) & (of.preferred[found.row] == found.leader0) & topics[of.topic[found.row]]
    led_again = ((of.leader1 == of.preferred) & (of.leader0 != of.leader1)) | of.ended
    return Recovery(
        _whole(of, row, short_by, full, of.size0 >= of.target, stops),
        _whole(of, found.row[mine], found.stop[mine], led_again, of.leader0 == of.preferred, stops),
    )


def _while_stopped(stops: Sequence[Stop], stop: Ints, at: Ints) -> Ints:
    """Returns the stops, and -1 for each whose broker had been back for longer than :data:`LAG_US`."""
    limits = np.array([FAR if one.up_us is None else one.up_us + LAG_US for one in stops] + [FAR], np.int64)
    return np.where(at <= limits[stop], stop, -1)


def _whole(of: History, row: Ints, stop: Ints, becomes: Flags, was: Flags, stops: Sequence[Stop]) -> Whole:
    """Follows partitions from ``row`` on. ``becomes``: a row makes it whole; ``was``: it was so before the row."""
    row, stop = _each_once(of, row[stop >= 0], stop[stop >= 0])
    limits = np.array([FAR if until is None else until for until in next_begins(stops)] + [0], np.int64)
    seen, shown = next_where(of, becomes)[row], next_where(of, was)
    shown = np.where(of.last[row], -1, shown[np.minimum(row + 1, len(of) - 1)])
    unseen = (shown >= 0) & ((seen < 0) | (shown <= seen)) & (of.committed[shown] < limits[stop])
    ended = (seen >= 0) & ~unseen & (of.committed[seen] < limits[stop])
    last: Ints = np.zeros(len(stops), np.int64)
    np.maximum.at(last, stop[ended], of.committed[seen[ended]])
    return Whole(_count(stop, stops), last, _count(stop[unseen], stops), _count(stop[~ended & ~unseen], stops))


def _each_once(of: History, row: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Keeps the last row of each partition and stop."""
    order = np.lexsort((row, of.partition[row], of.topic[row], stop))
    row, stop = row[order], stop[order]
    differs = (stop[1:] != stop[:-1]) | (of.partition[row[1:]] != of.partition[row[:-1]])
    last = np.r_[differs | (of.topic[row[1:]] != of.topic[row[:-1]]), True][: len(row)]
    return row[last], stop[last]


def _count(stop: Ints, stops: Sequence[Stop]) -> Ints:
    return np.bincount(stop, minlength=len(stops)).astype(np.int64)
