"""Reads the machine's clocks: the time since boot for leases and guards, the wall clock for records and marks."""

from __future__ import annotations

from time import CLOCK_BOOTTIME, clock_gettime, clock_gettime_ns, time_ns


def boottime_s() -> float:
    """Returns the seconds since boot, suspend included."""
    return clock_gettime(CLOCK_BOOTTIME)


def boottime_ms() -> int:
    """Returns the milliseconds since boot, suspend included."""
    return clock_gettime_ns(CLOCK_BOOTTIME) // 1_000_000


def wall_ms() -> int:
    """Returns the machine's time in milliseconds since 1970."""
    return time_ns() // 1_000_000
