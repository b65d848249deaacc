"""Clients of the version before splits: they see no field ``gone``, and find the heirs all the same."""

from __future__ import annotations

import msgspec
import pytest

from controller.regions.term import RegionsTerm
from regent_agent import codec, protocol
from regent_agent.codec import LENGTH
from regent_agent.protocol import Follow, Locate, Message, Name, Request, Route
from regent_agent.routes import RouteCache
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import Inheriting, merges, one_inheriting, splits
from tests.kit.regions.world import ended, moves, regions_of, serving, virtual


class FormerRoute(Message, frozen=True):
    """The owner of a region, as former clients read it."""

    region: int
    table: Name
    start: bytes
    end: bytes
    token: int = 0
    server: Name = ""
    address: Name = ""


class FormerRoutes(Message, frozen=True, tag="routes"):
    """A response to a lookup, as former clients read it."""

    epoch: int
    change: int
    routes: list[FormerRoute]


class FormerChanges(Message, frozen=True, tag="changes"):
    """News of routes, as former clients read it."""

    epoch: int
    change: int
    routes: list[FormerRoute] = []
    reset: bool = False


FORMER: msgspec.msgpack.Decoder[FormerRoutes | FormerChanges] = msgspec.msgpack.Decoder(FormerRoutes | FormerChanges)


class FormerClient:
    """Reads responses without the fields that came later, and puts what it reads in a cache, as its version does."""

    def __init__(self, term: RegionsTerm) -> None:
        self._term = term
        self._cache = RouteCache(100)
        self._change = 0
        self.frames: list[bytes] = []

    async def _ask(self, request: Request) -> tuple[list[Route], int]:
        frame = codec.encode(await self._term.service.handle(request))
        self.frames.append(frame)
        found = FORMER.decode(frame[LENGTH.size :])
        return [Route(*msgspec.structs.astuple(one)) for one in found.routes], found.change

    async def locate(self, key: bytes) -> Route:
        """Returns the route that it knows where that has an owner, else the daemon's."""
        known = self._cache.find("t", key)
        if known is not None and known.server:
            return known
        [route], self._change = await self._ask(Locate("t", key))
        self._cache.put(route, self._change)
        return route

    async def follow(self) -> None:
        """Takes news of the routes that it knows."""
        routes, self._change = await self._ask(Follow(self._term.service.epoch, self._change, ["t"]))
        self._cache.refresh(routes, self._change)

    async def write(self, key: bytes, *servers: Inheriting) -> list[Route]:
        """Sends a key to the server of its route until one takes it; returns the routes that it tried."""
        tried: list[Route] = []
        while len(tried) < 3:
            route = await self.locate(key)
            tried.append(route)
            [server] = [one for one in servers if one.name == route.server]
            if server.has.get(route.region) == route.token:
                return tried
            self._cache.doubt(route)  # the server has refused the token
        raise AssertionError(f"no server takes {key!r}: {tried}")


@virtual
async def test_a_former_client_that_knows_the_parent_is_refused_by_its_token_and_locates_the_heir() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)), serving(server):
        client = FormerClient(term)
        [before] = await client.write(b"z", server)
        await ended(term, splits(term, parent, b"m"))
        _, second = regions_of(term)
        stale, found = await client.write(b"z", server)
        assert stale == before == Route(parent.id, "t", b"", b"", parent.token, "a", "a:1")
        assert found == Route(second.id, "t", b"m", b"", second.token, "a", "a:1")


@pytest.mark.parametrize("moves_away", [False, True])
def test_a_former_client_that_is_told_of_a_split_asks_no_server_for_the_parent(moves_away: bool) -> None:
    @virtual
    async def story() -> None:
        async with (
            one_inheriting(RegionDisk()) as (term, server, (parent,)),
            serving(server, other := Inheriting(term, "b")),
        ):
            client = FormerClient(term)
            await client.write(b"z", server)
            await ended(term, splits(term, parent, b"m"))
            first, second = regions_of(term)
            if moves_away:
                await ended(term, moves(term, first, "b"))
            await client.follow()
            gone = protocol.Route(parent.id, "t", b"", b"", gone=True)
            told = codec.decode_response(client.frames[-1][LENGTH.size :])
            assert isinstance(told, protocol.Changes)
            assert gone in told.routes, "it was told with a field that it does not know"
            for key, heir in ((b"a", first), (b"z", second)):
                [found] = await client.write(key, server, other)
                assert (found.region, found.token) == (heir.id, heir.token)

    story()


@virtual
async def test_a_former_client_that_is_told_of_a_merge_finds_all_keys_at_the_heir() -> None:
    async with one_inheriting(RegionDisk(), 3) as (term, server, parents), serving(server):
        client = FormerClient(term)
        keys = [one.start + b"0" for one in parents]
        for key in keys:
            await client.write(key, server)
        await ended(term, merges(term, parents))
        [heir] = regions_of(term)
        await client.follow()
        assert [(await client.write(key, server))[-1].region for key in keys] == [heir.id] * 3
