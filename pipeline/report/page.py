"""Makes the page: one HTML file, with drawings inside and without scripts; a pure function of the result."""

from __future__ import annotations

from html import escape
from typing import Final

from pipeline.report import sections
from pipeline.report.move_sections import moves
from pipeline.report.now_section import now_section
from pipeline.report.result import Result
from pipeline.report.style import STYLE
from pipeline.report.timeline import timeline
from pipeline.report.wording import seconds, time

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
