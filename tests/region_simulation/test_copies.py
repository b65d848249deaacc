"""A store that was restored from a copy, where no epoch and no number of a server shows it: lists do."""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import Any

import pytest

from controller.regions.kinds.messages import MOVE, Move
from controller.regions.term import RegionsTerm
from regent_agent.protocol import Owned
from state_machines.regions.model import Region
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.region_simulation.kit import Server, creates, ended, procedure, regions_of, running, serving, until, virtual


def moves(term: RegionsTerm, region: Region, to: str = "", *, reopens: bool = False) -> Any:
    return ended(term, procedure(term, "move", MOVE.encode(Move(region.id, "t", to, "operator", reopens))))


async def comes(server: Server, term: RegionsTerm) -> asyncio.Task[None]:
    """Registers a server that outlived the restore with what it has, and has it serve."""
    server.term = term
    await server.register(*(Owned(id_, token) for id_, token in server.has.items()))
    return asyncio.ensure_future(server.serve())


@virtual
async def test_a_region_that_its_server_has_with_another_token_is_opened_again() -> None:
    disk = RegionDisk()
    server = Server(None, "s1")  # type: ignore[arg-type]
    async with running(disk) as term:
        server.term = term
        async with serving(server):
            await ended(term, creates(term, regions=2))
            region, other = regions_of(term)
            kept = copy.deepcopy(vars(disk))
            await moves(term, region, reopens=True)
            seen = region.token
    vars(disk).update(kept)
    async with running(disk) as term:
        await asyncio.sleep(1.5)  # what the store has is old
        task = await comes(server, term)
        again = term.env.model.regions[region.id]
        await until(lambda: again.state is RegionState.OPEN and again.token > seen)
        await until(lambda: not list(term.engine.live()))
        assert server.has == {region.id: again.token, other.id: other.token}, "nothing else was touched"
        assert again.server is not None
        assert again.server.key == ("s1", 1), "its process did not crash"
        assert list(term.env.contradictions.noted) == [region.id]
        task.cancel()


@virtual
async def test_a_region_that_went_elsewhere_is_opened_above_the_token_that_it_had_there() -> None:
    disk, servers = RegionDisk(), [Server(None, name) for name in ("s1", "s2")]  # type: ignore[arg-type]
    first, second = servers
    async with running(disk) as term:
        first.term = second.term = term
        async with serving(*servers):
            await ended(term, creates(term))
            [region] = regions_of(term)
            assert region.server is not None
            kept = copy.deepcopy(vars(disk))
            before, after = servers if region.server.name == "s1" else reversed(servers)
            await moves(term, region, after.name)
            seen = region.token
    vars(disk).update(kept)
    async with running(disk) as term:
        await asyncio.sleep(1.5)
        tasks = [await comes(one, term) for one in (after, before)]
        [again] = regions_of(term)
        await until(lambda: again.state is RegionState.OPEN and again.token > seen)
        await until(lambda: not list(term.engine.live()))
        assert again.server is not None
        owner, other = (after, before) if again.server.name == after.name else (before, after)
        assert (owner.has, other.has) == ({again.id: again.token}, {})
        assert sorted(term.env.model.servers) == [("s1", 1), ("s2", 1)], "neither process crashed"
        for task in tasks:
            task.cancel()


@virtual
async def test_what_servers_list_of_a_sound_store_contradicts_nothing() -> None:
    """Also an open that the daemon before had on its way, and one that had failed at another server."""
    disk, server = RegionDisk(), Server(None, "s1")  # type: ignore[arg-type]
    async with running(disk) as term:
        server.term = term
        async with serving(server):
            await ended(term, creates(term, regions=2))
            for region in regions_of(term):
                await moves(term, region, reopens=True)
        await creates(term, "u")
        await until(lambda: "u" in term.env.model.tables and any(one.opening for one in regions_of(term, "u")))
        [opening] = regions_of(term, "u")
        server.has[opening.id] = opening.opening
    async with running(disk) as term:
        await asyncio.sleep(1.5)
        task = await comes(server, term)
        await until(lambda: not list(term.engine.live()))
        assert not term.env.contradictions.noted
        task.cancel()


@virtual
async def test_a_list_that_contradicts_the_store_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    disk = RegionDisk()
    async with running(disk) as term:
        await Server(term, "s1").register()
    async with running(disk) as term:
        await Server(term, "s1").register(Owned(1_000_000, 7), Owned(1_000_001, 8))
        assert len(term.env.contradictions.noted) == 2
    said = [one.getMessage() for one in caplog.records if "was the store restored from a copy?" in one.getMessage()]
    assert said == [one for one in said if "s1,1 has region 1000000 with token 7" in one]
    assert len(said) == 1
