"""Looks up the owners of keys for a client, and follows their changes.

A route may be stale: the client sends ``route.token`` with each request, and the server refuses it unless
``agent.owns(region, token)``. Then the client calls :meth:`Router.invalidate`, waits a little, and locates anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from regent_agent.connection import (
    REQUEST_MS_MAX,
    Address,
    Backoff,
    Channel,
    Daemons,
    RequestRefused,
    Unreachable,
)
from regent_agent.protocol import (
    TABLES_MAX,
    UNAUTHENTICATED,
    UNKNOWN_TABLE,
    Changes,
    Follow,
    ListRoutes,
    Locate,
    Route,
    Routes,
)
from regent_agent.routes import RouteCache

log = logging.getLogger("regent_agent")

FOLLOW_S_MAX: Final = 60.0
"""Longest wait for changes; a daemon responds earlier, also where there are none."""
LOCATE_S: Final = 30.0
ROUTES_MAX: Final = 100_000
PAGE_ROUTES: Final = 1_000


class UnknownTable(LookupError):
    """Raised where the daemon knows no table of that name."""


class NoOwner(Exception):
    """Raised where a key's region had no owner until the deadline, or no daemon responded; the text says which."""


class Unwelcome(NoOwner):
    """Raised where the daemons refuse the secret of this router; the text is that of the refusal."""


