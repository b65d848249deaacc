"""Compares two results: the same figures side by side, with deltas (J11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipeline.report.result import Comparison, Cost, ElectionReport, Figure, Result

EACH_STOP: Final = "a stop, known"
"""Name of the figure of a mean stop."""
TOPICS_MAX: Final = 20
"""Topics whose cost changed most."""


def compared(here: Result, there: Result) -> Comparison:
    """Returns the figures of a result beside those of another one."""
    of_topics = sorted(_topics(here, there), key=lambda figure: (-abs(figure.delta or 0), figure.name))
    return Comparison(
        there.cluster,
        there.from_us,
        there.to_us,
        [*_whole(here, there), *_latencies(here.elections, there.elections)],
        [figure for figure in of_topics if figure.delta][:TOPICS_MAX],
    )


def _whole(here: Result, there: Result) -> list[Figure]:
    def hours(of: Result) -> float:
        return round((of.to_us - of.from_us) / 3.6e9, 3)

    def under(of: Result) -> float:
        return round(sum(topic.under_target_s for topic in of.topics), 3)

    def planned(of: Result, want: bool) -> int:
        return sum(stop.planned is want for stop in of.stops)

    return [
        _figure("length", "h", hours(here), hours(there)),
        _figure("planned stops", "", planned(here, True), planned(there, True)),
        _figure("unplanned stops", "", planned(here, False), planned(there, False)),
        _figure("without a leader, known", "partition-s", here.cost.known_s, there.cost.known_s),
        _figure("without a leader, at most", "partition-s", here.cost.at_most_s, there.cost.at_most_s),
        _figure(EACH_STOP, "partition-s", _each(here), _each(there)),
        _figure("longest, known", "s", here.cost.longest_s, there.cost.longest_s),
        _figure("longest, at most", "s", here.cost.longest_at_most_s, there.cost.longest_at_most_s),
        _figure("unclean elections", "", here.unclean_count, there.unclean_count),
        _figure("under target", "partition-s", under(here), under(there)),
    ]


def _each(of: Result) -> float | None:
    """Returns the mean cost of a stop; None without stops."""
    return round(sum(stop.cost.known_s for stop in of.stops) / len(of.stops), 3) if of.stops else None


def _latencies(here: Iterable[ElectionReport], there: Iterable[ElectionReport]) -> Iterable[Figure]:
    other = {election.reason: election for election in there}
    for one in here:
        if one.reason in other:
            both = one.acknowledged, other[one.reason].acknowledged
            yield _figure(f"{one.reason}: p50 to the acknowledgement", "ms", *(each.p50_ms for each in both))
            yield _figure(f"{one.reason}: p99 to the acknowledgement", "ms", *(each.p99_ms for each in both))


def _topics(here: Result, there: Result) -> Iterable[Figure]:
    nothing = Cost()
    ours, theirs = ({topic.topic: topic.cost for topic in of.topics} for of in (here, there))
    for name in ours.keys() | theirs.keys():
        yield _figure(name, "partition-s", ours.get(name, nothing).known_s, theirs.get(name, nothing).known_s)


def _figure(name: str, unit: str, here: float | None, there: float | None) -> Figure:
    return Figure(name, unit, here, there, None if here is None or there is None else round(here - there, 3))
