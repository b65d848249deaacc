"""What one daemon remembers of the procedures of a domain from term to term: those that end terms, and early requests.

A step that the store, a codec or the model refuses ends the term, and the next term runs the same step. A procedure
whose step did that some terms in a row is parked. It is not run, and keeps its locks; all others go on. A restart of
the daemon tries it again; so does an abort, which undoes it instead. A bypass ends it as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Iterable
from typing import Final

from controller.procedures.removed import Removed
from controller.procedures.requests import Pending, Refused, Request

log = logging.getLogger("regent.procedures")

TERMS_MAX: Final = 3
"""Terms in a row that end by a step of one procedure; then it is parked."""
WHY_CHARS_MAX: Final = 500
"""Characters of the cause that is shown: its begin."""
EARLY_MAX: Final = 100
"""Requests that wait for the next term."""
EARLY_S: Final = 10.0
"""Time that such a request waits for a term."""


class Parking:
    """Holds parked procedures with the cause, suspects, and early requests.

    ``suspects``: procedures that may have ended a term, and the number of terms that each ended for certain. Each is
    written by itself, so that the culprit is found.
    """

    def __init__(self) -> None:
        self.parked: dict[int, str] = {}
        self.suspects: dict[int, int] = {}
        self.removed = Removed()
        self._early: list[Pending] = []

    def blame(self, pids: Collection[int], error: Exception) -> None:
        """Notes that a term ended while these procedures were under way together."""
        for pid in pids:
            count = self.suspects.get(pid, 0) + (len(pids) == 1)
            self.suspects[pid] = count
            if count >= TERMS_MAX:
                self.park(pid, f"its step ended {count} terms in a row: {type(error).__name__}: {error}")

    def park(self, pid: int, why: str) -> None:
        """Parks a procedure."""
        self.suspects.pop(pid, None)
        self.parked[pid] = why[:WHY_CHARS_MAX]
        log.error(
            "pid=%d is parked, all else goes on: %s; remove the cause and restart the daemon, which tries it again, "
            "or bypass it",
            pid,
            self.parked[pid],
        )

    def went_on(self, pid: int) -> None:
        """Notes that a suspect's change is durable and entered."""
        self.suspects.pop(pid, None)

    def ended(self, pid: int) -> None:
        """Forgets a procedure whose end is durable."""
        self.suspects.pop(pid, None)
        self.parked.pop(pid, None)

    def release(self, pids: Iterable[int]) -> None:
        """Lets parked procedures run again."""
        for pid in pids:
            self.parked.pop(pid, None)

    def keep(self, live: Container[int]) -> None:
        """Forgets procedures that have ended."""
        self.parked = {pid: why for pid, why in self.parked.items() if pid in live}
        self.suspects = {pid: count for pid, count in self.suspects.items() if pid in live}

    # -- requests before a term

    def ask(self, request: Request) -> asyncio.Future[int]:
        """Keeps a request for the next term, which carries it out before it runs a step; returns its response.

        Raises :class:`Refused` where too many wait.
        """
        self._early = [one for one in self._early if not one.response.done()]
        if len(self._early) >= EARLY_MAX:
            raise Refused(f"{len(self._early)} requests wait for the next term: try again")
        pending = Pending(request, asyncio.get_running_loop().create_future())
        self._early.append(pending)
        return pending.response

    async def asked(self, request: Request, why: Callable[[], str]) -> bool:
        """Waits until the next term has carried out a request; returns whether it did anything.

        Raises :class:`Refused`, also where no term takes it in time, with the cause, ``why``, and what ends that term.
        """
        response = self.ask(request)
        try:
            await asyncio.wait({response}, timeout=EARLY_S)
            if self._withdrawn(response):
                raise Refused(f"no term of this daemon began in {EARLY_S:.0f} s ({why()}): try again")
            return bool(await response)
        finally:
            response.cancel()

    def _withdrawn(self, response: asyncio.Future[int]) -> bool:
        """Removes a request that no term has taken; False where one has, or it has its response."""
        left = [one for one in self._early if one.response is not response]
        waited = len(left) < len(self._early) and not response.done()
        self._early = left
        return waited

    def take_early(self) -> list[Pending]:
        """Removes and returns the requests whose callers still wait."""
        found, self._early = [one for one in self._early if not one.response.done()], []
        return found

    def refuse_early(self, why: str) -> None:
        """Refuses the requests that wait: the next term is not one of this daemon."""
        for one in self.take_early():
            one.refuse(Refused(why))
