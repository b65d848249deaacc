"""Lists that are compared in pieces: what happens between two pieces counts, and a server that waits is not silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.regions import comparison
from controller.regions.procedures.messages import MOVE, Move
from controller.regions.procedures.move import NAME as MOVE_NAME
from controller.regions.term import RegionsTerm
from metadata_store.records.port import StoreFailed
from regent_agent import protocol
from regent_agent.protocol import Accepted, Left, Owned, Refused, Registered, Response
from state_machines.regions.states import ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

REGIONS = 100
PIECES = 10
LEASE_S = OPTIONS.lease_ms / 1000
OLD_S = 1.5
"""Time after which a list may contradict the model."""


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "PIECE", REGIONS // PIECES)


@asynccontextmanager
async def failed_over(*names: str) -> AsyncIterator[tuple[RegionsTerm, dict[str, list[Owned]]]]:
    """The second term of servers with many regions each, and what each of them has."""
    disk = RegionDisk()
    async with running(disk) as term, serving(*(Server(term, name) for name in names)):
        await ended(term, creates(term, regions=REGIONS * len(names)))
        had = {name: lists(term.env.model.servers[name, 1].regions.values()) for name in names}
    async with running(disk) as term:
        yield term, had


@asynccontextmanager
async def turn_taken(term: RegionsTerm) -> AsyncIterator[None]:
    """Lists wait for their turn meanwhile."""
    async with term.manager.comparison._turn:
        yield


async def turns(work: asyncio.Future[Any]) -> int:
    """Returns how many turns of the loop some work took."""
    found = 0
    while not work.done():
        await asyncio.sleep(0)
        found += 1
    return found


async def meets(term: RegionsTerm, had: list[Owned], happens: Callable[[], object]) -> Response:
    """Registers a server with a long list; something happens between two pieces of it. Returns the response."""
    registers = asyncio.ensure_future(Server(term, "a").register(*had))
    unheard = term.env.claimants.processes
    for _ in range(10 * PIECES):
        if sum(not one.doubtful for one in regions_of(term)) >= REGIONS // 2:
            break
        await asyncio.sleep(0)
    assert ("a", 1) in unheard
    assert not registers.done()
    happens()
    return await registers


@virtual
async def test_long_lists_are_compared_in_pieces_one_after_the_other() -> None:
    async with failed_over("a", "b", "c") as (term, had):
        registers = [asyncio.ensure_future(Server(term, name).register(*had[name])) for name in had]
        assert await turns(asyncio.gather(*registers)) >= len(had) * 2 * PIECES
        assert all(isinstance(one.result(), Registered) for one in registers)
        assert not any(one.doubtful for one in regions_of(term))
        assert not term.env.claimants.processes
        assert not list(term.engine.live())


@virtual
async def test_a_server_that_crashes_between_two_pieces_has_not_listed_its_regions() -> None:
    async with failed_over("a") as (term, had):
        server = term.env.model.servers["a", 1]
        found = await meets(term, had["a"], lambda: term.manager.expire(server, "a test"))
        assert isinstance(found, Refused)
        assert found.code == protocol.DEAD
        assert term.env.claimants.processes == {("a", 1)}
        assert not server.here


@virtual
async def test_a_comparison_ends_with_its_term() -> None:
    async with failed_over("a") as (term, had):
        found = await meets(term, had["a"], lambda: term.close(StoreFailed("another daemon has the store")))
        assert found == Refused(
            protocol.NOT_ACTIVE, "nothing can be stored by this daemon: another daemon has the store"
        )
        assert term.env.claimants.processes == {("a", 1)}
        assert not term.env.model.servers["a", 1].here


@virtual
async def test_a_later_list_of_a_server_replaces_one_that_is_being_compared() -> None:
    async with failed_over("a") as (term, had):
        later: list[asyncio.Future[Registered | Refused]] = []
        again = Server(term, "a")
        found = await meets(term, had["a"], lambda: later.append(asyncio.ensure_future(again.register(*had["a"]))))
        assert isinstance(found, Refused)
        assert found.code == protocol.REGISTER
        assert isinstance(await later[0], Registered)
        assert not term.env.claimants.processes


@virtual
async def test_a_region_that_moves_away_between_two_pieces_is_no_fault_of_the_list() -> None:
    async with running(RegionDisk()) as term, serving(one := Server(term, "a"), other := Server(term, "b")):
        await ended(term, creates(term, regions=REGIONS))
        await asyncio.sleep(OLD_S)
        region = next(iter(term.env.model.servers["a", 1].regions.values()))
        async with turn_taken(term):
            listed = asyncio.ensure_future(
                one.ask(protocol.Regions("a", 1, one.epoch, [Owned(*has) for has in one.has.items()]))
            )
            await asyncio.sleep(0)
            move = MOVE.encode(Move(region.id, "t", "b", "a test"))
            await ended(term, procedure(term, MOVE_NAME, move))
            await asyncio.sleep(OLD_S)
        assert await listed == Accepted()
        assert not list(term.engine.live()), "the region is not closed at the server that had it"
        assert region.id in other.has
        assert term.env.claimants.is_held(region), "it may not go elsewhere until the server has listed once more"
        await one.ask(protocol.Regions("a", 1, one.epoch, [Owned(*has) for has in one.has.items()]))
        assert not term.env.claimants.is_held(region)


@virtual
async def test_a_region_that_opens_while_a_list_waits_is_not_lost() -> None:
    async with running(RegionDisk()) as term, serving(server := Server(term, "a")):
        async with turn_taken(term):
            listed = asyncio.ensure_future(server.ask(protocol.Regions("a", 1, server.epoch, [])))
            await ended(term, creates(term))
            await asyncio.sleep(OLD_S)
        assert await listed == Accepted()
        assert term.env.model.servers["a", 1].state is ServerState.ONLINE


@virtual
async def test_a_server_whose_list_waits_longer_than_its_lease_is_not_silent() -> None:
    async with failed_over("a") as (term, had):
        server = term.env.model.servers["a", 1]
        async with turn_taken(term):
            registers = asyncio.ensure_future(Server(term, "a").register(*had["a"]))
            await asyncio.sleep(3 * LEASE_S)
            assert server.state is ServerState.ONLINE
            assert not list(term.env.model.online()), "no region goes to a server before its list is compared"
        assert isinstance(await registers, Registered)
        assert server.deadline_s >= asyncio.get_running_loop().time() + LEASE_S - 0.1
        assert list(term.env.model.online()) == [server]


@virtual
async def test_a_server_that_is_silent_after_its_list_crashes() -> None:
    async with failed_over("a") as (term, had):
        await Server(term, "a").register(*had["a"])
        await until(lambda: ("a", 1) in term.env.crashing)


@virtual
async def test_a_server_does_not_leave_before_its_list_is_compared() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        server = Server(term, "a")
        await server.register()
        leave = protocol.Leave("a", 1, server.epoch)
        assert await server.ask(leave) == Left(1)
        await until(lambda: not list(term.engine.live()))
        async with turn_taken(term):
            listed = asyncio.ensure_future(
                server.ask(protocol.Regions("a", 1, server.epoch, [Owned(region.id, region.token - 1)]))
            )
            await asyncio.sleep(0)
            assert await server.ask(leave) == Left(1)
            assert ("a", 1) in disk.servers
        await listed
        assert term.env.claimants.is_held(region)
