"""Keeps routes: which server has which region, with a stream of their changes for clients.

Thousands of clients follow the same changes. Changes are gathered for a while; then all clients get responses together.
A response is encoded once for all that wait for it, and few clients are woken in one turn of the loop. A client that is
slow has one response on its way at most. It is cut off, or comes back, and gets what it has missed, or lists anew.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from regent_agent import codec
from regent_agent.protocol import ROUTES_MAX, Changes, Response, Route, Routes
from state_machines.regions.entities import Region
from state_machines.regions.states import REPLACED, RegionState, ServerState, TableState

CHANGES_MAX: Final = 100_000
"""Changes that are remembered; a client that is farther behind lists all routes again."""
ROUTES_BYTES_MAX: Final = 1024 * 1024
"""About the bytes of the routes of one response."""
GATHER_S: Final = 0.05
"""Time without another change after which clients get responses."""
GATHER_EACH_S: Final = 0.000_5
"""Time for each client that waits, for which changes that go on are gathered at most, beside that time."""
REST_S: Final = 0.001
"""Time for each client that was told, in which none is told again: telling takes a small part of the loop's time."""
EARLY_S: Final = 0.01
"""Time by which a wait may end too early: timers are no more exact than the loop's clock."""
TOGETHER: Final = 50
"""Clients that are woken in one turn of the loop."""
KEPT_MAX: Final = 16
"""Responses that are kept for other clients, those that were used last."""
PAGE_S: Final = 0.25
"""Time for which a page of a list is the same for all clients; each follows changes from the page's on."""
SERVED: Final = frozenset({RegionState.OPEN, RegionState.SPLITTING, RegionState.MERGING})
"""States of a region that its server serves."""

K = TypeVar("K")
Tables: TypeAlias = frozenset[str] | None
"""Tables that a client follows; None for all."""


def route_of(region: Region, unanswered: Container[int] = ()) -> Route:
    """Returns the route to a region; without an owner where it is not open, or its server counts as crashed.

    One that is about to be split or merged is open until its close is sent; one that was is gone.
    ``unanswered``: ids of regions that share keys with others: a client must use none of them.
    """
    server = region.server
    if (
        server is None
        or region.id in unanswered
        or server.state is not ServerState.ONLINE
        or region.state not in SERVED
    ):
        return Route(region.id, region.table.name, region.start, region.end, gone=region.state in REPLACED)
    return Route(region.id, region.table.name, region.start, region.end, region.token, server.name, server.address)


class Kept(OrderedDict[K, bytes]):
    """Frames that were used last, by what they respond to."""

    def framed(self, key: K, made: Callable[[], Response]) -> bytes:
        """Returns the frame of a key; encodes the response where it is not here."""
        frame = self.get(key)
        if frame is None:
            frame = self[key] = codec.encode(made())
            if len(self) > KEPT_MAX:
                self.popitem(last=False)
        self.move_to_end(key)
        return frame