class Router:
    """Finds the owners of keys. The first call begins to follow changes; :meth:`stop` ends that."""

    def __init__(
        self,
        daemons: Sequence[Address],
        secret: str = "",
        tls: ssl.SSLContext | None = None,
        *,
        routes_max: int = ROUTES_MAX,
        request_ms_max: int = REQUEST_MS_MAX,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``secret``: of clients, where the daemons have one. ``request_ms_max``: longest wait for a response."""
        shared = Daemons(daemons, secret=secret, tls=tls)
        self._requests, self._follows = Channel(shared), Channel(shared)
        self._cache = RouteCache(routes_max)
        self._jitter, self._request_s_max = jitter, request_ms_max / 1000
        self._epoch = self._change = 0
        self._unfollowed: list[str] = []
        """Tables that were located while changes of others were waited for: the next wait includes them."""
        self._outdated = False
        """Whether a new epoch or a reset made the routes here outdated, and they are to be listed again."""
        self._news = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None

    async def locate(self, table: str, key: bytes, timeout_s: float = LOCATE_S) -> Route:
        """Returns the route of a key, and waits while its region has no owner.

        Raises :class:`NoOwner` at the deadline, and at once :class:`UnknownTable` and :class:`Unwelcome`.
        """
        route = self._cache.find(table, key)
        if route is not None and route.server:
            return route
        causes = ["no daemon responded"]
        try:
            async with asyncio.timeout(timeout_s):
                return await self._wait_for_owner(table, key, causes)
        except TimeoutError:
            raise NoOwner(f"no owner of key {key!r} in table {table} within {timeout_s:g} s: {causes[-1]}") from None

    def invalidate(self, route: Route) -> None:
        """Doubts a route: its server refused the token, or did not respond.

        The key is located anew. While no daemon responds the route is still the best that is known: servers serve on
        without a daemon, and one that does not have the region refuses the token.
        """
        self._cache.doubt(route)

    async def routes(self, table: str) -> list[Route]:
        """Returns the routes of all regions of a table, in the order of keys, those without an owner included.

        Raises :class:`UnknownTable`, :class:`Unwelcome`, and :class:`NoOwner` where no daemon responds.
        """
        found = []
        try:
            async for page in self._pages(self._requests, table):
                for route in page.routes:
                    self._cache.put(route, page.change)
                found += page.routes
                self._keep_following()
        except (Unreachable, RequestRefused) as error:
            raise self._error(error, table) or NoOwner(f"routes of table {table}: {error}") from error
        return found

    async def stop(self) -> None:
        """Ends the connections."""
        self._requests.close()
        self._follows.close()
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
            self._follower = None

    # -- requests

    async def _wait_for_owner(self, table: str, key: bytes, causes: list[str]) -> Route:
        backoff = Backoff(jitter=self._jitter)
        while True:
            news = self._news
            try:
                found = await self._requests.request(Locate(table, key), Routes, self._request_s_max)
            except (Unreachable, RequestRefused) as error:
                if (raised := self._error(error, table)) is not None:
                    raise raised from error
                if (doubted := self._cache.find(table, key, doubted=True)) is not None and doubted.server:
                    return doubted
                causes.append(str(error))
            else:
                self._take(found)
                if found.routes and found.routes[0].server:
                    return found.routes[0]
                causes.append("its region is with no server" + _explained(found.routes))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.pause_s()):
                    await news.wait()
            route = self._cache.find(table, key)
            if route is not None and route.server:
                return route

    def _take(self, found: Routes) -> None:
        self._enter(found.epoch, found.change)
        for route in found.routes:
            self._cache.put(route, found.change)
        self._keep_following()

    def _keep_following(self) -> None:
        """Begins to follow changes, or follows those of the new epoch."""
        if self._outdated:
            self._follows.close()  # it waits for changes of an earlier epoch
        if self._follower is None:
            self._follower = asyncio.create_task(self._follow(), name="regent_agent routes")

    def _enter(self, epoch: int, change: int, *, reset: bool = False) -> None:
        """Begins to count changes anew where the epoch is a new one."""
        if epoch == self._epoch and not reset:
            return
        self._outdated = self._epoch > 0
        self._epoch, self._change = epoch, change
        self._cache.outdate()

    def _error(self, error: Unreachable | RequestRefused, table: str) -> UnknownTable | Unwelcome | None:
        """Returns what a call raises at once; None where it is tried again."""
        if isinstance(error, RequestRefused) and error.code == UNAUTHENTICATED:
            return Unwelcome(str(error))
        if not isinstance(error, RequestRefused) or error.code != UNKNOWN_TABLE:
            return None
        self._cache.forget_table(table)
        return UnknownTable(f"table {table}: {error}")

    async def _pages(self, channel: Channel, table: str) -> AsyncIterator[Routes]:
        start = b""
        while True:
            page = await channel.request(ListRoutes(table, start, PAGE_ROUTES), Routes, self._request_s_max)
            self._enter(page.epoch, page.change)
            yield page
            if not page.routes or page.routes[-1].end <= start:
                return
            start = page.routes[-1].end

    # -- changes

    async def _follow(self) -> None:
        backoff, failing = Backoff(jitter=self._jitter), False
        while True:
            try:
                await self._fetch_changes()
            except (Unreachable, RequestRefused) as error:
                level = logging.DEBUG if failing else logging.WARNING
                log.log(level, "changes of routes do not come, routes may be stale: %s; it tries all daemons", error)
                failing = True
                await asyncio.sleep(backoff.pause_s())
            else:
                failing = False
                backoff.reset()

    async def _fetch_changes(self) -> None:
        if self._outdated:
            await self._list_again()
        tables = sorted({*self._cache.tables(), *self._unfollowed})
        try:
            message = Follow(self._epoch, self._change, tables if len(tables) <= TABLES_MAX else [])
            changes = await self._follows.request(message, Changes, FOLLOW_S_MAX)
        except RequestRefused as refused:
            self._outdated |= refused.code == UNKNOWN_TABLE
            raise
        self._enter(changes.epoch, changes.change, reset=changes.reset)
        if not self._outdated:
            self._change = changes.change
            self._unfollowed = [table for table in self._cache.tables() if table not in tables]
            self._cache.forget_unfollowed(tables, changes.change)
            self._cache.refresh(changes.routes, changes.change)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _list_again(self) -> None:
        self._outdated = False
        for table in self._cache.tables():
            try:
                async for page in self._pages(self._follows, table):
                    self._cache.refresh(page.routes, page.change)
            except RequestRefused as refused:
                if not isinstance(self._error(refused, table), UnknownTable):
                    self._outdated = True
                    raise
            except Unreachable:
                self._outdated = True
                raise


def _explained(routes: Sequence[Route]) -> str:
    """Names the command that says why a region is with no server."""
    return f": 'regent regions explain {routes[0].region}' has the cause" if routes else ""
