"""Finds the intervals in which a partition had no leader that served (J3).

An interval begins where the leader that goes ceases to serve, not where a row says "no leader": most elections lead
from one leader to the next in a single row. It ends at a broker when the new leader acknowledged its LeaderAndIsr, and
for clients when the first broker also acknowledged UpdateMetadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from typing import Final, NamedTuple

import numpy as np

from pipeline.report.history import History, leads
from pipeline.report.stops import Stop, latest_stop
from pipeline.report.terms import NONE, Flags, Ints
from pipeline.report.told import EVERY, Front


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


NOTICED: Final = ("broker_failure", "failover", "log_directory", "broker_return", "unclean_allowed")
"""Reasons whose elections begin with an event at the broker: the leader had ceased to serve when it was noticed."""
DIED: Final = "broker_failure"
FAR: Final = np.int64(1 << 62)


class Mark(IntFlag):
    """What a reader should know of an interval.

    ``CLOCKS``: a change of controller lies between its ends, so it is measured on the wall clocks of two machines.
    ``CENSORED``: rows are missing in its time, or before the partition's first row, or an acknowledgement is, or the
    row in which the leader went.
    ``OPEN``: it goes on at the end of the journal or window. ``DELETED``: it ended with the partition.
    """

    CLOCKS = 1
    CENSORED = 2
    OPEN = 4
    DELETED = 8


class Intervals(NamedTuple):
    """Intervals in order of their partitions. Times are microseconds of the wall clock.

    ``row`` of the history opens it. ``begin`` is known, ``at_most`` is the earliest begin (unknown: no session
    time-out). ``end`` at the broker, ``clients`` for clients. ``stop``: number of the broker's stop, or -1. ``marks``:
    bits of :class:`Mark`.
    """

    row: Ints
    leader0: Ints
    leader1: Ints
    begin: Ints
    at_most: Ints
    end: Ints
    clients: Ints
    stop: Ints
    marks: Ints

    def chosen(self, flags: Flags) -> Intervals:
        """Returns the intervals with a flag."""
        return Intervals(*(values[flags] for values in self))

    def within(self, begin_us: int, end_us: int) -> Intervals:
        """Returns the parts of intervals in a window; intervals outside are left out."""
        some = self.chosen((self.clients > begin_us) & (self.begin < end_us))
        at_most = np.where(some.at_most == NONE, NONE, np.clip(some.at_most, begin_us, end_us))
        begin, end, clients = (np.clip(times, begin_us, end_us) for times in (some.begin, some.end, some.clients))
        return some._replace(begin=begin, end=end, clients=clients, at_most=at_most)

    @property
    def known_us(self) -> Ints:
        """Returns how long each lasted at least: from the known begin to the end at the broker."""
        return np.maximum(self.end - self.begin, 0)

    @property
    def longest_us(self) -> Ints:
        """Returns how long each lasted at most: from the earliest begin to the end for clients; or unknown."""
        return np.where(self.at_most == NONE, NONE, np.maximum(self.clients - self.at_most, 0))


class Around(NamedTuple):
    """What lies around the partitions: stops, acknowledgements, times without rows, and the journal's ends."""

    stops: Sequence[Stop]
    leaders: Front
    clients: Front
    gaps: Sequence[tuple[int, int]]
    first_us: int
    last_us: int

    def numbered(self, places: Ints) -> Around:
        """Returns the same with another number of each term: ``places`` of the present one."""
        leaders, clients = self.leaders.renumbered(places), self.clients.renumbered(places)
        return self._replace(leaders=leaders, clients=clients)


def intervals(of: History, around: Around) -> Intervals:
    """Returns all intervals of a bucket."""
    changes = np.flatnonzero(((of.leader1 != NONE) & (of.leader0 != of.leader1)) | of.ended)
    opens = leads(of.leader0[changes]) & ~of.ended[changes]
    first = np.r_[True, _differ(of, changes)][: len(changes)]
    ceased = _known(of, changes)
    lost = unseen(of, changes, ceased, around.gaps)
    leaderless = first & (of.leader0[changes] == -1) & ~of.ended[changes] & ~lost.flags
    opens |= leaderless | lost.flags
    ceased = np.where(lost.flags, lost.begin, ceased)
    at = np.flatnonzero(opens)
    row, leaderless, lost = changes[at], leaderless[at], Unseen(*(values[at] for values in lost))
    following = np.minimum(at + 1, len(changes) - 1)
    after = np.where(np.r_[~_differ(of, changes), False][at], changes[following], -1)
    closes = np.where(leads(of.leader1[row]), row, after)
    begin, at_most, stop = _begins(of, row, lost, around)
    end, clients, marks = _ends(of, row, closes, around)
    # The next change of the leader ends this interval, or begins the next one.
    limit = np.where((after >= 0) & (closes == row), ceased[following], FAR)
    end, clients = np.maximum(np.minimum(end, limit), begin), np.maximum(np.minimum(clients, limit), begin)
    begin, at_most = np.where(leaderless, around.first_us, begin), np.where(leaderless, around.first_us, at_most)
    marks |= np.where(leaderless | lost.flags | _overlap(begin, clients, around.gaps), Mark.CENSORED, 0)
    leader1 = np.where(closes >= 0, of.leader1[closes], -1)
    return Intervals(row, of.leader0[row], leader1, begin, at_most, end, clients, stop, marks)


