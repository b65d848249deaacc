"""Says what it would cost to stop a broker or a rack now: by the latest snapshot, and by what stops have cost."""

from __future__ import annotations

from pipeline.inputs import Loads, Snapshot
from pipeline.report.result import LossReport, Now
from pipeline.report.usual import Foretold
from pipeline.what_if import losses, sets_of


def now(snapshot: Snapshot, loads: Loads | None, planned: Foretold, unplanned: Foretold) -> Now:
    """Returns the cost of the loss of each live broker and of each rack, the broker with most leaders first.

    Raises :class:`~pipeline.inputs.BadInput` above the bound of their number, and
    :class:`~pipeline.disagreement.Disagreement`.
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
