"""Names and counts in log lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NAMES_SHOWN: Final = 5


def shortly(names: Sequence[str], what: str = "topics") -> str:
    """Topics for a log line: some of them, however many there are."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more {what}" if len(names) > NAMES_SHOWN else shown


def counted(count: int, what: str) -> str:
    """Returns "1 partition" or "2 partitions"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
