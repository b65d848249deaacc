"""Finds when partitions were whole again after a stop: all replicas in sync, and their preferred leaders (J6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from pipeline.report.history import History
from pipeline.report.intervals import FAR, Intervals
from pipeline.report.replication import next_where
from pipeline.report.stops import Stop, latest_stop, next_begins
from pipeline.report.terms import Flags, Ints

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
