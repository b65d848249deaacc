"""Routers over several lives: of a daemon, of its changes, and of the router itself."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

import pytest

from regent_agent.connection import PAUSE_MS_MAX, Backoff
from regent_agent.protocol import (
    DAMAGED,
    Changes,
    Follow,
    ListRoutes,
    Locate,
    Refused,
    Request,
    Response,
    Route,
    Routes,
)
from regent_agent.router import NoOwner, Router
from tests.kit.certificates import Authority
from tests.kit.deadlines import eventually
from tests.unit.regent_agent.kit import Respond, StandIn
from tests.unit.regent_agent.test_connection import responding
from tests.unit.regent_agent.test_router import MOVED, NOWHERE, Catalog, not_active, routing
from tests.unit.regent_agent.test_routes import HIGH, LOW, route

WAITED_FOR: Final = 1e9
"""Jitter of a router whose pauses end by news alone."""


class Held:
    """Holds the responses to one kind of request until the test lets them go."""

    def __init__(self, daemon: Catalog, kind: type[Request]) -> None:
        self._go, self._respond = asyncio.Event(), daemon.responses[kind]
        daemon.responses[kind] = self.respond

    async def respond(self, request: Request) -> Response | bytes | None:
        response = await self._respond(request)
        await self._go.wait()
        return response

    def go(self) -> None:
        self._go.set()


async def test_a_listed_region_without_an_owner_is_waited_for_as_a_located_one_is() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        daemon.routes = [NOWHERE, HIGH]
        assert await router.routes("t") == [NOWHERE, HIGH]
        locating = asyncio.ensure_future(router.locate("t", b"a"))
        await daemon.arrived(Locate, 2)
        daemon.routes = [MOVED, HIGH]
        assert await locating == MOVED


async def test_a_change_that_comes_during_a_lookup_ends_the_pause_behind_it() -> None:
    """The response is older than the change: the next lookup follows at once."""
    async with Catalog().running() as daemon, routing(daemon, jitter=WAITED_FOR) as router:
        await router.locate("t", b"z")
        await daemon.arrived(Follow)
        daemon.routes = [NOWHERE, HIGH]
        held = Held(daemon, Locate)
        locating = asyncio.ensure_future(router.locate("t", b"a"))
        await daemon.arrived(Locate, 2)
        daemon.move(MOVED)
        await daemon.arrived(Follow, 2)
        held.go()
        async with asyncio.timeout(60):
            assert await locating == MOVED
        assert len(daemon.seen(Locate)) == 3


async def test_each_change_ends_one_wait_and_the_next_wait_is_for_the_next_change() -> None:
    """Changes of other regions come one after the other; each of them has the region looked for in the cache alone."""
    async with Catalog().running() as daemon, routing(daemon, jitter=WAITED_FOR) as router:
        daemon.routes = [NOWHERE, HIGH]
        locating = asyncio.ensure_future(router.locate("t", b"a"))
        for count in range(1, 4):
            await daemon.arrived(Follow, count)
            await daemon.arrived(Locate, count)
            daemon.move(HIGH)
        await daemon.arrived(Locate, 4)
        await daemon.arrived(Follow, 4)
        assert len(daemon.seen(Locate)) == 4
        daemon.move(MOVED)
        async with asyncio.timeout(60):
            assert await locating == MOVED


async def test_routes_that_a_new_daemon_lists_replace_those_of_the_old_one_with_higher_changes() -> None:
    async with Catalog(1).running() as old, Catalog(2).running() as new, routing(old, new) as router:
        await router.locate("t", b"a")
        await old.arrived(Follow)
        new.routes, new.change = [MOVED, HIGH], 1
        old.responses = dict.fromkeys((Locate, ListRoutes, Follow), not_active)
        with pytest.raises(NoOwner, match="a standby"):
            await router.routes("t")
        assert await router.routes("t") == [MOVED, HIGH]
        assert await router.locate("t", b"a") == MOVED
        assert not new.seen(Locate)
        assert await new.arrived(Follow) == Follow(2, 1, ["t"]), "the old daemon may hold the wait for its changes"


async def test_changes_of_listed_routes_are_followed_without_a_lookup() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        await router.routes("t")
        assert await daemon.arrived(Follow) == Follow(1, 5, ["t"])
        daemon.move(MOVED)
        await daemon.arrived(Follow, 2)
        assert await router.locate("t", b"a") == MOVED
        assert not daemon.seen(Locate)


@pytest.mark.parametrize(
    ("pages", "listed"),
    [([[]], []), ([[LOW], []], [LOW]), ([[LOW], [LOW]], [LOW, LOW])],
    ids=["no region", "a gap at the end", "no further key"],
)
async def test_a_list_ends_with_a_page_that_goes_no_further(pages: list[list[Route]], listed: list[Route]) -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:

        async def page(_: Request) -> Response:
            return Routes(1, 5, pages.pop(0))

        daemon.responses[ListRoutes] = page
        assert await router.routes("t") == listed
    assert not pages


async def test_a_router_that_follows_as_many_tables_as_it_may_name_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regent_agent.router.TABLES_MAX", 2)
    async with Catalog().running() as daemon, routing(daemon) as router:
        for name in ("a", "b"):
            daemon.responses[Locate] = responding(Routes(1, 5, [route(3, b"", b"", table=name)]))
            await router.locate(name, b"k")
        daemon.changes.put_nowait(Changes(1, 5))
        assert (await daemon.arrived(Follow, 2)).tables == ["a", "b"]


async def test_each_known_table_is_listed_again_once_after_a_reset() -> None:
    """Routes of other regions of these tables are not kept, and the next change is followed without a list."""
    async with Catalog().running() as daemon, routing(daemon) as router:
        before = {name: [route(3, b"", b"m", table=name), route(4, b"m", b"", table=name)] for name in ("a", "b")}
        for name, known in before.items():
            daemon.responses[Locate] = responding(Routes(1, 5, known[:1]))
            await router.locate(name, b"a")
        await daemon.arrived(Follow)
        after = {name: [route(3, b"", b"m", 8, "s2", name), known[1]] for name, known in before.items()}

        async def listed(request: Request) -> Response:
            assert isinstance(request, ListRoutes)
            return Routes(1, 9, after[request.table] if not request.start else [])

        daemon.responses |= {ListRoutes: listed, Locate: not_active}
        daemon.changes.put_nowait(Changes(1, 9, reset=True))
        assert await daemon.arrived(Follow, 2) == Follow(1, 9, ["a", "b"])
        daemon.changes.put_nowait(Changes(1, 10))
        assert await daemon.arrived(Follow, 3) == Follow(1, 10, ["a", "b"])
        assert [(one.table, one.start) for one in daemon.seen(ListRoutes)] == [("a", b""), ("b", b"")]
        for name, known in after.items():
            assert await router.locate(name, b"a") == known[0]
            with pytest.raises(NoOwner, match="a standby"):
                await router.locate(name, b"z", 0.05)


async def test_a_list_that_is_refused_for_now_is_tried_again_before_changes_are_followed() -> None:
    """Rows of a table may be unusable: an operator restores them later."""
    async with Catalog().running() as daemon, routing(daemon) as router:
        await router.locate("t", b"a")
        await daemon.arrived(Follow)
        daemon.responses[ListRoutes] = responding(Refused(DAMAGED, "a row is damaged"))
        daemon.changes.put_nowait(Changes(1, 9, reset=True))
        await daemon.arrived(ListRoutes, 3)
        assert len(daemon.seen(Follow)) == 1
        daemon.routes = [MOVED, HIGH]
        daemon.responses[ListRoutes] = daemon.list_routes
        await daemon.arrived(Follow, 2)
        assert await router.locate("t", b"a") == MOVED


async def test_an_invalid_route_leaves_those_of_other_regions() -> None:
    async with Catalog().running() as daemon, routing(daemon) as router:
        assert [await router.locate("t", key) for key in (b"a", b"z")] == [LOW, HIGH]
        router.invalidate(LOW)
        assert await router.locate("t", b"z") == HIGH
        assert len(daemon.seen(Locate)) == 2
        assert await router.locate("t", b"a") == LOW
        assert len(daemon.seen(Locate)) == 3


async def test_an_invalid_route_is_used_while_no_daemon_responds() -> None:
    """Its server may have been slow for a moment only; it serves on without a daemon."""
    async with Catalog().running() as daemon, routing(daemon) as router:
        router.invalidate(await router.locate("t", b"a"))
        daemon.responses[Locate] = not_active
        assert await router.locate("t", b"a") == LOW
        with pytest.raises(NoOwner, match="not_active"):
            await router.locate("t", b"z", 0.1)
        daemon.responses[Locate] = daemon.locate
        daemon.routes = [MOVED, HIGH]
        assert await router.locate("t", b"a") == MOVED


class Noted(Backoff):
    """Notes each pause and each success, and pauses not at all."""

    noted: Final[list[float]] = []

    def pause_s(self, longest_ms: int = PAUSE_MS_MAX) -> float:
        self.noted.append(super().pause_s(longest_ms))
        return 0.0

    def reset(self) -> None:
        super().reset()
        self.noted.append(0.0)


async def test_each_outage_of_changes_begins_with_the_first_pause_and_leaves_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("regent_agent.router.Backoff", Noted)
    Noted.noted.clear()
    async with Catalog().running() as daemon, routing(daemon) as router:
        left: list[Respond] = [*[daemon.follow, not_active, not_active] * 2, daemon.follow, daemon.follow]

        async def scripted(request: Request) -> Response | bytes | None:
            return await left.pop(0)(request)

        daemon.responses[Follow] = scripted
        await router.locate("t", b"a")
        for follows in (1, 4, 7):
            await daemon.arrived(Follow, follows)
            daemon.changes.put_nowait(Changes(1, 5 + follows))
        await daemon.arrived(Follow, 8)
    assert Noted.noted == [0.0, *[0.025, 0.05, 0.0] * 2]
    warnings = [one for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 2
    assert "changes of routes do not come" in warnings[1].getMessage()


async def test_a_wait_for_changes_outlasts_the_longest_wait_for_other_responses() -> None:
    async with Catalog().running() as daemon:
        router = Router([daemon.address], jitter=lambda: 0.0, request_ms_max=20)
        await router.locate("t", b"a")
        await daemon.arrived(Follow)
        Held(daemon, Locate)
        with pytest.raises(NoOwner, match="no response within"):
            await router.locate("t", b"z", 0.2)
        assert len(daemon.seen(Locate)) > 2
        assert len(daemon.seen(Follow)) == 1
        await router.stop()


async def test_all_connections_of_a_router_are_encrypted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.signed("daemon"))
    async with Catalog().running(tls=server) as daemon:
        router = Router([daemon.address], tls=ssl.create_default_context(cafile=authority.file))
        assert await router.locate("t", b"a") == LOW
        assert await daemon.arrived(Follow) == Follow(1, 5, ["t"])
        await router.stop()
        plain = Router([daemon.address])
        with pytest.raises(NoOwner, match="compare the port"):
            await plain.routes("t")


async def test_a_router_that_stops_leaves_no_connection_and_follows_again_where_it_is_used_again() -> None:
    async with Catalog().running() as daemon:
        router = Router([daemon.address], jitter=lambda: 0.0)
        for life in (1, 2):
            router.invalidate(LOW)
            assert await router.locate("t", b"a") == LOW
            await daemon.arrived(Follow, life)
            await router.stop()
            daemon.changes.put_nowait(Changes(1, 5))  # it writes, and notices the end
            await eventually(lambda: not daemon.connections)
            assert not [task for task in asyncio.all_tasks() if task.get_name() == "regent_agent routes"]


async def test_a_lookup_takes_no_route_of_a_stale_daemon() -> None:
    """A daemon whose successor was seen lists older routes with higher changes."""
    async with Catalog(2).running() as new, StandIn(1).running() as stale, routing(new, stale) as router:
        assert await router.locate("t", b"a") == LOW
        new.responses[Locate] = not_active
        stale.responses[Locate] = responding(Routes(1, 99, [MOVED]))
        with pytest.raises(NoOwner, match=r"a stale daemon|a standby"):
            await router.locate("t", b"z", 0.1)
        assert not stale.seen(Locate)
