"""Puts the answers of all buckets together into the result."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pipeline.inputs import Loads, Snapshot
from pipeline.report import moved
from pipeline.report.asking import Wanted
from pipeline.report.bucket import NO_STOP, Found, Latencies, Question, Sums
from pipeline.report.move_result import PlanReport
from pipeline.report.now import now
from pipeline.report.recovery import Recovery, Whole
from pipeline.report.replication import unknown_us
from pipeline.report.result import (
    VERSION,
    Cost,
    ElectionReport,
    GapReport,
    Now,
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
from pipeline.report.spread import Spread
from pipeline.report.stops import Stop, next_begins
from pipeline.report.usual import Mean, foretold, means, usual
from state_machines.planning.plan import Move

WORST: Final = 10
"""Topics that a stop names."""
UNCLEAN_SHOWN_MAX: Final = 100
NINES_DIGITS: Final = 2
LONGEST: Final = (3, 5)
"""Fields of :class:`~pipeline.report.bucket.Sums` of which the largest counts, not the sum."""


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

    Raises :class:`~pipeline.disagreement.Disagreement`, and :class:`~pipeline.inputs.BadInput` for too many brokers.
    """
    by_topic, by_stop = _by_topic(found), _by_stop(found)
    for name in known.partitions:
        by_topic[name]  # a topic without rows costs nothing
    every = _sum(total.cost for total in by_topic.values())
    stops = question.around.stops
    each = means(_whole_stops(found, len(stops)))
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
        _cost(every),
        _cost(_sum(by_stop.get(NO_STOP, {}).values())),
        _stops(stops, by_stop, _recovery(found, len(stops)), usual(stops, each), question),
        [
            _topic(name, total, known, question)
            for name, total in sorted(by_topic.items())
            if name.startswith(wanted.topic_prefix)
        ],
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


class _Total:
    """Sums of a topic over all buckets; ``cost`` in the order of :class:`pipeline.report.bucket.Sums`."""

    def __init__(self) -> None:
        self.partitions = self.under_target_us = self.under_min_us = 0
        self.cost = [0] * 7


def _by_topic(found: Iterable[Found]) -> defaultdict[str, _Total]:
    totals = defaultdict[str, _Total](_Total)
    for each in found:
        for at, name in enumerate(each.topics):
            total = totals[name]
            total.partitions += int(each.partitions[at])
            total.cost = _sum((total.cost, [int(column[at]) for column in each.sums]))
            total.under_target_us += int(each.under_target_us[at])
            total.under_min_us += int(each.under_min_us[at])
    return totals


def _by_stop(found: Iterable[Found]) -> dict[int, dict[str, list[int]]]:
    costs: dict[int, dict[str, list[int]]] = defaultdict(dict)
    for each in found:
        for (stop, at), cost in each.by_stop.items():
            name = each.topics[at]
            costs[stop][name] = _sum((costs[stop].get(name, [0] * 7), cost))
    return costs


def _sum(costs: Iterable[Sequence[int]]) -> list[int]:
    """Adds costs; of the longest intervals it takes the longest."""
    total = [0] * 7
    for cost in costs:
        total = [max(a, b) if at in LONGEST else a + b for at, (a, b) in enumerate(zip(total, cost, strict=True))]
    return total


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


def _whole_stops(found: Iterable[Found], stops: int) -> Sums:
    whole = Sums(*(np.zeros(stops, np.int64) for _ in Sums._fields))
    for each in found:
        whole = Sums(
            *(
                np.maximum(one, more) if at in LONGEST else one + more
                for at, (one, more) in enumerate(zip(whole, each.whole_stops, strict=True))
            )
        )
    return whole


def _now(known: Known, stops: Sequence[Stop], each: Sequence[Mean | None]) -> Now | None:
    if known.snapshot is None:
        return None
    planned, unplanned = (foretold(stops, each, planned=kind) for kind in (True, False))
    return now(known.snapshot, known.loads, planned, unplanned)


def _stops(
    stops: Sequence[Stop],
    costs: Mapping[int, Mapping[str, list[int]]],
    back: Recovery,
    beside: Sequence[Usual | None],
    question: Question,
) -> list[StopCost]:
    """Returns the stops of the window, and those before it that cost something in it: so the costs add up."""
    reports = []
    for number, (stop, next_us) in enumerate(zip(stops, next_begins(stops), strict=True)):
        up_us = next_us if stop.up_us is None else stop.up_us
        if number not in costs and not _meets(stop.begin_us, up_us, question):
            continue
        topics = {name: _cost(sums) for name, sums in costs.get(number, {}).items()}
        cost = _cost(_sum(costs.get(number, {}).values()))
        worst = sorted(topics.items(), key=lambda of: (-(of[1].at_most_s or of[1].known_s), -of[1].known_s, of[0]))
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
                [TopicCost(*of) for of in worst[:WORST]],
                _recovered(stop, number, back.full),
                _recovered(stop, number, back.back),
                beside[number],
            )
        )
    return reports


def _recovered(stop: Stop, number: int, whole: Whole) -> Recovered:
    partitions, last_us, unseen, left = (int(values[number]) for values in whole)
    return Recovered(partitions, _s(last_us - stop.begin_us) if last_us and not left else None, unseen, left)


def _topic(name: str, total: _Total, known: Known, question: Question) -> TopicReport:
    partitions = max(total.partitions, known.partitions.get(name, 0))
    cost, whole_s = _cost(total.cost), _s(question.end_us - question.begin_us) * partitions
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
        _s(total.under_target_us),
        _s(total.under_min_us) if unknown < question.end_us - question.begin_us else None,
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
