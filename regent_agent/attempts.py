"""Repeats requests to the daemons until one succeeds, and logs each outage once with its cause and remedy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final

from regent_agent.connection import PAUSE_MS_MAX, Backoff, RequestRefused, Unreachable
from regent_agent.protocol import DEAD, FULL, INVALID, REGISTER, RESTORED, UNAUTHENTICATED

log = logging.getLogger("regent_agent")

REMEDIES: Final = {
    REGISTER: "it registers anew",
    UNAUTHENTICATED: "give it the daemons' secret of servers, and a name and incarnation of its own",
    INVALID: "correct its options, or update the older one of agent and daemon",
    FULL: "it registers once one of them has ended",
    RESTORED: "this server tries again, and goes on once the daemon has",
}
"""What ends a refusal, by its code."""
OTHER_REMEDY: Final = "it tries all daemons in turn; look whether one is active and can be reached from here"


class Attempts:
    """Repeats the requests of one server, and calls ``die`` when a daemon says that the server is fenced.

    ``refused`` gets code and text of each refusal.
    """

    def __init__(
        self,
        server: str,
        jitter: Callable[[], float],
        die: Callable[[Exception], None],
        refused: Callable[[str, str], None] = lambda code, text: None,
    ) -> None:
        self._server, self._jitter, self._die, self._refused = server, jitter, die, refused
        self.ended = asyncio.Event()
        """Set once the server is no member any more."""
        self.pause_ms_max = PAUSE_MS_MAX
        """Longest pause: a part of the lease, as a daemon that begins waits for a poll of this server that long."""

    async def repeat(self, step: Callable[[], Coroutine[None, None, None]], what: str) -> None:
        """Repeats a step while the server is a member, after a growing pause where it failed."""
        backoff, failing, told = Backoff(jitter=self._jitter), False, False
        while not self.ended.is_set():
            try:
                await step()
            except (Unreachable, RequestRefused) as error:
                restored = isinstance(error, RequestRefused) and error.code == RESTORED
                news = not failing or (restored and not told)  # it comes in the middle of an outage
                self._note(error, what, logging.WARNING if news else logging.DEBUG)
                failing, told = True, told or restored
            except Exception:
                log.exception("the %s of server %s failed by a fault of the agent; they go on", what, self._server)
            else:
                if failing:
                    log.info("the %s of server %s succeed again", what, self._server)
                failing = told = False
                backoff.reset()
                continue
            if not self.ended.is_set():
                await asyncio.sleep(backoff.pause_s(self.pause_ms_max))

    def _note(self, error: Unreachable | RequestRefused, what: str, level: int) -> None:
        code = error.code if isinstance(error, RequestRefused) else ""
        if code == DEAD:
            self._die(error)
            return
        if code:
            self._refused(code, str(error))
        remedy = REMEDIES.get(code, OTHER_REMEDY)
        log.log(level, "the %s of server %s have no success: %s; %s", what, self._server, error, remedy)
