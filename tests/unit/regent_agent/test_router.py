"""Routers: lookup, waiting for an owner, and changes that arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from regent_agent.protocol import (
    NOT_ACTIVE,
    UNAUTHENTICATED,
    UNKNOWN_TABLE,
    Changes,
    Follow,
    Hello,
    Left,
    ListRoutes,
    Locate,
    Refused,
    Request,
    Response,
    Route,
    Routes,
)
from regent_agent.router import NoOwner, Router, UnknownTable, Unwelcome
from tests.kit.deadlines import eventually
from tests.unit.regent_agent.kit import Respond, StandIn
from tests.unit.regent_agent.test_connection import responding
from tests.unit.regent_agent.test_routes import HIGH, LOW, route

MOVED = route(1, b"", b"m", 7, "s2")
NOWHERE = Route(1, "t", b"", b"m")


class Catalog(StandIn):
    """A daemon that has routes of the table "t"."""

    def __init__(self, epoch: int = 1) -> None:
        super().__init__(epoch)
        self.routes = [LOW, HIGH]
        self.change = 5
        self.changes: asyncio.Queue[Changes] = asyncio.Queue()
        self.responses = {Locate: self.locate, ListRoutes: self.list_routes, Follow: self.follow}

    def move(self, *routes: Route) -> None:
        """Changes routes, and tells followers."""
        self.change += 1
        for changed in routes:
            self.routes = [changed if known.region == changed.region else known for known in self.routes]
        self.changes.put_nowait(Changes(self.epoch, self.change, list(routes)))

    async def locate(self, request: Request) -> Response:
        assert isinstance(request, Locate)
        if request.table != "t":
            return Refused(UNKNOWN_TABLE, f"no table {request.table}")
        has = [
            route for route in self.routes if route.start <= request.key and (not route.end or request.key < route.end)
        ]
        return Routes(self.epoch, self.change, has)

    async def list_routes(self, request: Request) -> Response:
        assert isinstance(request, ListRoutes)
        if request.table != "t":
            return Refused(UNKNOWN_TABLE, f"no table {request.table}")
        has = [route for route in self.routes if not route.end or route.end > request.start]
        return Routes(self.epoch, self.change, has[:1])  # a page of one, whatever the client admits

    async def follow(self, request: Request) -> Response:
        return await self.changes.get()


async def not_active(request: Request) -> Response:
    return Refused(NOT_ACTIVE, "a standby")


async def broken(request: Request) -> Response:
    """Responds as no daemon does: the connection is closed."""
    return Left(0)


@asynccontextmanager
async def routing(*daemons: StandIn, jitter: float = 0.0) -> AsyncIterator[Router]:
    router = Router([daemon.address for daemon in daemons], jitter=lambda: jitter)
    try:
        yield router
    finally:
        await router.stop()


async def test_a_key_is_looked_up_once() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        assert [await router.locate("t", key) for key in (b"a", b"b", b"m", b"z")] == [LOW, LOW, HIGH, HIGH]
        assert daemon.seen(Locate) == [Locate("t", b"a"), Locate("t", b"m")]


async def test_a_lookup_without_a_response_is_repeated_after_its_longest_wait() -> None:
    held = asyncio.Event()

    async with Catalog().running() as daemon:

        async def late(request: Request) -> Response:
            await held.wait()
            return await daemon.locate(request)

        daemon.responses[Locate] = late
        router = Router([daemon.address], jitter=lambda: 0.0, request_ms_max=20)
        locating = asyncio.ensure_future(router.locate("t", b"a"))
        await daemon.arrived(Locate, 4)
        held.set()
        assert await locating == LOW
        await router.stop()


async def test_an_invalid_route_is_looked_up_again() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        router.invalidate(await router.locate("t", b"a"))
        daemon.routes = [MOVED, HIGH]
        assert await router.locate("t", b"a") == MOVED


async def test_a_change_arrives_without_a_lookup() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        await router.locate("t", b"a")
        assert await daemon.arrived(Follow) == Follow(1, 5, ["t"])
        daemon.move(MOVED)
        assert await daemon.arrived(Follow, 2) == Follow(1, 6, ["t"])
        assert await router.locate("t", b"a") == MOVED
        assert len(daemon.seen(Locate)) == 1


async def test_a_client_with_more_tables_than_it_may_name_follows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regent_agent.router.TABLES_MAX", 2)
    names = ("a", "b", "c")
    async with Catalog().running() as daemon, routing(daemon) as router:
        for name in names:
            daemon.responses[Locate] = responding(Routes(1, 5, [route(3, b"", b"", table=name)]))
            await router.locate(name, b"k")
        daemon.changes.put_nowait(Changes(1, 5))
        assert (await daemon.arrived(Follow, 2)).tables == []
        daemon.responses[Locate] = not_active
        moved = [route(3, b"", b"", 8, "s2", table=name) for name in names]
        daemon.changes.put_nowait(Changes(1, 6, moved))
        await daemon.arrived(Follow, 3)
        assert [await router.locate(name, b"k") for name in names] == moved


async def test_a_region_without_an_owner_is_waited_for() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        daemon.routes = [NOWHERE, HIGH]
        locating = asyncio.create_task(router.locate("t", b"a"))
        await daemon.arrived(Locate, 2)
        assert not locating.done()
        daemon.move(MOVED)
        assert await locating == MOVED


async def test_a_change_ends_the_wait_for_an_owner() -> None:
    async with Catalog().running() as daemon, routing(daemon, jitter=1e9) as router:
        daemon.routes = [NOWHERE, HIGH]
        locating = asyncio.create_task(router.locate("t", b"a"))
        await daemon.arrived(Follow)
        daemon.move(MOVED)
        assert await locating == MOVED
        assert len(daemon.seen(Locate)) == 1


async def test_a_table_that_was_located_during_a_wait_for_changes_is_located_again() -> None:
    """Its changes up to that response do not come any more."""
    async with Catalog().running() as daemon, routing(daemon) as router:
        await router.locate("t", b"a")
        assert (await daemon.arrived(Follow)).tables == ["t"]
        other = route(3, b"", b"", table="u")
        daemon.responses[Locate] = responding(Routes(1, 5, [other]))
        assert await router.locate("u", b"a") == other
        daemon.move(MOVED)
        assert (await daemon.arrived(Follow, 2)).tables == ["t", "u"]
        moved = route(3, b"", b"", 8, "s2", table="u")
        daemon.responses[Locate] = responding(Routes(1, 6, [moved]))
        assert await router.locate("u", b"a") == moved
        daemon.move(LOW)
        await daemon.arrived(Follow, 3)
        daemon.responses[Locate] = not_active
        assert await router.locate("u", b"a") == moved


async def test_a_region_without_an_owner_is_waited_for_until_the_deadline() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        daemon.routes = [NOWHERE, HIGH]
        with pytest.raises(
            NoOwner,
            match=r"no owner of key b'a' in table t within 0\.1 s: its region is with no server: "
            f"'regent regions explain {NOWHERE.region}' has the cause",
        ):
            await router.locate("t", b"a", 0.1)


async def test_without_a_daemon_the_cause_is_named() -> None:
    async with StandIn().running() as daemon, routing(daemon) as router:

        async def standby(request: Request) -> Response:
            return Refused(NOT_ACTIVE, "a standby")

        daemon.responses = {Locate: standby, ListRoutes: standby}
        with pytest.raises(NoOwner, match="a standby"):
            await router.locate("t", b"a", 0.1)
        with pytest.raises(NoOwner, match=r"routes of table t: .* a standby"):
            await router.routes("t")


async def test_an_unknown_table_is_refused_at_once() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        with pytest.raises(UnknownTable, match="no table u"):
            await router.locate("u", b"a")
        with pytest.raises(UnknownTable, match="no table u"):
            await router.routes("u")


async def test_all_routes_of_a_table_are_listed_page_by_page() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        assert await router.routes("t") == [LOW, HIGH]
        assert await router.locate("t", b"z") == HIGH
        assert [request.start for request in daemon.seen(ListRoutes)] == [b"", b"m"]
        assert daemon.seen(Locate) == []


async def test_a_reset_lists_the_known_routes_again() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        await router.locate("t", b"a")
        daemon.routes = [MOVED, HIGH]
        daemon.changes.put_nowait(Changes(1, 9, reset=True))
        assert await eventually(lambda: router.locate("t", b"a")) in (LOW, MOVED)
        await daemon.arrived(Follow, 2)
        assert await router.locate("t", b"a") == MOVED
        assert len(daemon.seen(Locate)) == 1
        assert daemon.seen(Follow)[-1].change == 9


async def test_after_a_failover_the_routes_of_the_new_daemon_replace_those_of_the_old_one() -> None:
    async with Catalog(1).running() as old, Catalog(2).running() as new, routing(old, new) as router:
        await router.locate("t", b"a")
        await old.arrived(Follow)
        new.routes, new.change = [MOVED, HIGH], 1
        old.responses = {Locate: not_active}
        assert await router.locate("t", b"z") == HIGH
        assert (await new.arrived(Follow)).epoch == 2
        assert await router.locate("t", b"a") == MOVED
        assert len(new.seen(Locate)) == 1


@pytest.mark.parametrize("failed", [not_active, broken])
async def test_a_failed_list_is_repeated(failed: Respond) -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        await router.locate("t", b"a")
        await daemon.arrived(Follow)
        daemon.routes = [MOVED, HIGH]
        daemon.responses[ListRoutes] = failed
        daemon.changes.put_nowait(Changes(1, 9, reset=True))
        await daemon.arrived(ListRoutes)
        daemon.responses[ListRoutes] = daemon.list_routes
        await daemon.arrived(Follow, 2)
        assert await router.locate("t", b"a") == MOVED


async def test_a_table_that_is_gone_is_forgotten() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        await router.locate("t", b"a")

        async def unknown(request: Request) -> Response:
            return Refused(UNKNOWN_TABLE, "no table t")

        daemon.responses = dict.fromkeys((Locate, ListRoutes, Follow), unknown)
        await daemon.arrived(Follow)
        daemon.changes.put_nowait(Changes(1, 6))
        await daemon.arrived(ListRoutes)
        with pytest.raises(UnknownTable):
            await router.locate("t", b"a")


async def test_a_refused_secret_ends_a_call_at_once_with_the_text_of_the_refusal() -> None:
    async with Catalog().running() as daemon:
        daemon.responses[Hello] = responding(Refused(UNAUTHENTICATED, "secret: none was given"))
        router = Router([daemon.address])
        try:
            async with asyncio.timeout(30):
                for call in (router.locate("t", b"a", 60), router.routes("t")):
                    with pytest.raises(Unwelcome, match=r"^127\.0\.0\.1:\d+ refused: secret: none was given"):
                        await call
        finally:
            await router.stop()
