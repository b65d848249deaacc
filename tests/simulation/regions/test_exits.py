"""Ways out for operators: of tables that no server can open, and of changes that were ended as they are."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from controller.regions.environment import RegionsEnv
from controller.regions.procedures import assign, close, creation
from controller.regions.procedures.messages import TABLE_TASK
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Result
from state_machines.procedures.outcome import Wait
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Broken,
    Hung,
    Server,
    at_rest,
    changes,
    creates,
    creating,
    done,
    ended,
    known,
    lists,
    moves,
    one_region,
    regions_of,
    running,
    serving,
    transits,
    until,
    virtual,
)
from tests.simulation.regions.planting import Step, put_step

S = RegionState


@pytest.mark.parametrize("kind", ["disable", "delete"])
@pytest.mark.parametrize("made", [Broken, Hung])
def test_a_table_that_no_server_can_open_is_closed_while_it_is_being_created(kind: str, made: type[Broken]) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk) as term, serving(server := made(term, "a")):
            creation = await creating(term, 3)
            await until(lambda: all(one.opening for one in regions_of(term)))
            change = await changes(term, kind)
            if made is Hung:  # the opens that were sent end with the word of their server alone
                await asyncio.sleep(5)
                assert {one.state for one in regions_of(term)} == {S.OPENING}
                results = [Result(one.pid, protocol.FAILED_OPEN) for one in regions_of(term)]
                await server.report(*results)
            await ended(term, known(change))
            assert (await term.engine.result(creation)).state is State.SUCCESS
            if kind == "disable":
                assert disk.tables["t"].state == TableState.DISABLED
                await ended(term, changes(term, "delete"))
            assert (disk.tables, disk.regions) == ({}, {})
            await at_rest(term)

    story()


@pytest.mark.parametrize("kind", ["enable", "disable", "delete"])
@pytest.mark.parametrize("fails_over", [False, True])
def test_a_creation_that_was_ended_as_it_is_goes_on_or_is_taken_back(kind: str, fails_over: bool) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk) as term, serving(Hung(term, "a"), server := Server(term, "b")):
            creation = await creating(term, 4)
            await until(lambda: sum(one.state is S.OPEN for one in regions_of(term)) == 2)
            hung = [one for one in regions_of(term) if one.state is S.OPENING]
            for region in hung:
                assert await term.engine.bypass(region.pid)
            await ended(term, known(creation))
            assert term.env.model.tables["t"].state is TableState.CREATING
            await at_rest(term)
            assert {one.state for one in hung} == {S.CLOSED}, "the server has closed what it was to open"
            if not fails_over:
                await _changed(term, disk, kind)
                assert kind == "enable" or not server.has, "it has closed what it had opened"
        if fails_over:
            async with running(disk) as term:
                await Server(term, "a").register()
                had = lists(one for one in regions_of(term) if one.server is not None)
                await (server := Server(term, "b")).register(*had)
                server.has = {one.region: one.token for one in had}
                polls = [asyncio.ensure_future(one.serve()) for one in (server,)]
                term.env.model.servers["a", 1].leaving = True
                await _changed(term, disk, kind)
                assert kind == "enable" or not server.has
                polls[0].cancel()

    story()


async def _changed(term: RegionsTerm, disk: RegionDisk, kind: str) -> None:
    term.env.model.servers["a", 1].leaving = True  # else the regions go to the server that hangs
    await ended(term, changes(term, kind))
    await at_rest(term)
    if kind == "delete":
        assert (disk.tables, disk.regions) == ({}, {})
        return
    open_ = kind == "enable"
    assert disk.tables["t"].state == (TableState.ENABLED if open_ else TableState.DISABLED)
    assert {one.state for one in regions_of(term)} <= ({S.OPEN} if open_ else {S.OFFLINE, S.CLOSED})


@virtual
async def test_a_bypass_of_one_part_ends_all_opens_of_a_creation() -> None:
    async with running(RegionDisk()) as term, serving(Broken(term, "a")):
        creation = await creating(term, 5)
        await until(lambda: all(one.pid and one.opening for one in regions_of(term)))
        assert await term.engine.bypass(regions_of(term)[2].pid)
        await ended(term, known(creation))
        await at_rest(term)
        assert {one.server for one in regions_of(term)} == {None}


@virtual
async def test_a_disable_ends_assigns_that_retry_whatever_began_them() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        async with serving(Server(term, "b")):
            await ended(term, creates(term, regions=4))
        async with serving(Broken(term, "a")):  # b crashes: its regions are assigned in vain
            first, second, *_ = regions_of(term)
            await until(
                lambda: all(str(one.server or "a,1") == "a,1" and one.opening > one.token for one in (first, second))
            )
            await ended(term, changes(term, "disable"))
            await at_rest(term)
            assert disk.tables["t"].state == TableState.DISABLED
            assert {disk.regions[one.id].state for one in regions_of(term)} <= {S.OFFLINE, S.CLOSED}


@virtual
async def test_an_assign_that_ends_for_a_disable_begins_again_where_that_is_aborted() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(server := Server(term, "b")):
        await ended(term, creates(term, regions=2))
        region, other = regions_of(term)
        await ended(term, transits(term, close.NAME, region))
        async with serving(hung := Hung(term, "a")):
            await moves(term, other, "a")
            await until(lambda: other.state is S.OPENING)
            for one in term.env.model.servers.values():
                one.leaving = True
            waits = await transits(term, assign.NAME, region)
            await until(lambda: waits in term.env.unplaced)
            await asyncio.sleep(OPTIONS.startup_wait_ms / 1000 + 0.5)  # which wakes it, too
            disable = await changes(term, "disable")
            async with asyncio.timeout(1):  # of virtual time: it is woken
                await ended(term, known(waits))
            assert (region.state, region.pid, disk.regions[region.id].state) == (S.OFFLINE, 0, S.OFFLINE)
            assert await term.engine.abort(disable)
            await hung.report(Result(other.pid, protocol.FAILED_OPEN))
            term.env.model.servers["b", 1].leaving = False
            await until(lambda: server.has.get(region.id))
            assert term.env.model.tables["t"].state is TableState.ENABLED


@virtual
async def test_a_change_that_cannot_begin_ends_no_assign() -> None:
    async with one_region(RegionDisk()) as (term, server, region):
        moved = await moves(term, region)
        await server.report(done(await server.operation()))
        opening = await server.operation()
        deletion = await changes(term, "delete")  # it must be disabled first
        await server.report(Result(opening.pid, protocol.FAILED_OPEN))
        await server.report(done(await server.operation()))
        assert (await term.engine.result(deletion)).state is State.ROLLEDBACK
        assert await ended(term, known(moved)) == b"open", "its own assign has opened it"


def test_a_table_whose_creation_ended_before_all_regions_were_stored_is_deleted_and_not_enabled() -> None:
    def some(step: Step) -> Step:
        async def stops(env: RegionsEnv, record: Record) -> object:
            made = TABLE_TASK.decode(record.data).made
            return Wait(0, record.data, durable=False) if made else await step(env, record)

        return stops

    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk) as term, serving(Server(term, "a")):
            term.env.rows_max = 2
            creation = await creating(term, 5)
            assert await term.engine.bypass(creation)
            await ended(term, known(creation))
            assert len(disk.regions) == 2
            refused = await term.engine.result(await changes(term, "enable"))
            assert (refused.state, "delete it" in refused.error) == (State.ROLLEDBACK, True)
            await ended(term, changes(term, "delete"))
            assert disk.regions == {}

    with ExitStack() as stack:
        put_step(stack, creation.CREATE_TABLE, "metadata", some)
        story()
