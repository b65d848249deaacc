"""A store that was restored from a copy, where no epoch and no number of a server shows it: lists do."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import pytest

from controller.procedures.writes import BLOCK
from controller.regions import server_lists
from controller.regions.operator.status import of_term
from controller.regions.procedures import tables
from controller.regions.procedures.messages import MOVE, TABLE_TASK, Move, TableTask
from controller.regions.restored import NUMBERS_AHEAD_MAX
from controller.regions.term import RegionsTerm
from regent_agent.protocol import Owned
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import Server, creates, ended, procedure, regions_of, running, serving, until, virtual


def moves(term: RegionsTerm, region: Region, to: str = "", *, reopens: bool = False) -> Any:
    return ended(term, procedure(term, "move", MOVE.encode(Move(region.id, "t", to, "operator", reopens))))


@asynccontextmanager
async def served(disk: RegionDisk, server: Server, regions: int = 1) -> AsyncIterator[RegionsTerm]:
    """Runs the term in which a server serves a new table, until the end of the block."""
    async with running(disk) as term:
        server.term = term
        async with serving(server):
            await ended(term, creates(term, regions=regions))
            yield term


async def comes(server: Server, term: RegionsTerm) -> asyncio.Task[None]:
    """Registers a server that outlived the restore with what it has, and has it serve."""
    server.term = term
    await server.register(*(Owned(id_, token) for id_, token in server.has.items()))
    return asyncio.ensure_future(server.serve())


@virtual
async def test_a_region_that_its_server_has_with_another_token_is_opened_again() -> None:
    disk = RegionDisk()
    server = Server(None, "s1")  # type: ignore[arg-type]
    async with served(disk, server, 2) as term:
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


@virtual
@mock.patch.object(server_lists, "NOTED_MAX", 1)
async def test_beyond_the_regions_that_a_term_notes_no_process_ends_and_all_are_opened_again_above() -> None:
    disk, servers = RegionDisk(), [Server(None, name) for name in ("s1", "s2")]  # type: ignore[arg-type]
    async with running(disk) as term:
        for one in servers:
            one.term = term
        async with serving(*servers):
            await ended(term, creates(term, regions=4))
            for region in regions_of(term):
                await moves(term, region, "s1")
            kept = copy.deepcopy(vars(disk))
            for region in regions_of(term):
                await moves(term, region, "s2")
            seen = {one.id: one.token for one in regions_of(term)}
    vars(disk).update(kept)
    async with running(disk) as term:
        await asyncio.sleep(1.5)
        tasks = [await comes(one, term) for one in reversed(servers)]
        [at_least] = [one for one in of_term(term) if "contradict the store" in one]
        assert "in at least 1 region (" in at_least

        def opened() -> bool:
            return all(one.state is RegionState.OPEN and one.token > seen[one.id] for one in regions_of(term))

        await again_until(opened, term, servers)
        await until(lambda: not list(term.engine.live()))
        assert sorted(term.env.model.servers) == [("s1", 1), ("s2", 1)], "no process crashed"
        held = servers[0].has | servers[1].has
        assert held == {one.id: one.token for one in regions_of(term)}
        assert sum(len(one.has) for one in servers) == 4
        for task in tasks:
            task.cancel()


async def again_until(holds: Callable[[], bool], term: RegionsTerm, servers: list[Server]) -> None:
    """Has servers list their regions each second until something holds."""
    ends_s = asyncio.get_running_loop().time() + 60
    while not holds():
        assert asyncio.get_running_loop().time() < ends_s, "it never holds"
        await asyncio.sleep(1)
        for one in servers:
            server = term.env.model.servers[one.name, one.incarnation]
            await term.manager.comparison.take(server, [Owned(id_, token) for id_, token in one.has.items()])


@pytest.mark.parametrize("ahead", [BLOCK + 500, 5 * BLOCK, NUMBERS_AHEAD_MAX - BLOCK])
def test_a_region_is_opened_again_above_a_token_that_no_number_of_the_store_reaches(ahead: int) -> None:
    """As an agent lists it that names no token as it connects."""

    @virtual
    async def story() -> None:
        disk, server = RegionDisk(), Server(None, "s1")  # type: ignore[arg-type]
        async with served(disk, server) as term:
            [region] = regions_of(term)
            listed = server.has[region.id] = region.token + ahead
        async with running(disk) as term:
            await asyncio.sleep(1.5)
            task = await comes(server, term)
            [region] = regions_of(term)
            await until(lambda: region.state is RegionState.OPEN and region.token > listed)
            await until(lambda: not list(term.engine.live()))
            assert server.has == {region.id: region.token}
            task.cancel()

    story()


@virtual
async def test_a_table_that_is_enabled_is_opened_above_the_tokens_that_servers_have_listed() -> None:
    disk, server = RegionDisk(), Server(None, "s1")  # type: ignore[arg-type]
    async with served(disk, server, 3) as term:
        await ended(term, procedure(term, tables.DISABLE.name, TABLE_TASK.encode(TableTask("t"))))
        listed = {one.id: one.token + 5 * BLOCK for one in regions_of(term)}
        server.has.update(listed)
    async with running(disk) as term:
        await asyncio.sleep(1.5)
        task = await comes(server, term)
        await until(lambda: not server.has)
        await ended(term, procedure(term, tables.ENABLE.name, TABLE_TASK.encode(TableTask("t"))))
        assert server.has == {one.id: one.token for one in regions_of(term)}
        assert all(one.token > listed[one.id] for one in regions_of(term))
        task.cancel()


@virtual
async def test_a_token_farther_ahead_than_a_copy_explains_uses_up_no_numbers() -> None:
    disk, server = RegionDisk(), Server(None, "s1")  # type: ignore[arg-type]
    async with served(disk, server) as term:
        [region] = regions_of(term)
        server.has[region.id] = 2**62
    async with running(disk) as term:
        await asyncio.sleep(1.5)
        task, before = await comes(server, term), term.engine.last_number
        [region] = regions_of(term)
        await until(lambda: region.state is RegionState.OPEN and server.has == {region.id: region.token})
        await until(lambda: not list(term.engine.live()))
        assert term.engine.last_number <= before + BLOCK
        task.cancel()
