"""The happenings of late, and which of them another controller may still be answering."""

from __future__ import annotations

from collections import deque
from typing import Final

from controller.shadow.events import ClusterEvent, Kind

EVENTS_MAX: Final = 64
"""Happenings that are remembered, besides those that a waiting partition holds."""


class RecentEvents(deque[ClusterEvent]):
    """Oldest first. ``wait_s``: for how long one may stay unanswered."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(maxlen=EVENTS_MAX)
        self._wait_s = wait_s

    def unanswered(self, now: float) -> int:
        """How many expect an answer and have none yet."""
        return sum(1 for h in self if h.expected and h.confirmed and h.answered_s >= now)

    def lately(self, now: float) -> list[ClusterEvent]:
        """What another controller may still be answering.

        It takes events in order, so what came before an answered one is done.
        """
        answered = max((h.number for h in self if h.met_s < now), default=0)
        return [h for h in self if h.at_s > now - self._wait_s and h.number >= answered]

    def begun(self, zxid: int) -> int:
        """Number of the last one that another controller was answering already at ``zxid``.

        It takes events in order, so everything before that one was done.
        """
        return max((h.number for h in self if h.met_zxid < zxid), default=0)

    def loading(self) -> list[ClusterEvent]:
        """The last failover, where its controller may have read later registrations than we to begin with."""
        latest = next((h for h in reversed(self) if h.met or h.kind is Kind.FAILOVER), None)
        done = latest is None or latest.kind is not Kind.FAILOVER or 0 < latest.met >= latest.expected
        return [] if latest is None or done else [latest]

    def still_answered(self, now: float) -> list[ClusterEvent]:
        """Of what may still be answered, what was not undone by a return, and a failover that may not be over."""
        lately = self.lately(now)
        undone = max((at for at, h in enumerate(lately, 1) if h.kind is Kind.RETURN), default=0)
        return [*(h for h in self.loading() if h in lately[:undone]), *lately[undone:]]
