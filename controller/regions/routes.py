"""Routes: which server has which region, with a stream of their changes for clients."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from regent_agent.protocol import Changes, Route
from state_machines.regions.model import Region
from state_machines.regions.states import RegionState, ServerState

CHANGES_MAX: Final = 100_000
"""Changes that are remembered; a client that is farther behind lists all routes again."""
CHANGES_TOGETHER: Final = 1_000
"""Routes of one response."""


def route_of(region: Region) -> Route:
    """Returns the route to a region; without an owner where it is not open, or its server counts as crashed."""
    server = region.server
    if server is None or server.state is not ServerState.ONLINE or region.state is not RegionState.OPEN:
        return Route(region.id, region.table.name, region.start, region.end)
    return Route(region.id, region.table.name, region.start, region.end, region.token, server.name, server.address)


class RouteLog:
    """Numbers changes of routes, and remembers the latest."""

    def __init__(self) -> None:
        self.change = 0
        self._changed: deque[Region] = deque(maxlen=CHANGES_MAX)
        self._waiters: set[asyncio.Future[None]] = set()

    def changed(self, region: Region) -> None:
        """Notes a change of a region's owner."""
        self.change += 1
        self._changed.append(region)
        if self._waiters:
            waiters, self._waiters = self._waiters, set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def after(self, epoch: int, change: int, tables: Iterable[str], hold_s: float) -> Changes:
        """Returns the changes after a number, once there are some or the time is over."""
        if not 0 <= self.change - change <= len(self._changed):
            return Changes(epoch, self.change, reset=True)
        if self.change == change:
            await self._wait(hold_s)
        behind = self.change - change
        if behind > len(self._changed):
            return Changes(epoch, self.change, reset=True)
        first = len(self._changed) - behind
        some = [self._changed[at] for at in range(first, min(first + CHANGES_TOGETHER, len(self._changed)))]
        wanted = frozenset(tables)
        latest = {one.id: one for one in some if not wanted or one.table.name in wanted}
        return Changes(epoch, change + len(some), [route_of(one) for one in latest.values()])

    async def _wait(self, hold_s: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        await asyncio.wait({waiter}, timeout=hold_s)
        self._waiters.discard(waiter)
