"""Measures the session on the daemon's own clock: no write or request once another controller may be elected.

ZooKeeper expires a session no earlier than one session timeout after the last request that it answered was *sent*.
The lease ends at 0.8 of that, on CLOCK_BOOTTIME, which counts through SIGSTOP and suspend.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from controller.process.clock import boottime_s

log = logging.getLogger("regent.role")

LEASE_FRACTION = 0.8
HEARTBEATS_PER_TIMEOUT = 6
REFUSED_PAUSE_S = 0.2
"""Pause after a heartbeat that was not sent: the first one on a new connection follows soon."""


class Lease:
    """Valid until 0.8 of the session timeout after the sending time of the last answered heartbeat."""

    def __init__(
        self, session_timeout_s: float, clock: Callable[[], float] = boottime_s, fraction: float = LEASE_FRACTION
    ) -> None:
        self.session_timeout_s = session_timeout_s
        self._fraction = fraction
        self._clock = clock
        self._deadline = 0.0
        self._sent_s = clock()
        self._renewed = asyncio.Event()
        self._wake = asyncio.Event()

    @classmethod
    def of_session(cls, session_timeout_s: float, fraction: float) -> Lease:
        """Creates the lease of a session on the machine's clock."""
        return cls(session_timeout_s, fraction=fraction)

    def answered(self, sent_s: float) -> None:
        """Extends the lease by the answer to a request that was sent at ``sent_s``."""
        self._deadline = max(self._deadline, sent_s + self._fraction * self.session_timeout_s)
        self._sent_s = max(self._sent_s, sent_s)
        self._renewed.set()

    def renegotiated(self, session_timeout_s: float) -> None:
        """Follows a connection's own session timeout: a shorter one at once, a longer one from the next heartbeat on.

        ZooKeeper negotiates it at each connection.
        """
        if session_timeout_s == self.session_timeout_s:
            return
        log.warning(
            "ZooKeeper now grants a session timeout of %g s instead of %g s: the lease and the loop's guard follow",
            session_timeout_s,
            self.session_timeout_s,
        )
        self.session_timeout_s = session_timeout_s
        self._deadline = min(self._deadline, self._sent_s + self._fraction * session_timeout_s)
        self._wake.set()

    def remaining_s(self) -> float:
        """Returns the seconds left; 0 or less: expired."""
        return self._deadline - self._clock()

    def silent_s(self) -> float:
        """Returns the seconds since the last answered heartbeat was sent, or since the session began."""
        return self._clock() - self._sent_s

    def valid(self) -> bool:
        """Returns whether writes and sends are allowed."""
        return self._clock() < self._deadline

    async def until_valid(self) -> None:
        """Waits for a heartbeat that is answered in time: a term begun without it could not write anything."""
        while not self.valid():
            self._renewed.clear()
            await self._renewed.wait()

    async def until_over(self) -> None:
        """Waits until the lease has run out; each answered heartbeat makes that later."""
        left_s = self.remaining_s()
        while left_s > 0:
            await asyncio.sleep(left_s)
            left_s = self.remaining_s()

    async def keep(self, heartbeat: Callable[[], Awaitable[None]], refused: type[Exception]) -> None:
        """Sends heartbeats until cancelled; one that raises ``refused`` or times out only lets the lease run down."""
        while True:
            pause_s = self.session_timeout_s / HEARTBEATS_PER_TIMEOUT
            sent_s, next_s = self._clock(), pause_s
            try:
                await asyncio.wait_for(heartbeat(), self.session_timeout_s)
                self.answered(sent_s)
            except refused:
                next_s = min(pause_s, REFUSED_PAUSE_S)
            except TimeoutError:
                pass
            self._wake.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), next_s)


class Outage:
    """Measures one outage at a time, from the first :meth:`begin` to :meth:`end`."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._silent_s = 0.0

    def begin(self, lease: Lease | None) -> None:
        """Notes the loss of the connection and the seconds for which no heartbeat was answered before it."""
        if self._since_s is None:
            self._since_s = asyncio.get_running_loop().time()
            self._silent_s = max(0.0, lease.silent_s()) if lease is not None else 0.0

    def end(self) -> str | None:
        """Returns the length for a log line, and begins anew; None where no outage was under way."""
        if self._since_s is None:
            return None
        away_s, self._since_s = asyncio.get_running_loop().time() - self._since_s, None
        return f"{self._silent_s + away_s:.1f} s without an answered heartbeat, {away_s:.1f} s without a connection"
