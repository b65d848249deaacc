"""Puts the answers of all buckets together into the result."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pipeline.report.asking import Wanted
from pipeline.report.bucket import NO_STOP, Found, Latencies, Question
from pipeline.report.recovery import Recovery, Whole
from pipeline.report.result import (
    VERSION,
    Cost,
    ElectionReport,
    GapReport,
    MoveReport,
    PlanReport,
    Quantiles,
    Recovered,
    Result,
    StopCost,
    TermReport,
    TopicCost,
    TopicReport,
    Unclean,
)
from pipeline.report.spread import Spread
from pipeline.report.stops import Stop, next_begins
from pipeline.report.terms import NONE

WORST: Final = 10
"""Topics that a stop names."""
UNCLEAN_SHOWN_MAX: Final = 100
NINES_DIGITS: Final = 2


class Known(NamedTuple):
    """What other files tell: how many partitions each topic has, and the bytes of a replica of each partition."""

    partitions: Mapping[str, int]
    sizes: Mapping[tuple[str, int], int]


def merged(
    cluster: str,
    found: Sequence[Found],
    question: Question,
    wanted: Wanted,
    known: Known,
    plans: list[PlanReport],
    gaps: Sequence[GapReport],
) -> Result:
    """Makes the result of the answers of all buckets."""
    by_topic, by_stop = _by_topic(found), _by_stop(found)
    for name in known.partitions.keys() - by_topic.keys():
        by_topic[name].min_known = name in question.min_isr
    every = _sum(total.cost for total in by_topic.values())
    stops = question.around.stops
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
        _stops(stops, by_stop, _recovery(found, len(stops)), question),
        [
            _topic(name, total, known, question)
            for name, total in sorted(by_topic.items())
            if name.startswith(wanted.topic_prefix)
        ],
        _elections(found),
        unclean[:UNCLEAN_SHOWN_MAX],
        len(unclean),
        _moves(found, question, known, wanted.topic_prefix),
        [plan for plan in plans if _meets(plan.begin_us, plan.end_us, question)],
        [TermReport(term.ctl_epoch, term.ctl_id, term.first_us, term.last_us) for term in question.terms.all],
        [gap for gap in gaps if _meets(gap.begin_us, gap.end_us, question)],
    )


class _Total:
    """Sums of a topic over all buckets; ``cost`` in the order of :class:`pipeline.report.bucket.Sums`."""

    def __init__(self) -> None:
        self.partitions = self.under_target_us = self.under_min_us = 0
        self.cost = [0] * 7
        self.min_known = True


def _by_topic(found: Iterable[Found]) -> defaultdict[str, _Total]:
    totals = defaultdict[str, _Total](_Total)
    for each in found:
        for at, name in enumerate(each.topics):
            total = totals[name]
            total.partitions += int(each.partitions[at])
            total.cost = _sum((total.cost, [int(column[at]) for column in each.sums]))
            total.under_target_us += int(each.under_target_us[at])
            total.min_known &= bool(each.under_min_us[at] != NONE)
            total.under_min_us += int(each.under_min_us[at]) if total.min_known else 0
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
        total = [max(a, b) if at in (3, 5) else a + b for at, (a, b) in enumerate(zip(total, cost, strict=True))]
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


def _stops(
    stops: Sequence[Stop], costs: Mapping[int, Mapping[str, list[int]]], back: Recovery, question: Question
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
    least = None if cost.at_most_s is None else 1.0 - min(1.0, cost.at_most_s / whole_s) if whole_s else 1.0
    return TopicReport(
        name,
        partitions,
        cost,
        round(share, 9),
        None if least is None else round(least, 9),
        round(-math.log10(1.0 - share), NINES_DIGITS) if share < 1.0 else None,
        _s(total.under_target_us),
        _s(total.under_min_us) if total.min_known else None,
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


def _moves(found: Iterable[Found], question: Question, known: Known, prefix: str) -> list[MoveReport]:
    of_topics: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for each in found:
        for topic, *move in zip(*(values.tolist() for values in each.moves), strict=True):
            _, begin, end, _ = move
            wanted = each.topics[topic].startswith(prefix)
            if wanted and _meets(begin, None if end == NONE else end, question):
                of_topics[each.topics[topic]].append((move[0], begin, end, move[3]))
    return [_move(topic, some, known) for topic, some in sorted(of_topics.items())]


def _move(topic: str, some: Sequence[tuple[int, int, int, int]], known: Known) -> MoveReport:
    adding = [one for one in some if one[3]]
    sized = [(one, known.sizes[topic, one[0]]) for one in adding if (topic, one[0]) in known.sizes]
    ended = [(begin, end, size * added) for (_, begin, end, added), size in sized if end != NONE]
    span_us = max(end for _, end, _ in ended) - min(begin for begin, _, _ in ended) if ended else 0
    lasted = [end - begin for _, begin, end, _ in some if end != NONE]
    begin, end = min(one[1] for one in some), max(max(one[1], one[2]) for one in some)
    return MoveReport(
        topic,
        len(some),
        len(some) - len(lasted),
        sum(one[3] for one in some),
        _s(end - begin),
        _s(max(lasted, default=0)),
        sum(size * one[3] for one, size in sized) if sized or not adding else None,
        len(adding) - len(sized),
        round(sum(moved for _, _, moved in ended) / (span_us / 1e6)) if span_us else None,
    )


def _meets(begin_us: int, end_us: int | None, question: Question) -> bool:
    return begin_us <= question.end_us and (end_us is None or end_us >= question.begin_us)


def _s(microseconds: int) -> float:
    return round(microseconds / 1e6, 3)
