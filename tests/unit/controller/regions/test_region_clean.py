"""The row of a region tells whether edits of it may wait beside its data, and with which options it was opened."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from regent_agent import protocol
from regent_agent.protocol import Result
from state_machines.regions.references import source_problem
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    changes,
    creates,
    done,
    ended,
    known,
    moves,
    one_region,
    regions_of,
    running,
    serving,
    transits,
    until,
    virtual,
)

S = RegionState


def last(disk: RegionDisk) -> tuple[int, int]:
    """Returns the state of the one region's row, and whether it is clean."""
    [row] = disk.regions.values()
    return row.state, row.clean


@virtual
async def test_what_its_server_has_open_and_says_that_it_has_closed_is_clean_until_it_is_opened_again() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        assert last(disk) == (S.OPEN, 0)
        await ended(term, changes(term, "disable"))
        assert last(disk) == (S.CLOSED, 1)
        assert regions_of(term)[0].clean
        await ended(term, changes(term, "enable"))
        assert last(disk) == (S.OPEN, 0)
        assert not regions_of(term)[0].clean


@virtual
async def test_a_close_that_a_fence_ends_is_not_clean() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
        pid = await transits(term, "close", regions_of(term)[0])
        b = Server(term, "b")
        async with serving(b):  # a is silent: its lease runs out
            await ended(term, known(pid))
        assert last(disk) == (S.CLOSED, 0)
        assert not regions_of(term)[0].clean


@virtual
async def test_a_region_of_a_crashed_server_is_not_clean_where_its_table_is_to_be_closed() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
        disabled = await changes(term, "disable")
        async with serving(Server(term, "b")):
            await ended(term, known(disabled))
        assert last(disk) == (S.CLOSED, 0)


@virtual
async def test_a_close_that_the_next_daemon_carries_on_is_clean_by_the_same_word() -> None:
    disk = RegionDisk()
    async with one_region(disk) as (term, server, region):
        await transits(term, "close", region)
        operation = await server.operation()
    async with running(disk, replace(OPTIONS, lease_ms=100_000)) as term:
        server.term = term
        await server.register(protocol.Owned(region.id, region.token))
        await server.poll()
        await server.report(done(operation))
        await until(lambda: last(disk) == (S.CLOSED, 1))
    async with running(disk) as term:
        assert regions_of(term)[0].clean, "its row says so"


@virtual
async def test_the_close_of_an_open_whose_end_is_not_known_is_not_clean() -> None:
    """Its row does not have the token of that open; the server may have written since."""
    disk = RegionDisk()
    async with one_region(disk) as (term, server, region):
        await moves(term, region)
        await server.report(done(await server.operation()))
        assert isinstance(await server.operation(), protocol.Open)
        [pid] = [one.pid for one in term.engine.live() if one.kind == "assign"]
        assert await term.engine.bypass(pid)
        close = await transits(term, "close", region)
        await server.report(done(await server.operation()))
        await ended(term, known(close))
        assert last(disk) == (S.CLOSED, 0)


@virtual
async def test_a_region_that_no_server_can_open_is_not_clean_any_more() -> None:
    """One of them may have opened it all the same, and written before it was fenced."""
    disk = RegionDisk()
    async with one_region(disk) as (term, server, region):
        close = await transits(term, "close", region)
        await server.report(done(await server.operation()))
        await ended(term, known(close))
        assert last(disk) == (S.CLOSED, 1)
        term.env.options = replace(term.env.options, open_attempts_max=1)
        assign = await transits(term, "assign", region)
        operation = await server.operation()
        await server.report(Result(operation.pid, protocol.FAILED_OPEN, text="no such codec"))
        await ended(term, known(assign))
        assert last(disk) == (S.FAILED_OPEN, 0)
        assert not region.clean


@virtual
@pytest.mark.parametrize("given_up", [True, False])
async def test_a_table_is_not_cloned_over_edits_of_an_open_that_had_no_answer(given_up: bool) -> None:
    """The region was stored as open never. But its server may have had it open, and written, before it was fenced."""
    disk = RegionDisk()
    async with running(disk) as term:
        term.env.options = replace(term.env.options, open_attempts_max=1)
        server = Server(term, "a")
        await server.register()
        pid = await creates(term)
        operation = await server.operation()
        assert isinstance(operation, protocol.Open)
        if given_up:
            await server.report(Result(operation.pid, protocol.FAILED_OPEN, text="no such codec"))
            await ended(term, known(pid))
            pid = await changes(term, "disable")
        else:  # the open goes on while its table is closed: a close follows, which says nothing of an open
            assert await term.engine.bypass(operation.pid)
            pid = await transits(term, "close", regions_of(term)[0])
            await server.report(done(await server.operation()))
        await ended(term, known(pid))
        [region], [row] = regions_of(term), disk.regions.values()
        assert (region.token, row.token, row.clean) == (operation.token, operation.token, 0)
        region.table.state = TableState.DISABLED
        assert "edits may wait" in (source_problem(term.env.model, region.table) or "")


@virtual
async def test_an_open_stores_the_version_of_the_table_that_was_sent_with_it() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        a = Server(term, "a")
        async with serving(a):
            await ended(term, creates(term, regions=2))
            first, second = regions_of(term)
            first.table.version = 3
            await ended(term, moves(term, first))
            assert [(one.version, disk.regions[one.id].version) for one in (first, second)] == [(3, 3), (0, 0)]
            await ended(term, changes(term, "disable"))
            assert disk.tables["t"].version == 3
            assert [disk.regions[one.id].version for one in (first, second)] == [3, 0]


@virtual
async def test_an_open_that_was_on_its_way_when_its_table_changed_has_the_version_before() -> None:
    disk = RegionDisk()
    async with one_region(disk) as (term, server, region):
        moved = await moves(term, region)
        await server.report(done(await server.operation()))
        opening = await server.operation()
        region.table.version = 1
        await server.report(done(opening))
        await ended(term, known(moved))
        assert region.version == disk.regions[region.id].version == 0


@pytest.mark.parametrize("stored", [0, 5])
def test_a_table_is_not_older_than_its_regions_after_a_daemon_that_knows_no_versions(stored: int) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk) as term, serving(Server(term, "a")):
            await ended(term, creates(term))
        [row] = disk.regions.values()
        disk.regions[row.id] = row._replace(version=4)
        disk.tables["t"] = disk.tables["t"]._replace(version=stored)
        async with running(disk) as term:
            assert term.env.model.tables["t"].version == max(stored, 4)

    story()
