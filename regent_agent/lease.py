"""Keeps a server's lease: without a valid one the service is suspended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger("regent_agent")

USED_PART: Final = 0.8
"""Part of the lease that the server uses. The rest covers clocks that run at different speeds."""
CHECKS: Final = 10
"""Checks during one lease, for a clock that jumps ahead, as after the sleep of a machine."""
CHECK_S_MIN: Final = 0.001
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def machine_s() -> float:
    """Returns a clock in seconds that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime(_CLOCK)


class Lease:
    """Decides whether this server may serve, and tells the service when that changes."""

    def __init__(self, clock: Callable[[], float], suspend: Callable[[], None], resume: Callable[[], None]) -> None:
        self._clock, self._suspend, self._resume = clock, suspend, resume
        self._until_s: float | None = None
        self._length_s = 1.0
        self._required = True
        self._suspended = False
        self._ended = False

    @property
    def valid(self) -> bool:
        """Returns whether this server may serve now."""
        if self._ended or self._until_s is None:
            return False
        return not self._required or self._clock() < self._until_s

    def renew(self, sent_s: float, lease_ms: int, suspends: bool) -> None:
        """Counts the lease from the sending time of an acknowledged request.

        ``suspends``: whether a server without a lease is suspended; otherwise the daemon fences its log.
        """
        self._length_s = lease_ms / 1000 * USED_PART
        self._until_s, self._required = sent_s + self._length_s, suspends
        if self._suspended and self.valid:
            self._suspended = False
            log.info("the lease is valid again: the service resumes")
            _call(self._resume)

    def check(self) -> None:
        """Suspends the service if the lease has ended."""
        if self._until_s is not None and not self.valid and not self._suspended:
            self._suspended = True
            log.warning(
                "the lease has ended, no daemon acknowledged a poll for %.1f s: the service is suspended, and resumes "
                "once a daemon responds; look whether a daemon is active and this server reaches it",
                self._length_s,
            )
            _call(self._suspend)

    def end(self) -> None:
        """Ends the lease for good, and suspends the service."""
        self._ended = True
        if not self._suspended:
            self._suspended = True
            _call(self._suspend)

    def wait_s(self) -> float:
        """Returns the time until the next check."""
        longest_s = max(self._length_s / CHECKS, CHECK_S_MIN)
        if self._until_s is None or self._suspended or not self._required:
            return longest_s
        return min(max(self._until_s - self._clock(), CHECK_S_MIN), longest_s)


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        log.exception("the service failed in %s; it must not raise", getattr(callback, "__name__", "a callback"))
