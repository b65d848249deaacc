"""The machine's wall clock, which records, marks and expiry times share."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Returns the machine's time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
