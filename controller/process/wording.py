"""Names and counts in log lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

NAMES_SHOWN: Final = 5
NAMED_MAX: Final = 5
"""Culprits that a sentence names; the others are counted."""


def abbreviate(names: Sequence[str], what: str = "topics") -> str:
    """Topics for a log line: some of them, however many there are."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more {what}" if len(names) > NAMES_SHOWN else shown


def counted(count: int, what: str) -> str:
    """Returns "1 partition" or "2 partitions"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def named(culprits: Iterable[object], most: int = NAMED_MAX) -> str:
    """Some culprits by name and the number of the others."""
    shown = [str(culprit) for culprit in culprits]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")