def _differ(of: History, rows: Ints) -> Flags:
    """Checks for each of these rows but the last one whether the next one is of another partition."""
    one, other = rows[:-1], rows[1:]
    return (of.topic[one] != of.topic[other]) | (of.partition[one] != of.partition[other])


def _known(of: History, row: Ints) -> Ints:
    """Returns when the leader of a row's change had ceased to serve, as far as the controller knew."""
    return np.where(of.chosen(*NOTICED)[row], of.detected[row], of.decided[row])


def _begins(of: History, row: Ints, lost: Unseen, around: Around) -> tuple[Ints, Ints, Ints]:
    """Returns the known and the earliest begins, and the stops."""
    begin = _known(of, row)
    stop = latest_stop(around.stops, np.where(lost.flags, lost.leader, of.leader0[row]), begin)
    # The last number stands for no stop.
    up = np.array([FAR if one.up_us is None else one.up_us for one in around.stops] + [0], np.int64)
    began = np.array([one.begin_us for one in around.stops] + [0], np.int64)
    caused = np.where(lost.flags, began[stop] >= lost.since, (begin <= up[stop]) | of.chosen(DIED)[row])
    stop = np.where(caused, stop, -1)
    earliest = np.array([_earliest(one) for one in around.stops] + [FAR], np.int64)[stop]
    # Without a stop that explains it, a leader may have gone unseen since the row that last showed it.
    earliest = np.where(lost.flags, np.where(earliest == NONE, NONE, np.maximum(earliest, lost.since)), earliest)
    earliest = np.where(lost.flags & (stop < 0), lost.since, earliest)
    begin = np.where(lost.flags, lost.begin, begin)
    failed = lost.flags | ((stop >= 0) & of.chosen(*NOTICED)[row])
    return (
        begin,
        np.where(failed & (earliest == NONE), NONE, np.where(failed, np.minimum(earliest, begin), begin)),
        stop,
    )


def _earliest(stop: Stop) -> int:
    """Returns when a stopped broker can have ceased to lead what it had not given up; or unknown."""
    if stop.planned:
        return stop.begin_us if stop.free_us is None else stop.free_us
    return int(NONE) if stop.at_most_us is None else stop.at_most_us


def _ends(of: History, row: Ints, closes: Ints, around: Around) -> tuple[Ints, Ints, Ints]:
    """Returns the ends at the broker and for clients, and marks."""
    known = closes >= 0
    led = known & leads(of.leader1[closes]) & ~of.ended[closes]
    term, broker, committed = of.term[closes], of.leader1[closes], of.committed[closes]
    at_broker = around.leaders.first(term, broker, committed)
    told = around.clients.first(term, np.full(len(term), EVERY, np.int64), committed)
    unseen = led & (at_broker.at == NONE)
    end = np.where(unseen, committed, at_broker.at)
    clients = np.maximum(end, np.where(told.at == NONE, end, told.at))
    crossed = led & ((of.term[row] != term) | at_broker.clocks)
    marks = np.where(crossed, Mark.CLOCKS, 0) | np.where(unseen, Mark.CENSORED, 0)
    deleted = known & ~led
    end, clients = (np.where(deleted, committed, times) for times in (end, clients))
    end, clients = (np.where(known, times, around.last_us) for times in (end, clients))
    marks |= np.where(deleted, Mark.DELETED, 0) | np.where(known, 0, Mark.OPEN)
    return end, clients, marks


def _overlap(begin: Ints, end: Ints, gaps: Sequence[tuple[int, int]]) -> Flags:
    """Checks which intervals meet a gap; ``gaps`` are disjoint and in order."""
    if not gaps:
        return np.zeros(len(begin), bool)
    starts, ends = (np.array([gap[side] for gap in gaps] + [FAR], np.int64) for side in (0, 1))
    return starts[np.searchsorted(ends[:-1], begin)] < end
