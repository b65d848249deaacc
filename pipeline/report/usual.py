"""Says whether a stop cost what stops cost: beside the last ones of its kind, planned or not, in the whole journal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from pipeline.inputs import Loads, Snapshot
from pipeline.report.result import LossReport, Now, Usual
from pipeline.report.stops import Stop
from pipeline.report.summing import Sums
from pipeline.what_if import losses, sets_of

LAST: Final = 10
"""Stops that one is compared with, and of which the next one is foretold."""


class Mean(NamedTuple):
    """What a stop cost for each partition that it led, in seconds. ``at_most`` is None where it is not bounded."""

    known: float
    at_most: float | None


class Foretold(NamedTuple):
    """The median cost of the last stops of a kind for each partition; ``stops`` of them, and None without any."""

    stops: int
    known: float | None
    at_most: float | None


def means(whole: Sums) -> list[Mean | None]:
    """Returns the means of all stops by number; None of one that led nothing. ``whole``: by stop."""
    found: list[Mean | None] = []
    for at, partitions in enumerate(whole.partitions.tolist()):
        known, most = (int(column[at]) / 1e6 / partitions if partitions else 0.0 for column in (whole[2], whole[4]))
        found.append(Mean(known, None if whole.unbounded[at] else most) if partitions else None)
    return found


def usual(stops: Sequence[Stop], each: Sequence[Mean | None]) -> list[Usual | None]:
    """Returns each stop beside the last ones before it of its kind; None where it or all of them led nothing."""
    before: dict[bool, list[float]] = {True: [], False: []}
    found: list[Usual | None] = []
    for stop, mean in zip(stops, each, strict=True):
        last = before[stop.planned][-LAST:]
        if mean is None:
            found.append(None)
            continue
        before[stop.planned].append(mean.known)
        worse = sum(mean.known > one for one in last)
        found.append(Usual(len(last), _ms(mean.known), _ms(median(last)), _ms(max(last)), worse) if last else None)
    return found


def foretold(stops: Sequence[Stop], each: Sequence[Mean | None], *, planned: bool) -> Foretold:
    """Returns what the next stop of a kind may cost for each partition that it leads, by the last ones."""
    last = [mean for stop, mean in zip(stops, each, strict=True) if stop.planned is planned and mean is not None]
    some = last[-LAST:]
    bounded = [mean.at_most for mean in some if mean.at_most is not None]
    return Foretold(
        len(some),
        median(mean.known for mean in some) if some else None,
        median(bounded) if some and len(bounded) == len(some) else None,
    )


def _ms(seconds: float) -> float:
    return round(seconds, 3)


def now(snapshot: Snapshot, loads: Loads | None, planned: Foretold, unplanned: Foretold) -> Now:
    """Returns the cost of the loss of each live broker and of each rack, the broker with most leaders first.

    Raises :class:`~pipeline.inputs.BadInput` above the bound of their number, and
    :class:`~pipeline.ending.Disagreement`.
    """
    known = Loads.none(len(snapshot.partitions)) if loads is None else loads
    found = [
        LossReport(
            one.name,
            list(one.brokers),
            one.led,
            one.offline,
            list(one.named),
            one.under_min_isr if (snapshot.partitions.min_isr >= 0).all() else None,
            _times(one.led, planned.known),
            _times(one.led, unplanned.known),
            _times(one.led, unplanned.at_most),
        )
        for one in losses(snapshot, known, sets_of(snapshot))
    ]
    found.sort(key=lambda one: (-one.offline, -(one.under_min_isr or 0), -one.led, one.lost))
    return Now(snapshot.ts_us, planned.stops, unplanned.stops, found)


def _times(led: int, each_s: float | None) -> float | None:
    return None if each_s is None else round(led * each_s, 1)
