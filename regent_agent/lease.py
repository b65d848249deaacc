"""Keeps a server's lease: without a valid one the service is suspended.

No clock of a machine counts each pause of it. One that goes on in the machine's sleep stands still while a hypervisor
holds the machine. The wall clock, which is set after that, can be set back at any time. So a lease ends by either. A
loop that stood still for long has it in doubt: until a poll that was sent after that is acknowledged, nothing is
served.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

log = logging.getLogger("regent_agent")

USED_PART: Final = 0.8
"""Part of the lease that the server uses. The rest covers clocks that run at different speeds."""
CHECKS: Final = 10
"""Checks during one lease, for a clock that jumps ahead, as after the sleep of a machine."""
CHECK_S_MIN: Final = 0.001
GAP_PART: Final = 0.25
"""Part of the used lease between two looks at the clocks from which on the lease is in doubt."""
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def machine_s() -> float:
    """Returns a clock in seconds that goes on while the machine sleeps, where the system has one."""
    return time.clock_gettime(_CLOCK)


class Moment(NamedTuple):
    """A time on both clocks. ``gaps``: how many gaps of the loop were before it."""

    machine_s: float
    wall_s: float
    gaps: int = 0

    def since(self, before: Moment) -> float:
        """Returns the seconds since a moment, by the clock that counted more."""
        return max(self.machine_s - before.machine_s, self.wall_s - before.wall_s)


class Lease:
    """Decides whether this server may serve, and tells the service when that changes."""

    def __init__(
        self,
        clock: Callable[[], float],
        suspend: Callable[[], None],
        resume: Callable[[], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._wall, self._suspend, self._resume = clock, wall, suspend, resume
        self._sent: Moment | None = None
        """When the last acknowledged request was sent."""
        self._gaps = 0
        self._seen = self._now()
        """When the loop looked at the clocks last."""
        self._doubted = False
        """Whether there was a gap, and no request that was sent later is acknowledged yet."""
        self._length_s = 1.0
        self._required = True
        self._suspended = False
        self._ended = False

    def sending(self) -> Moment:
        """Returns the present time, for a request that is sent now."""
        self._look()
        return self._seen

    @property
    def valid(self) -> bool:
        """Returns whether this server may serve now."""
        if self._ended or self._sent is None:
            return False
        if not self._required:
            return True
        now = self._now()
        return not self._doubted and not self._is_gap(now) and now.since(self._sent) < self._length_s

    def renew(self, sent: Moment, lease_ms: int, suspends: bool) -> None:
        """Counts the lease from the sending time of an acknowledged request.

        ``suspends``: whether a server without a lease is suspended; otherwise the daemon fences its log.
        """
        self._look()
        if sent.gaps == self._gaps:
            self._doubted = False
        self._length_s = lease_ms / 1000 * USED_PART
        self._sent, self._required = sent, suspends
        if self._suspended and self.valid:
            self._suspended = False
            log.info("the lease is valid again: the service resumes")
            _call(self._resume)

    def check(self) -> None:
        """Suspends the service if the lease has ended, or is in doubt."""
        self._look()
        if self._sent is not None and not self.valid and not self._suspended:
            self._suspended = True
            _call(self._suspend)
            if not self._doubted:
                log.warning(
                    "the lease has ended, no daemon acknowledged a poll for %.1f s: the service is suspended, and "
                    "resumes once a daemon responds; look whether a daemon is active and this server reaches it",
                    self._length_s,
                )

    def end(self) -> None:
        """Ends the lease for good, and suspends the service."""
        self._ended = True
        if not self._suspended:
            self._suspended = True
            _call(self._suspend)

    def wait_s(self) -> float:
        """Returns the time until the next check."""
        longest_s = max(self._length_s / CHECKS, CHECK_S_MIN)
        if self._sent is None or self._suspended or not self._required:
            return longest_s
        return min(max(self._length_s - self._now().since(self._sent), CHECK_S_MIN), longest_s)

    def _look(self) -> None:
        """Notes the time, and a gap since the last look."""
        now = self._now()
        if self._sent is not None and self._required and self._is_gap(now):
            self._doubted = True
            self._gaps += 1
            log.warning(
                "this process or its machine stood still for %.1f s, or a clock was set: the service is suspended "
                "until a daemon acknowledges the next poll; where it happens often, look for what stops the process",
                now.since(self._seen),
            )
        self._seen = self._now()

    def _now(self) -> Moment:
        return Moment(self._clock(), self._wall(), self._gaps)

    def _is_gap(self, now: Moment) -> bool:
        return now.since(self._seen) > self._length_s * GAP_PART + CHECK_S_MIN


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        log.exception("the service failed in %s; it must not raise", getattr(callback, "__name__", "a callback"))
