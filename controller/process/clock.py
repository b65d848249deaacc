"""Reads the machine's clock for leases and guards."""

from __future__ import annotations

import time


def boottime_s() -> float:
    """Returns the seconds since boot, suspend included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boottime_ms() -> int:
    """Returns the milliseconds since boot, suspend included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
