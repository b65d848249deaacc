"""Words names and counts in log lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

NAMES_SHOWN: Final = 5
NAMED_MAX: Final = 5
"""Names in a sentence; the others are counted."""


def abbreviate(names: Sequence[str], noun: str = "topics") -> str:
    """Returns some names for a log line, and the number of the others."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more {noun}" if len(names) > NAMES_SHOWN else shown


def counted(count: int, noun: str) -> str:
    """Returns "1 partition" or "2 partitions"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def named(items: Iterable[object], most: int = NAMED_MAX) -> str:
    """Returns some items by name, and the number of the others."""
    shown = [str(item) for item in items]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")
