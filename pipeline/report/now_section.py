"""Makes the section of the page that foretells: what it would cost to stop a broker or a rack now."""

from __future__ import annotations

from typing import Final

from pipeline.report.result import LossReport, Now
from pipeline.report.wording import UNKNOWN, counted, left_out, name, number, seconds, table, time

ROWS_MAX: Final = 60
"""Rows of the table: the worst ones; the JSON has all."""
NAMED: Final = 2


def now_section(of: Now | None) -> str:
    """Has a line for each broker and each rack, the worst one first; says so where there is no snapshot."""
    if of is None:
        return "<p class=s>Not known without a snapshot: give --snapshot.</p>"
    heads = (
        *("lost", "led", "left without a leader", "get under min ISR"),
        *("a planned stop: no leader (sum)", "a death: no leader (sum)", "a death: at most (sum)"),
    )
    rows = [
        (
            each.lost,
            number(each.led),
            _offline(each),
            number(each.under_min_isr),
            *(_about(value) for value in (each.planned_s, each.unplanned_s, each.unplanned_at_most_s)),
        )
        for each in of.losses[:ROWS_MAX]
    ]
    return (
        f"<p class=s>By the snapshot of {time(of.at_us)} UTC. Seconds of all led partitions together are foretold, "
        f"by the median of the {_last(of.planned_stops, 'planned stop')} and the "
        f"{_last(of.unplanned_stops, 'unplanned stop')}. A partition that is left without a leader has none until its "
        f"broker is back.</p>{table(heads, rows)}{left_out(len(of.losses), ROWS_MAX, 'brokers and racks')}"
    )


def _last(count: int, noun: str) -> str:
    return f"last {noun}" if count == 1 else f"last {counted(count, noun)}"


def _offline(each: LossReport) -> str:
    if not each.offline:
        return "0"
    named = ", ".join(map(name, each.named[:NAMED]))
    more = ", ..." if each.offline > NAMED else ""
    return f"{each.offline:,} ({named}{more})"


def _about(value: float | None) -> str:
    return UNKNOWN if value is None else f"about {seconds(value)}"
