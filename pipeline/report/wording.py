"""Formats numbers and times of a report for people; unknown is said, never shown as zero."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

UNKNOWN: Final = "not known"
MINUTE_S: Final = 60
HOUR_S: Final = 3_600
SMALL_S: Final = 10
NAME_MAX: Final = 60
UNBROKEN_MAX: Final = 20
UNITS: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def time(microseconds: int | None) -> str:
    """Formats a wall-clock time in UTC."""
    if microseconds is None:
        return UNKNOWN
    return f"{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def seconds(value: float | None) -> str:
    """Formats a duration."""
    if value is None:
        return UNKNOWN
    if value < SMALL_S:
        return f"{value:.2f} s"
    if value < 2 * MINUTE_S:
        return f"{value:.1f} s"
    if value < 2 * HOUR_S:
        return f"{value / MINUTE_S:.1f} min"
    return f"{value / HOUR_S:.1f} h"


def size(value: float | None) -> str:
    """Formats bytes."""
    if value is None:
        return UNKNOWN
    unit, name = next(((unit, name) for unit, name in UNITS if value >= unit), (1.0, "B"))
    return f"{value / unit:.1f} {name}" if unit > 1 else f"{value:.0f} B"


def share(value: float | None) -> str:
    """Formats a share, a full one as such."""
    if value is None:
        return UNKNOWN
    return "100 %" if value == 1.0 else f"{value * 100:.5f} %"


def number(value: float | None, unit: str = "") -> str:
    """Formats a number with its unit."""
    if value is None:
        return UNKNOWN
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return f"{text} {unit}".strip()


def counted(count: int, noun: str) -> str:
    """Formats a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def left_out(count: int, shown: int, noun: str) -> str:
    """Says how many rows a table leaves out; empty where it has all."""
    return f"<p class=s>{count - shown:,} more {noun} are in the JSON.</p>" if count > shown else ""


def name(text: str) -> str:
    """Shortens a long name in its middle; Kafka's topics have up to 249 characters."""
    return text if len(text) <= NAME_MAX else f"{text[: NAME_MAX // 2]}...{text[-NAME_MAX // 2 :]}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, text: int = 1) -> str:
    """Makes a table; the first ``text`` columns are text, the others numbers, of which long ones may break."""

    def cell(at: int, content: str) -> str:
        kind = " class=x" if at < text else "" if len(content) <= UNBROKEN_MAX else " class=r"
        return f"<td{kind}>{escape(content)}</td>"

    head = "".join(f"<th{' class=x' if at < text else ''}>{escape(title)}</th>" for at, title in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell(at, content) for at, content in enumerate(row))}</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
