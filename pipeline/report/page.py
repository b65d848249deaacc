"""Makes the page: one HTML file, with drawings inside and without scripts; a pure function of the result."""

from __future__ import annotations

from html import escape
from typing import Final

from pipeline.report import sections
from pipeline.report.move_sections import moves
from pipeline.report.result import Result, StopCost
from pipeline.report.sections import costliest, now_section
from pipeline.report.wording import seconds, time

STYLE: Final = """
:root{color-scheme:light dark;--p:#e0a030;--u:#c8342c;--t0:#7f9fbf;--t1:#4f7398;--g:#99999955}
body{font:15px/1.45 system-ui,sans-serif;max-width:78rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:0 0 .3rem}h2{font-size:1.15rem;margin:2rem 0 .4rem;border-bottom:1px solid #8884}
p{margin:.3rem 0}.s{font-size:.85rem;opacity:.8}.lead{font-size:1.1rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;width:100%}
th,td{text-align:right;padding:.25rem .55rem;border-bottom:1px solid #8883;vertical-align:top}
td{white-space:nowrap}.x{text-align:left}.r,.x+.x{white-space:normal}
th{border-bottom:2px solid #8886;font-weight:600}
svg{width:100%;min-width:34rem;font:12px system-ui,sans-serif}svg text{fill:currentColor}
.p{fill:var(--p);color:var(--p)}.u{fill:var(--u);color:var(--u)}.t0{fill:var(--t0)}.t1{fill:var(--t1)}
.t{color:var(--t1)}.g{fill:var(--g);color:#999}.a{stroke:#8885}
summary{cursor:pointer}details{margin:.2rem 0}
@media print{body{max-width:none;font-size:11px}.scroll{overflow:visible}h2{break-after:avoid}tr{break-inside:avoid}}
"""


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


NOTES: Final = """
No leader for: seconds of all partitions together. An interval begins where the leader that goes ceases to serve:
when its death was noticed or its move was decided on, not when a row says that there is none.

At most: a dead broker is noticed once its ZooKeeper session ends, so it can have ceased to serve up to its session
time-out and a tick of ZooKeeper before. The end for clients is that of the first broker with the new metadata.

The end at the new leader is its first acknowledged LeaderAndIsr that was sent after the commit. In a burst it may be
another one than the partition's.

Availability counts all partitions over the whole time. Under target and under min ISR are seconds of all partitions
together. Min ISR counts from the snapshot on that has it, and is not known before.

Stops are compared by the seconds without a leader that are known, for each partition that the broker led, with the last
ten of the kind (planned, unplanned) before, in the whole journal.
"""
"""Paragraphs at the end of the page."""


def page(result: Result) -> str:
    """Returns the whole page."""
    title = f"What stops of brokers cost in cluster {result.cluster}"
    prefix = f", topics {escape(result.topic_prefix)}*" if result.topic_prefix else ""
    length = seconds((result.to_us - result.from_us) / 1e6)
    notes = "".join(f"<p class=s>{escape(note)}</p>" for note in NOTES.strip().split("\n\n"))
    parts = (
        f"<h1>{escape(title)}</h1><p class=s>{time(result.from_us)} to {time(result.to_us)} UTC ({length}){prefix}</p>",
        sections.headline(result),
        f"<h2>Stops of brokers</h2>{sections.stops(result)}",
        f"<h2>Topics</h2>{sections.topics(result)}",
        f"<h2>Timeline</h2><div class=scroll>{timeline(result)}</div>",
        f"<h2>What a stop would cost now</h2>{now_section(result.now)}",
        f"<h2>Elections</h2>{sections.elections(result)}",
        f"<h2>Reassignments</h2>{moves(result)}",
        sections.against(result),
        sections.gaps(result),
        f"<h2>How it is counted</h2>{notes}",
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width,initial-scale=1"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )
