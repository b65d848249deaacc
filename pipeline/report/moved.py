"""Sums the reassignments of all buckets: by topic, by plan of the daemon, and beside the file of a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pipeline.report.bucket import Found, Question
from pipeline.report.result import MoveReport, PlanReport, Predicted, PredictedTopic
from pipeline.report.terms import NONE
from state_machines.planning.plan import Move

TOPICS_MAX: Final = 1_000
"""Topics beside a plan's file: those whose bytes differ most."""
Sizes = Mapping[tuple[str, int], int]


class Moved(NamedTuple):
    """One reassignment. ``end_us`` is None while it goes on. ``added``: replicas that it added."""

    topic: str
    partition: int
    begin_us: int
    end_us: int | None
    added: int


class _Sum(NamedTuple):
    """Bytes of reassignments, None where no size is known, and how many sizes are not."""

    bytes: int | None
    unknown: int
    rate: float | None


def moved(found: Iterable[Found], question: Question, prefix: str) -> list[Moved]:
    """Returns the reassignments in the window of topics with a prefix, by topic, partition and begin."""
    some = [
        Moved(each.topics[topic], partition, begin, None if end == NONE else end, added)
        for each in found
        for topic, partition, begin, end, added in zip(*(values.tolist() for values in each.moves), strict=True)
        if each.topics[topic].startswith(prefix) and begin <= question.end_us
    ]
    return sorted(one for one in some if one.end_us is None or one.end_us >= question.begin_us)


def by_topic(some: Iterable[Moved], sizes: Sizes) -> list[MoveReport]:
    """Returns the reassignments of each topic."""
    of_topics: dict[str, list[Moved]] = defaultdict(list)
    for one in some:
        of_topics[one.topic].append(one)
    return [_of_topic(topic, of_topics[topic], sizes) for topic in sorted(of_topics)]


def of_plans(plans: Iterable[PlanReport], some: Sequence[Moved], sizes: Sizes, last_us: int) -> list[PlanReport]:
    """Returns plans with the reassignments of their topics that began while they were carried out."""
    return [_of_plan(plan, some, sizes, last_us) for plan in plans]


def predicted(moves: Sequence[Move], some: Iterable[Moved], sizes: Sizes) -> Predicted:
    """Puts the moves of a plan's file beside the latest reassignments of their partitions.

    Moves that add no replica only change the order of leaders: no reassignment shows them.
    """
    latest = {(one.topic, one.partition): one for one in some}
    of_topics: dict[str, list[Move]] = defaultdict(list)
    for move in moves:
        if move.added:
            of_topics[move.topic].append(move)
    topics = [_beside(topic, of_topics[topic], latest, sizes) for topic in sorted(of_topics)]
    ordered = sorted(topics, key=lambda one: (-abs((one.bytes or 0) - (one.predicted_bytes or 0)), one.topic))
    return Predicted(
        len(moves),
        sum(not move.added for move in moves),
        sum(one.ended for one in topics),
        sum(one.unfinished for one in topics),
        sum(one.not_begun for one in topics),
        _whole(one.predicted_bytes for one in topics),
        _whole(one.bytes for one in topics),
        sum(one.size_unknown for one in topics),
        ordered[:TOPICS_MAX],
    )


def _of_topic(topic: str, some: Sequence[Moved], sizes: Sizes) -> MoveReport:
    total, left = _sum(some, sizes), _sum([one for one in some if one.end_us is None], sizes)
    lasted = [one.end_us - one.begin_us for one in some if one.end_us is not None]
    last_us = max(one.begin_us if one.end_us is None else one.end_us for one in some)
    unfinished_bytes = left.bytes if len(lasted) < len(some) else 0
    return MoveReport(
        topic,
        len(some),
        len(some) - len(lasted),
        sum(one.added for one in some),
        _s(last_us - min(one.begin_us for one in some)),
        _s(max(lasted, default=0)),
        total.bytes,
        total.unknown,
        total.rate,
        unfinished_bytes,
        _left_s(unfinished_bytes, total.rate),
    )


def _of_plan(plan: PlanReport, some: Sequence[Moved], sizes: Sizes, last_us: int) -> PlanReport:
    until_us, topics = last_us if plan.end_us is None else plan.end_us, frozenset(plan.topics)
    mine = [one for one in some if one.topic in topics and plan.begin_us <= one.begin_us <= until_us]
    total = _sum(mine, sizes)
    return PlanReport(
        plan.pid,
        plan.begin_us,
        plan.end_us,
        plan.state,
        plan.result,
        plan.topics,
        len(mine),
        sum(one.end_us is None for one in mine),
        total.bytes if mine else 0,
        total.unknown,
        total.rate,
    )


def _beside(topic: str, moves: Sequence[Move], latest: Mapping[tuple[str, int], Moved], sizes: Sizes) -> PredictedTopic:
    mine = [latest[topic, move.partition] for move in moves if (topic, move.partition) in latest]
    ended = [one for one in mine if one.end_us is not None]
    known = [move.bytes for move in moves if move.bytes is not None]
    total = _sum(ended, sizes)
    return PredictedTopic(
        topic,
        len(moves),
        len(ended),
        len(mine) - len(ended),
        len(moves) - len(mine),
        sum(known) if len(known) == len(moves) else None,
        total.bytes if ended else 0,
        total.unknown,
    )


def _sum(some: Sequence[Moved], sizes: Sizes) -> _Sum:
    adding = [one for one in some if one.added]
    sized = [(one, sizes[one.topic, one.partition] * one.added) for one in adding if one[:2] in sizes]
    ended = [(one.begin_us, one.end_us, size) for one, size in sized if one.end_us is not None]
    span_us = max(end for _, end, _ in ended) - min(begin for begin, _, _ in ended) if ended else 0
    return _Sum(
        sum(size for _, size in sized) if sized or not adding else None,
        len(adding) - len(sized),
        round(sum(size for *_, size in ended) / (span_us / 1e6)) if span_us else None,
    )


def _left_s(bytes_left: int | None, rate: float | None) -> float | None:
    """Returns how long the rest takes at most at the rate so far; None without one."""
    if bytes_left == 0:
        return 0.0
    return None if bytes_left is None or not rate else round(bytes_left / rate, 1)


def _whole(values: Iterable[int | None]) -> int | None:
    """Adds values; None where one is not known."""
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if len(known) == len(every) else None


def _s(microseconds: int) -> float:
    return round(microseconds / 1e6, 3)
