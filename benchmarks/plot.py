"""Draws failover time over partitions for both controllers, as an SVG on logarithmic axes, without a plot library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from benchmarks.contestants import OURS, PEER
from benchmarks.datasets import shape

WIDTH: Final = 760
HEIGHT: Final = 440
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 30, 50
COLOURS: Final = {OURS: "#1f6feb", PEER: "#b35900"}
LABELS: Final = {OURS: "regent", PEER: "Kafka's own controller"}

Point = tuple[float, float]
Series = Mapping[str, Sequence[Point]]


def series(rows: Iterable[Mapping[str, Any]], brokers: int) -> dict[str, list[Point]]:
    """Returns (partitions, seconds) of F2 by contestant, for a number of brokers."""
    found: dict[str, list[Point]] = {OURS: [], PEER: []}
    for row in rows:
        if row["case"] != "F2" or not row["size"].endswith(f"x{brokers}"):
            continue
        partitions = shape(row["size"]).partitions
        for name, key in ((OURS, "ours"), (PEER, "peer")):
            if row[key] is not None:
                found[name].append((partitions, row[key]["median"]))
    return {name: sorted(points) for name, points in found.items() if points}


def svg(found: Series, brokers: int) -> str:
    """Returns the picture."""
    points = [point for line in found.values() for point in line]
    across = _Axis([x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = _Axis([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
            f'font-size="13"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        ),
        *_grid(across, up),
        (
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">partitions, '
            f"three replicas, {brokers} brokers</text>"
        ),
        (
            f'<text x="16" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" transform="rotate(-90 16 '
            f'{(TOP + HEIGHT - BOTTOM) / 2})">failover until the last broker has the change, seconds</text>'
        ),
    ]
    for name, line in found.items():
        parts += _line(name, [(across.at(x), up.at(y)) for x, y in line], [y for _, y in line])
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axis:
    """An axis with the decades around the values, between two pixels."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self.first, self.last = first, last

    def at(self, value: float) -> float:
        """Returns the pixel of a value."""
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.first + part * (self.last - self.first), 1)

    @property
    def ticks(self) -> list[float]:
        """Returns the decades."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def _grid(across: _Axis, up: _Axis) -> list[str]:
    parts = []
    for tick in across.ticks:
        x = across.at(tick)
        parts.append(f'<line x1="{x}" y1="{up.first}" x2="{x}" y2="{up.last}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{up.first + 18}" text-anchor="middle">{_count(tick)}</text>')
    for tick in up.ticks:
        y = up.at(tick)
        parts.append(f'<line x1="{across.first}" y1="{y}" x2="{across.last}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{across.first - 8}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    return parts


def _line(name: str, pixels: Sequence[Point], values: Sequence[float]) -> list[str]:
    colour = COLOURS[name]
    path = " ".join(f"{x},{y}" for x, y in pixels)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for (x, y), value in zip(pixels, values, strict=True):
        parts.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"><title>{value:.2f} s</title></circle>')
    x, y = pixels[-1]
    text = f"{LABELS[name]}, {values[-1]:.1f} s"
    parts.append(f'<text x="{x + 8}" y="{y + 4}" fill="{colour}">{escape(text)}</text>')
    return parts


def _count(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}K"


def draw(rows: Iterable[Mapping[str, Any]], brokers: int, path: Path) -> bool:
    """Writes the picture; returns False where there are fewer than two sizes."""
    found = series(rows, brokers)
    if max((len(line) for line in found.values()), default=0) < 2:
        return False
    path.write_text(svg(found, brokers), encoding="utf-8")
    return True
