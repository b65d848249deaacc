"""Keeps recent events, and finds those that the other controller may still be handling."""

from __future__ import annotations

from collections import deque
from typing import Final

from controller.kafka.shadow.events import ClusterEvent, Kind

EVENTS_MAX: Final = 64
"""Events that are remembered, besides those that a waiting partition holds."""


class RecentEvents(deque[ClusterEvent]):
    """Events, oldest first. ``wait_s``: time for which one may stay unhandled."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(maxlen=EVENTS_MAX)
        self._wait_s = wait_s

    def unhandled(self, now: float) -> int:
        """Returns the number of events that require a write and have none yet."""
        return sum(1 for e in self if e.expected and e.confirmed and e.handled_s >= now)

    def lately(self, now: float) -> list[ClusterEvent]:
        """Returns the events that the other controller may still be handling.

        It takes events in order, so all events before a handled one are done.
        """
        handled = max((e.number for e in self if e.met_s < now), default=0)
        return [e for e in self if e.at_s > now - self._wait_s and e.number >= handled]

    def begun(self, zxid: int) -> int:
        """Returns the number of the last event that the other controller was handling already at ``zxid``.

        It takes events in order, so all events before that one were done.
        """
        return max((e.number for e in self if e.met_zxid < zxid), default=0)

    def loading(self) -> list[ClusterEvent]:
        """Returns the last failover, where its controller may have begun with later registrations than we."""
        latest = next((e for e in reversed(self) if e.met or e.kind is Kind.FAILOVER), None)
        done = latest is None or latest.kind is not Kind.FAILOVER or 0 < latest.met >= latest.expected
        return [] if latest is None or done else [latest]

    def still_handled(self, now: float) -> list[ClusterEvent]:
        """Returns events that may still be handled and that no return undid, and a failover that may not be over."""
        lately = self.lately(now)
        undone = max((at for at, e in enumerate(lately, 1) if e.kind is Kind.RETURN), default=0)
        return [*(e for e in self.loading() if e in lately[:undone]), *lately[undone:]]
