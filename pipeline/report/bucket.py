"""Applies all definitions to one bucket of partitions: rows in, sums and intervals out. Nothing here needs Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.report.history import History, history, leads
from pipeline.report.intervals import Around, Intervals, intervals
from pipeline.report.replication import MinIsr, Moves, Recovery, moves, recovery, settings, short
from pipeline.report.summing import NO_STOP, Costs, Spread, Sums, by_keys
from pipeline.report.terms import NONE, Flags, Ints, Terms

INTERVALS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("reason", pa.string()),
        ("leader0", pa.int32()),
        ("leader1", pa.int32()),
        ("begin_us", pa.int64()),
        ("at_most_us", pa.int64()),
        ("end_us", pa.int64()),
        ("clients_us", pa.int64()),
        ("stop", pa.int32()),
        ("marks", pa.int32()),
    ]
)
"""A row of the Parquet: see :class:`pipeline.report.intervals.Intervals`; ``stop`` numbers those of the report."""


class Question(NamedTuple):
    """What every bucket is asked. ``begin_us`` and ``end_us``: the window. ``min_isr``: by topic, from a time on."""

    terms: Terms
    around: Around
    begin_us: int
    end_us: int
    prefix: str
    min_isr: MinIsr


class Latencies(NamedTuple):
    """Times from the causes of elections of one reason to their commits, and to their acknowledgements.

    ``untimed``: elections whose cause has no plausible time.
    """

    committed: Spread
    acknowledged: Spread
    untimed: int

    def joined(self, other: Latencies) -> Latencies:
        """Returns both together."""
        return Latencies(
            self.committed.joined(other.committed),
            self.acknowledged.joined(other.acknowledged),
            self.untimed + other.untimed,
        )


class Found(NamedTuple):
    """What a bucket has, by the topics' numbers.

    ``whole_stops``: by the stop's number, of all topics and also outside the window.
    """

    topics: list[str]
    partitions: Ints
    sums: Sums
    under_target_us: Ints
    under_min_us: Ints
    by_stop: Costs
    whole_stops: Sums
    recovery: Recovery
    elections: Mapping[str, Latencies]
    unclean: list[tuple[str, int, int]]
    moves: Moves
    intervals: pa.Table


def answered(table: pa.Table, question: Question) -> Found:
    """Answers for the rows of a bucket, sorted by (topic, partition, ctl_epoch, seq)."""
    of, terms = history(table, question.terms)
    around = question.around.numbered(terms.places(question.terms))
    every = intervals(of, around)
    wanted = np.array([name.startswith(question.prefix) for name in of.topics] + [True])
    chosen = every.chosen(wanted[of.topic[every.row]])
    some = chosen.within(question.begin_us, question.end_us)
    caused = chosen.chosen(chosen.stop >= 0)
    missing = short(of, settings(of.topics, question.min_isr), question.begin_us, question.end_us)
    topic = of.topic[some.row]
    in_window = (of.committed >= question.begin_us) & (of.committed <= question.end_us)
    return Found(
        of.topics,
        np.bincount(of.topic[of.first], minlength=len(of.topics)),
        _sums(of, some, topic, len(of.topics)),
        missing.target,
        missing.minimum,
        _by_stop(of, some, topic),
        _sums(of, caused, caused.stop, len(around.stops)),
        recovery(of, every, around.stops, wanted),
        _elections(of, around, in_window),
        _unclean(of, in_window),
        moves(of),
        _table(of, some),
    )


def _sums(of: History, some: Intervals, group: Ints, count: int) -> Sums:
    known, most = some.known_us, some.longest_us
    bounded = most != NONE
    partition = np.cumsum(of.first)[some.row]
    spots = np.unique(group * (len(of) + 1) + partition) // (len(of) + 1)
    return Sums(
        np.bincount(group, minlength=count),
        np.bincount(spots, minlength=count),
        _total(group, known, count),
        _longest(group, known, count),
        _total(group[bounded], most[bounded], count),
        _longest(group[bounded], most[bounded], count),
        np.bincount(group[~bounded], minlength=count),
    )


def _by_stop(of: History, some: Intervals, topic: Ints) -> Costs:
    stops, topics, group = by_keys(some.stop, topic)
    return Costs(stops, topics, _sums(of, some, group, len(stops)))


def _elections(of: History, around: Around, in_window: Flags) -> dict[str, Latencies]:
    """Returns the latencies of elections by reason; those whose cause has no plausible time are counted alone."""
    elected = leads(of.leader1) & (of.leader0 != of.leader1) & ~of.ended & in_window
    chosen, untimed = elected & of.noticed, elected & ~of.noticed
    rows = np.flatnonzero(chosen)
    done = around.leaders.first(of.term[rows], of.leader1[rows], of.committed[rows])
    found = {}
    for number, reason in enumerate(of.reasons):
        mine = of.reason[rows] == number
        of_reason = rows[mine]
        told = mine & (done.at != NONE) & ~done.clocks
        without = int(np.count_nonzero(untimed & (of.reason == number)))
        if len(of_reason) or without:
            found[reason] = Latencies(
                Spread.of(of.committed[of_reason] - of.detected[of_reason]),
                Spread.of(done.at[told] - of.detected[rows[told]]),
                without,
            )
    return found


def _unclean(of: History, in_window: Flags) -> list[tuple[str, int, int]]:
    rows = np.flatnonzero(of.unclean & leads(of.leader1) & in_window)
    return [(of.topics[of.topic[row]], int(of.partition[row]), int(of.committed[row])) for row in rows.tolist()]


def _total(group: Ints, values: Ints, count: int) -> Ints:
    total: Ints = np.zeros(count, np.int64)
    np.add.at(total, group, values)
    return total


def _longest(group: Ints, values: Ints, count: int) -> Ints:
    longest: Ints = np.zeros(count, np.int64)
    np.maximum.at(longest, group, values)
    return longest


def _table(of: History, some: Intervals) -> pa.Table:
    def known(values: Ints, absent: int) -> pa.Array:
        return pa.array(values, mask=values == absent)

    columns = [
        pa.array(of.topics, pa.string()).take(pa.array(of.topic[some.row])),
        pa.array(of.partition[some.row]),
        pa.array(of.reasons, pa.string()).take(pa.array(of.reason[some.row])),
        pa.array(some.leader0),
        pa.array(some.leader1),
        pa.array(some.begin),
        known(some.at_most, NONE),
        pa.array(some.end),
        pa.array(some.clients),
        known(some.stop, NO_STOP),
        pa.array(some.marks),
    ]
    return pa.table([column.cast(field.type) for column, field in zip(columns, INTERVALS, strict=True)], INTERVALS)
