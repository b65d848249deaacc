"""Puts the answers of all buckets together into the result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pipeline.inputs import Loads, Snapshot
from pipeline.report import moved
from pipeline.report.asking import Wanted
from pipeline.report.bucket import Found, Latencies, Question
from pipeline.report.replication import Recovery, Whole, unknown_us
from pipeline.report.result import (
    VERSION,
    Cost,
    ElectionReport,
    GapReport,
    Now,
    PlanReport,
    Quantiles,
    Recovered,
    Result,
    StopCost,
    TermReport,
    TopicCost,
    TopicReport,
    Unclean,
    Usual,
)
from pipeline.report.stops import Stop, next_begins
from pipeline.report.summing import NO_STOP, Costs, Named, Spread, Sums, added, costs_together, named
from pipeline.report.terms import Ints
from pipeline.report.usual import Mean, foretold, means, now, usual
from state_machines.planning.plan import Move

WORST: Final = 10
"""Topics that a stop names."""
UNCLEAN_SHOWN_MAX: Final = 100
NINES_DIGITS: Final = 2


class Known(NamedTuple):
    """What other files tell: how many partitions each topic has, the bytes of a replica of each partition, and moves.

    ``planned``: the moves of a plan's file. ``snapshot``: the latest one, with its ``loads``.
    """

    partitions: Mapping[str, int]
    sizes: Mapping[tuple[str, int], int]
    planned: Sequence[Move] = ()
    snapshot: Snapshot | None = None
    loads: Loads | None = None


def merged(
    cluster: str,
    found: Sequence[Found],
    question: Question,
    wanted: Wanted,
    known: Known,
    plans: list[PlanReport],
    gaps: Sequence[GapReport],
) -> Result:
    """Makes the result of the answers of all buckets.

    Raises :class:`~pipeline.ending.Disagreement`, and :class:`~pipeline.inputs.BadInput` for too many brokers.
    """
    topics = named([each.topics for each in found], known.partitions)
    sums = added([each.sums for each in found], topics.places, len(topics.names))
    costs = costs_together([each.by_stop for each in found], topics)
    stops = question.around.stops
    whole_stops = [each.whole_stops for each in found]
    each = means(added(whole_stops, [np.arange(len(stops))] * len(found), len(stops)))
    moves = moved.moved(found, question, wanted.topic_prefix)
    unclean = sorted(
        (Unclean(*one) for each in found for one in each.unclean), key=lambda one: (one.at_us, one.topic, one.partition)
    )
    return Result(
        VERSION,
        cluster,
        question.begin_us,
        question.end_us,
        wanted.topic_prefix,
        wanted.session_ms,
        wanted.tick_ms,
        _cost(sums.whole()),
        _cost(costs.of(NO_STOP).sums.whole()),
        _stops(stops, costs, topics.names, _recovery(found, len(stops)), usual(stops, each), question),
        _topics(found, topics, sums, known, question),
        _elections(found),
        unclean[:UNCLEAN_SHOWN_MAX],
        len(unclean),
        moved.by_topic(moves, known.sizes),
        moved.of_plans(
            [plan for plan in plans if _meets(plan.begin_us, plan.end_us, question)],
            moves,
            known.sizes,
            question.around.last_us,
        ),
        [TermReport(term.ctl_epoch, term.ctl_id, term.first_us, term.last_us) for term in question.terms.all],
        [gap for gap in gaps if _meets(gap.begin_us, gap.end_us, question)],
        predicted=moved.predicted(known.planned, moves, known.sizes) if known.planned else None,
        now=_now(known, stops, each) if wanted.foretell else None,
    )


def _cost(sums: Sequence[int]) -> Cost:
    intervals, partitions, known, longest, most, longest_most, unbounded = sums
    return Cost(
        intervals,
        partitions,
        _s(known),
        _s(longest),
        None if unbounded else _s(most),
        None if unbounded else _s(longest_most),
        unbounded,
    )


def _recovery(found: Iterable[Found], stops: int) -> Recovery:
    full = back = Whole(*(np.zeros(stops, np.int64) for _ in Whole._fields))
    for each in found:
        full, back = full.joined(each.recovery.full), back.joined(each.recovery.back)
    return Recovery(full, back)


def _now(known: Known, stops: Sequence[Stop], each: Sequence[Mean | None]) -> Now | None:
    if known.snapshot is None:
        return None
    planned, unplanned = (foretold(stops, each, planned=kind) for kind in (True, False))
    return now(known.snapshot, known.loads, planned, unplanned)


def _stops(
    stops: Sequence[Stop],
    costs: Costs,
    names: Sequence[str],
    back: Recovery,
    beside: Sequence[Usual | None],
    question: Question,
) -> list[StopCost]:
    """Returns the stops of the window, and those before it that cost something in it: so the costs add up."""
    reports = []
    for number, (stop, next_us) in enumerate(zip(stops, next_begins(stops), strict=True)):
        up_us = next_us if stop.up_us is None else stop.up_us
        mine = costs.of(number)
        if not len(mine.stop) and not _meets(stop.begin_us, up_us, question):
            continue
        cost = _cost(mine.sums.whole())
        reports.append(
            StopCost(
                number,
                stop.broker,
                stop.planned,
                stop.between_terms,
                stop.begin_us,
                stop.at_most_us,
                stop.free_us,
                stop.down_us,
                stop.up_us,
                cost.partitions,
                cost,
                _worst(mine, names),
                _recovered(stop, number, back.full),
                _recovered(stop, number, back.back),
                beside[number],
            )
        )
    return reports


def _recovered(stop: Stop, number: int, whole: Whole) -> Recovered:
    partitions, last_us, unseen, left = (int(values[number]) for values in whole)
    return Recovered(partitions, _s(last_us - stop.begin_us) if last_us and not left else None, unseen, left)


def _worst(of: Costs, names: Sequence[str]) -> list[TopicCost]:
    """Returns the topics that a stop cost most: at most where that is known, else as far as it is known."""
    sums = of.sums
    rank = np.where((sums.unbounded == 0) & (sums.most_us > 0), sums.most_us, sums.known_us)
    worst = np.lexsort((of.topic, -sums.known_us, -rank))[:WORST].tolist()
    return [TopicCost(names[int(of.topic[at])], _cost([int(column[at]) for column in sums])) for at in worst]


def _topics(found: Sequence[Found], topics: Named, sums: Sums, known: Known, question: Question) -> list[TopicReport]:
    def of_all(values: Iterable[Ints]) -> list[int]:
        total: Ints = np.zeros(len(topics.names), np.int64)
        for places, some in zip(topics.places, values, strict=True):
            total[places] += some
        counts: list[int] = total.tolist()
        return counts

    partitions = of_all(each.partitions for each in found)
    target, minimum = of_all(each.under_target_us for each in found), of_all(each.under_min_us for each in found)
    reports = []
    for at, name in enumerate(topics.names):
        if name.startswith(question.prefix):
            count, cost = max(partitions[at], known.partitions.get(name, 0)), [int(column[at]) for column in sums]
            reports.append(_topic(name, count, _cost(cost), (target[at], minimum[at]), question))
    return reports


def _topic(name: str, partitions: int, cost: Cost, under_us: tuple[int, int], question: Question) -> TopicReport:
    whole_s = _s(question.end_us - question.begin_us) * partitions
    share = 1.0 - min(1.0, cost.known_s / whole_s) if whole_s else 1.0
    unknown = unknown_us(question.min_isr.get(name, ()), question.begin_us, question.end_us)
    least = None if cost.at_most_s is None else 1.0 - min(1.0, cost.at_most_s / whole_s) if whole_s else 1.0
    return TopicReport(
        name,
        partitions,
        cost,
        round(share, 9),
        None if least is None else round(least, 9),
        round(-math.log10(1.0 - share), NINES_DIGITS) if share < 1.0 else None,
        _s(under_us[0]),
        _s(under_us[1]) if unknown < question.end_us - question.begin_us else None,
        _s(unknown),
    )


def _elections(found: Iterable[Found]) -> list[ElectionReport]:
    spreads: dict[str, Latencies] = {}
    for each in found:
        for reason, more in each.elections.items():
            had = spreads.get(reason)
            spreads[reason] = more if had is None else had.joined(more)
    return [
        ElectionReport(reason, _quantiles(of.committed), _quantiles(of.acknowledged), of.untimed)
        for reason, of in sorted(spreads.items())
    ]


def _quantiles(spread: Spread) -> Quantiles:
    if not spread.total:
        return Quantiles(0, None, None, None, None)
    p50, p90, p99 = (round(spread.quantile_us(share) / 1e3, 1) for share in (0.5, 0.9, 0.99))
    return Quantiles(spread.total, p50, p90, p99, round(spread.longest_us / 1e3, 1))


def _meets(begin_us: int, end_us: int | None, question: Question) -> bool:
    return begin_us <= question.end_us and (end_us is None or end_us >= question.begin_us)


def _s(microseconds: int) -> float:
    return round(microseconds / 1e6, 3)