class RouteLog:
    """Numbers changes of routes, and remembers the latest."""

    def __init__(self) -> None:
        self.change = 0
        self.unanswered: Container[int] = ()
        self._told = 0
        """Number of the last change of which clients were told."""
        self._changed: deque[Region] = deque(maxlen=CHANGES_MAX)
        self._waiting: dict[asyncio.Future[None], float] = {}
        """Clients that wait, and when the wait of each is over."""
        self._ending: asyncio.TimerHandle | None = None
        self._telling: asyncio.Handle | None = None
        self._gathers_until_s = 0.0
        self._rests_until_s = 0.0
        self._news: Kept[tuple[int, Tables]] = Kept()
        self._pages: Kept[tuple[int, bytes, int]] = Kept()
        self._pages_until_s = 0.0

    def changed(self, region: Region) -> None:
        """Notes a change of a region's owner. No client has routes of a table that is being created."""
        if region.table.state is TableState.CREATING:
            return
        self.change += 1
        self._changed.append(region)
        if self._waiting:
            self._tell_soon()

    async def after(self, epoch: int, change: int, tables: Tables, hold_s: float) -> bytes:
        """Returns the frame with the changes after a number, once there are some or the time is over."""
        if self._is_known(change) and change >= self._told:
            await self._wait(change, hold_s)
        if not self._is_known(change):
            return codec.encode(Changes(epoch, self.change, reset=True))
        return self._news.framed((change, tables), lambda: self._changes(epoch, change, tables))

    def page(self, epoch: int, start: bytes, regions: Sequence[Region], first: int, count_max: int) -> bytes:
        """Returns the frame that lists routes of a table from ``start`` on; other clients get the same for a while.

        ``first``: place of the first of them in ``regions``, which are those of the table.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._pages_until_s:
            self._pages.clear()
            self._pages_until_s = now_s + PAGE_S
        if first >= len(regions):
            return codec.encode(Routes(epoch, self.change, []))
        some = islice(regions, first, first + count_max)
        key = regions[first].id, start, count_max
        return self._pages.framed(key, lambda: self._page(epoch, some))

    def _page(self, epoch: int, regions: Iterable[Region]) -> Routes:
        return Routes(epoch, self.change, [route_of(one, self.unanswered) for one in _fitting(regions)])

    def _is_known(self, change: int) -> bool:
        """Checks whether all changes after a number are remembered."""
        return 0 <= self.change - change <= len(self._changed)

    def _changes(self, epoch: int, change: int, tables: Tables) -> Changes:
        first = len(self._changed) - (self.change - change)
        some = _fitting(islice(self._changed, first, first + max(0, self._told - change)))
        latest = {one.id: one for one in some if tables is None or one.table.name in tables}
        return Changes(epoch, change + len(some), [route_of(one, self.unanswered) for one in latest.values()])

    # -- waits

    async def _wait(self, change: int, hold_s: float) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting[waiter] = ends_s = loop.time() + hold_s
        if self.change > change:
            self._tell_soon()
        if self._ending is None:
            self._ending = loop.call_at(ends_s, self._end_waits)
        try:
            await waiter
        finally:
            self._waiting.pop(waiter, None)

    def _end_waits(self) -> None:
        """Ends the waits whose time is over; all of them are of the same length."""
        self._ending = None
        loop = asyncio.get_running_loop()
        for waiter, ends_s in self._waiting.items():
            if ends_s > loop.time() + EARLY_S:
                self._ending = loop.call_at(ends_s, self._end_waits)
                return
            _end(waiter)

    def _tell_soon(self) -> None:
        if self._telling is None:
            now_s = asyncio.get_running_loop().time()
            self._gathers_until_s = now_s + GATHER_S + len(self._waiting) * GATHER_EACH_S
            self._gather(max(now_s + GATHER_S, self._rests_until_s))

    def _gather(self, until_s: float) -> None:
        self._telling = asyncio.get_running_loop().call_at(until_s, self._tell_after, self.change)

    def _tell_after(self, change: int) -> None:
        """Sends responses, or waits on: there were changes after ``change``, and more may be gathered in time."""
        until_s = min(asyncio.get_running_loop().time() + GATHER_S, self._gathers_until_s)
        if self.change > change and until_s > asyncio.get_running_loop().time():
            self._gather(until_s)
        else:
            self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._told = self.change
        self._news.clear()
        self._rests_until_s = asyncio.get_running_loop().time() + len(waiting) * REST_S
        self._wake(deque(waiting))

    def _wake(self, waiting: deque[asyncio.Future[None]]) -> None:
        """Wakes some of those that wait, and the others in the next turns of the loop."""
        for _ in range(min(TOGETHER, len(waiting))):
            _end(waiting.popleft())
        if waiting:
            self._telling = asyncio.get_running_loop().call_soon(self._wake, waiting)
            return
        self._telling = None
        if self._waiting and self.change > self._told:
            self._tell_soon()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _fitting(regions: Iterable[Region]) -> list[Region]:
    """Returns the first regions, as many as their routes fit into one response; at least one where there are any."""
    found: list[Region] = []
    size = 0
    for region in islice(regions, ROUTES_MAX):
        size += len(region.start) + len(region.end) + _name_bytes(region)
        if found and size > ROUTES_BYTES_MAX:
            break
        found.append(region)
    return found


def _name_bytes(region: Region) -> int:
    """Returns about the bytes of a route without its keys; characters take up to four."""
    server = region.server
    return 32 + 4 * (len(region.table.name) + (0 if server is None else len(server.name) + len(server.address)))
