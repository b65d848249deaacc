"""Words names and counts in log lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

NAMES_SHOWN: Final = 5
NAMED_MAX: Final = 5
"""Names in a sentence; the others are counted."""
BYTES_STEP: Final = 1_000
"""Bytes of a kilobyte, kilobytes of a megabyte."""
SECONDS_SHOWN_MAX: Final = 180
MINUTES_SHOWN_MAX_S: Final = 3 * 3600


def abbreviate(names: Sequence[str], noun: str = "topics") -> str:
    """Returns some names for a log line, and the number of the others."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more {noun}" if len(names) > NAMES_SHOWN else shown


def counted(count: int, noun: str) -> str:
    """Returns "1 partition" or "2 partitions"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def in_bytes(count: float) -> str:
    """Returns "17 B", "1.5 MB" or "20.0 GB"."""
    unit, *larger = "B", "kB", "MB", "GB", "TB", "PB"
    for further in larger:
        if count < BYTES_STEP:
            break
        count, unit = count / BYTES_STEP, further
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def in_time(seconds: int) -> str:
    """Returns "40 s", "5 min" or "3.2 h"."""
    if seconds < SECONDS_SHOWN_MAX:
        return f"{seconds} s"
    return f"{seconds / 60:.0f} min" if seconds < MINUTES_SHOWN_MAX_S else f"{seconds / 3600:.1f} h"


def named(items: Iterable[object], most: int = NAMED_MAX) -> str:
    """Returns some items by name, and the number of the others."""
    shown = [str(item) for item in items]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")
