"""Deletions of a daemon's double, which notes the requests."""

from __future__ import annotations

from datetime import UTC, datetime

from controller.operator.deletions import Deletion, GiveUpRequest

SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class DeletionsDouble:
    """One deletion that waits for broker 4."""

    def __init__(self) -> None:
        self.waiting = [Deletion(topic="orders", partitions=3, state="waiting", since=SINCE, waits_for=[4], why="gone")]
        self.left: list[Deletion] = []
        self.requests: list[tuple[GiveUpRequest, str]] = []
        self.refuse: Exception | None = None

    def listed(self) -> list[Deletion]:
        return self.waiting

    async def given_up(self, request: GiveUpRequest, principal: str) -> list[Deletion]:
        self.requests.append((request, principal))
        if self.refuse is not None:
            raise self.refuse
        return self.left
