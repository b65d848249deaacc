"""Draws the cluster's time as SVG: a lane for each broker that stopped, and one for controllers and gaps."""

from __future__ import annotations

from html import escape
from typing import Final

from pipeline.report.result import Result, StopCost
from pipeline.report.sections import costliest
from pipeline.report.wording import seconds, time

WIDTH: Final = 1_000
LEFT: Final = 90
LANE: Final = 22
BAR: Final = 12
LANES_MAX: Final = 60
TICKS: Final = 5
BAR_MIN: Final = 3.0
BARS_MAX: Final = 300
"""Of one kind: of stops the costliest, of others the last ones, so that the page stays small."""


def timeline(result: Result) -> str:
    """Returns the drawing; brokers without a stop have no lane."""
    brokers = sorted({stop.broker for stop in result.stops})
    shown = brokers[:LANES_MAX]
    height = (len(shown) + 2) * LANE
    lane = {broker: (at + 1) * LANE for at, broker in enumerate(shown)}
    parts = [_gap(result, gap.begin_us, gap.end_us, gap.why, height) for gap in result.gaps[-BARS_MAX:]]
    parts += [_label(0, "controller"), *(_label(lane[broker], f"broker {broker}") for broker in shown)]
    for number, term in enumerate(result.terms[-BARS_MAX:]):
        title = f"epoch {term.ctl_epoch}, daemon {term.ctl_id}: {time(term.begin_us)} to {time(term.end_us)} UTC"
        parts.append(_bar(result, term.begin_us, term.end_us, 0, f"t{number % 2}", title))
    for stop in costliest(result.stops, BARS_MAX):
        if stop.broker in lane:
            kind = "p" if stop.planned else "u"
            parts.append(_bar(result, stop.begin_us, stop.up_us or result.to_us, lane[stop.broker], kind, _title(stop)))
    parts += _ticks(result, height)
    left = len(brokers) - len(shown)
    more = f"<p class=s>{left} more brokers stopped; the JSON has them.</p>" if left else ""
    if max(len(result.stops), len(result.terms), len(result.gaps)) > BARS_MAX:
        more += f"<p class=s>Drawn are the {BARS_MAX} stops that cost most, and the last {BARS_MAX} of the others.</p>"
    head = f'<svg viewBox="0 0 {WIDTH} {height + 8}" role="img" aria-label="Stops of brokers over time">'
    return (
        f"{head}{''.join(parts)}</svg>"
        "<p class=s><b class=p>&#9632;</b> planned stop <b class=u>&#9632;</b> unplanned stop "
        f"<b class=t>&#9632;</b> term of a controller <b class=g>&#9632;</b> rows are missing</p>{more}"
    )


def _title(stop: StopCost) -> str:
    kind = "planned" if stop.planned else "unplanned"
    return (
        f"broker {stop.broker}, {kind}, {time(stop.begin_us)} UTC: {stop.led} partitions led, "
        f"{seconds(stop.cost.known_s)} without a leader, all partitions together"
    )


def _x(result: Result, at_us: int) -> float:
    whole = max(result.to_us - result.from_us, 1)
    return LEFT + (WIDTH - LEFT) * min(max((at_us - result.from_us) / whole, 0.0), 1.0)


def _bar(result: Result, begin_us: int, end_us: int, top: int, kind: str, title: str) -> str:
    x, width = _x(result, begin_us), max(_x(result, end_us) - _x(result, begin_us), BAR_MIN)
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{top + (LANE - BAR) // 2}" width="{width:.1f}" height="{BAR}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _gap(result: Result, begin_us: int, end_us: int, why: str, height: int) -> str:
    x, width = _x(result, begin_us), max(_x(result, end_us) - _x(result, begin_us), BAR_MIN)
    return (
        f'<rect class="g" x="{x:.1f}" y="0" width="{width:.1f}" height="{height - LANE}">'
        f"<title>{escape(why)}</title></rect>"
    )


def _label(top: int, text: str) -> str:
    return f'<text x="0" y="{top + LANE - 7}">{escape(text)}</text>'


def _ticks(result: Result, height: int) -> list[str]:
    parts = []
    for tick in range(TICKS + 1):
        at_us = result.from_us + (result.to_us - result.from_us) * tick // TICKS
        x, anchor = _x(result, at_us), "start" if tick == 0 else "end" if tick == TICKS else "middle"
        parts.append(f'<line class="a" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - LANE}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 4}" text-anchor="{anchor}">{time(at_us)[5:]}</text>')
    return parts
