"""Draws a dashboard as a page of plain HTML, from what a Prometheus holds: where no Grafana is at hand."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from tests.verify.watched.prometheus import SCRAPE_S, Prometheus

RATE_INTERVAL: Final = f"{4 * SCRAPE_S}s"
"""What Grafana takes for $__rate_interval: four scrapes."""
POINTS: Final = 400
COLUMN_PX, ROW_PX, GAP_PX = 62, 34, 6
LEGENDS_MAX: Final = 6
COLOURS: Final = (
    "#3274d9", "#e0752d", "#37872d", "#c4162a", "#8f3bb8", "#b8860b", "#0f8a8a", "#705da0", "#508642", "#6d1f62",
)  # fmt: skip
TONES: Final = {"blue": "#3274d9", "green": "#37872d", "orange": "#e0752d", "red": "#c4162a"}
"""Colours of thresholds."""
LABEL: Final = re.compile(r":? ?\{\{\w+\}\}")
"""A label in a legend that the series does not have; Grafana shows nothing there."""
STYLE: Final = """
body { margin: 14px; background: #f4f5f8; font: 12px sans-serif; color: #24292e; }
h1 { font-size: 19px; margin: 0 0 4px; } h2 { font-size: 14px; margin: 0; padding-top: 10px; }
.panel { position: absolute; background: #fff; border: 1px solid #d8dade; border-radius: 3px; overflow: hidden; }
.title { font-weight: bold; padding: 6px 9px 0; } .legend { padding: 0 9px; font-size: 11px; color: #555; }
.legend span { margin-right: 10px; white-space: nowrap; } .big { font-size: 30px; padding: 14px 9px; }
.small { font-size: 14px; font-weight: bold; padding: 8px 9px; }
.page { position: relative; } text { font-size: 10px; fill: #666; }
.left { text-anchor: end; } .mid { text-anchor: middle; }
"""


class Span(Struct, frozen=True):
    """Holds the time on the page, in seconds since 1970."""

    begin: float
    end: float

    @property
    def step(self) -> float:
        """Returns the seconds between two points."""
        return max(SCRAPE_S, math.ceil((self.end - self.begin) / POINTS))


class Series(Struct, frozen=True):
    """Holds a line with its legend and its points."""

    legend: str
    points: list[tuple[float, float]]


def expression(query: str) -> str:
    """Returns a panel's query with Grafana's variables filled in."""
    return query.replace("$job", "regent").replace("$instance", ".+").replace("$__rate_interval", RATE_INTERVAL)


async def series_of(target: Mapping[str, Any], prometheus: Prometheus, span: Span) -> list[Series]:
    """Returns the series of a panel's query without points that are no numbers."""
    found = await prometheus.over(expression(target["expr"]), span.begin, span.end, span.step)
    return [Series(_legend(target, each["metric"]), _numbers(each["values"])) for each in found]


async def empty_queries(dashboard: Mapping[str, Any], prometheus: Prometheus, span: Span) -> list[str]:
    """Returns the panels, each with its query, without data of the run."""
    return [
        f"{panel['title']}: {target['expr']}"
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        if not any(each.points for each in await series_of(target, prometheus, span))
    ]


def _numbers(values: Sequence[tuple[float, str]]) -> list[tuple[float, float]]:
    return [(at, float(value)) for at, value in values if math.isfinite(float(value))]


def _legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    text = str(target["legendFormat"])
    for name, value in labels.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return LABEL.sub("", text).replace("__auto", "")


async def page(dashboard: Mapping[str, Any], prometheus: Prometheus, span: Span) -> str:
    """Returns the whole page."""
    drawn = [await _panel(panel, prometheus, span) for panel in dashboard["panels"]]
    height = height_of(dashboard)
    begun, ended = (datetime.fromtimestamp(at, UTC).strftime("%H:%M") for at in (span.begin, span.end))
    return (
        f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><h1>{html.escape(dashboard['title'])}</h1>"
        f"{html.escape(dashboard['description'])} {begun} to {ended} UTC."
        f'<div class=page style="height:{height}px">{"".join(drawn)}</div>'
    )


def height_of(dashboard: Mapping[str, Any]) -> int:
    """Returns the height of panels in pixels."""
    return max(int(panel["gridPos"]["y"]) + int(panel["gridPos"]["h"]) for panel in dashboard["panels"]) * ROW_PX


async def _panel(panel: Mapping[str, Any], prometheus: Prometheus, span: Span) -> str:
    at = panel["gridPos"]
    left, top = at["x"] * COLUMN_PX, at["y"] * ROW_PX
    width, height = at["w"] * COLUMN_PX - GAP_PX, at["h"] * ROW_PX - GAP_PX
    place = f"left:{left}px;top:{top}px;width:{width}px;height:{height}px"
    title = html.escape(panel["title"])
    if panel["type"] == "row":
        return f'<h2 style="position:absolute;{place}">{title}</h2>'
    found = [each for target in panel["targets"] for each in await series_of(target, prometheus, span)]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    look = panel["fieldConfig"]["defaults"]
    if panel["type"] == "stat":
        drawn = _stat(found, look, names=panel["options"]["textMode"] == "name")
    elif panel["type"] == "state-timeline":
        drawn = _timeline(found, look, span, width, height - 26)
    else:
        drawn = _lines(found, unit, span, width, height - 26)
    return f'<div class=panel style="{place}"><div class=title>{title}</div>{drawn}</div>'


def _stat(found: Sequence[Series], look: Mapping[str, Any], *, names: bool) -> str:
    """Draws the last values, or the legends of the series that have one at the end, in the colours of thresholds."""
    ends = max((each.points[-1][0] for each in found if each.points), default=0.0)
    last = [(each.legend, each.points[-1][1]) for each in found if each.points and each.points[-1][0] == ends]
    shown = last if names else last[:1]
    parts = [
        f'<div style="color:{_colour(look, value)}">{html.escape(legend if names else _worded(value, look))}</div>'
        for legend, value in shown
    ]
    return f"<div class={'small' if names else 'big'}>{''.join(parts) or 'no data'}</div>"


def _worded(value: float, look: Mapping[str, Any]) -> str:
    """Returns the word that stands for a value, or the value with its unit."""
    words = {key: one["text"] for each in look["mappings"] for key, one in each["options"].items()}
    return str(words.get(f"{value:g}", "")) or _shown(value, look["unit"])


def _colour(look: Mapping[str, Any], value: float) -> str:
    """Returns the colour of the last threshold that a value has reached."""
    steps = look["thresholds"]["steps"]
    return TONES[[step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]]


def _lines(found: Sequence[Series], unit: str, span: Span, width: int, height: int) -> str:
    """Draws curves over time, with a legend of the largest ones."""
    ranked = sorted(found, key=lambda each: -max((value for _, value in each.points), default=0.0))[:LEGENDS_MAX]
    legend = "".join(
        f'<span><b style="color:{COLOURS[i]}">&mdash;</b> {html.escape(each.legend)}</span>'
        for i, each in enumerate(ranked)
    )
    left, bottom = 52, height - 42
    top = _ceiling(max((value for each in found for _, value in each.points), default=1.0))
    parts = [_axis(unit, top, left, bottom, width), _clock(span, left, bottom, width)]
    for i, each in enumerate(ranked):
        for run in _runs(each.points, span):
            points = " ".join(
                f"{_x(at, span, left, width):.1f},{bottom - value / top * (bottom - 8):.1f}" for at, value in run
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[i]}" stroke-width="1.4"/>')
    return f'<svg width="{width}" height="{bottom + 16}">{"".join(parts)}</svg><div class=legend>{legend}</div>'


def _runs(points: Sequence[tuple[float, float]], span: Span) -> Iterator[list[tuple[float, float]]]:
    """Yields runs of points without a gap."""
    run: list[tuple[float, float]] = []
    for at, value in points:
        if run and at - run[-1][0] > 1.5 * span.step:
            yield run
            run = []
        run.append((at, value))
    yield run


def _timeline(found: Sequence[Series], look: Mapping[str, Any], span: Span, width: int, height: int) -> str:
    """Draws a bar for each series, where it has points, in the colour of its last value."""
    left, bottom = 140, height - 20
    each_px = min(22, (bottom - 4) / max(1, len(found)))
    parts = [_clock(span, left, bottom, width)]
    for i, series in enumerate(sorted(found, key=lambda each: each.legend)):
        y = 4 + i * each_px
        last = series.points[-1][1] if series.points else 0.0
        colour, thick_px = _colour(look, last), each_px * 0.8
        parts.append(f'<text x="{left - 6}" y="{y + each_px * 0.7:.1f}" class=left>{html.escape(series.legend)}</text>')
        for run in _runs(series.points, span):
            if run:
                begin, end = _x(run[0][0], span, left, width), _x(run[-1][0] + span.step, span, left, width)
                size = f'width="{end - begin:.1f}" height="{thick_px:.1f}"'
                parts.append(f'<rect x="{begin:.1f}" y="{y:.1f}" {size} fill="{colour}"/>')
    return f'<svg width="{width}" height="{height}">{"".join(parts)}</svg>'


def _x(at: float, span: Span, left: int, width: int) -> float:
    return left + (at - span.begin) / (span.end - span.begin) * (width - left - 12)


def _axis(unit: str, top: float, left: int, bottom: float, width: int) -> str:
    lines = []
    for part in (0, 0.5, 1):
        y = bottom - part * (bottom - 8)
        lines.append(
            f'<line x1="{left}" x2="{width - 12}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e5e8"/>'
            f'<text x="{left - 5}" y="{y + 4:.1f}" class=left>{_shown(part * top, unit)}</text>'
        )
    return "".join(lines)


def _clock(span: Span, left: int, bottom: float, width: int) -> str:
    every_s = next(s for s in (60, 120, 300, 600, 1_800, 3_600, 86_400) if (span.end - span.begin) / s <= width / 70)
    first = math.ceil(span.begin / every_s) * every_s
    return "".join(
        f'<text x="{_x(at, span, left, width):.1f}" y="{bottom + 13:.1f}" class=mid>'
        f"{datetime.fromtimestamp(at, UTC).strftime('%H:%M')}</text>"
        for at in range(first, int(span.end) + 1, every_s)
    )


def _ceiling(value: float) -> float:
    """Returns the next of 1, 2, 2.5 and 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999)


def _shown(value: float, unit: str) -> str:
    """Returns a number with its unit."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "bytes":
        return f"{value / 1e6:.3g} MB"
    if unit == "s" and 0 < value < 1:
        return f"{value * 1e3:.3g} ms"
    if unit == "ms" and value >= 1e3:
        return f"{value / 1e3:.3g} s"
    suffix = {"s": " s", "ms": " ms", "reqps": "/s", "ops": "/s"}.get(unit, "")
    return f"{value:.4g}{suffix}" if value < 1e6 else f"{value:.3g}{suffix}"
