"""Ways out for operators: of tables that no server can open, and of regions whose procedure they ended as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack, asynccontextmanager

import pytest
from msgspec.structs import replace

from controller.regions.environment import RegionsEnv
from controller.regions.kinds import assign, close, move, servers, tables
from controller.regions.kinds.messages import CRASH, MOVE, TABLE_TASK, TRANSIT, Crash, Move, TableTask, Transit
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Close, Open, Operation, Result
from state_machines.procedures.outcome import Wait
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.model import Region
from state_machines.regions.states import RegionState, ServerState, TableState
from testing.memory.region_store import RegionDisk
from tests.region_simulation.kit import (
    OPTIONS,
    Server,
    creates,
    done,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.region_simulation.planting import Step, put_step

S = RegionState


class Broken(Server):
    """A server that opens nothing; ``hangs``: it does not even say so. It closes what it is to close."""

    hangs = False
    opened_s = 0.0

    async def serve(self) -> None:
        while True:
            operations = await self.poll()
            mine = [one for one in operations if not (self.hangs and isinstance(one, Open))]
            if mine:
                await self.report(*map(self.do, mine))

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, Open):
            return Result(operation.pid, protocol.FAILED_OPEN, text="no such codec")
        return super().do(operation)


class Hung(Broken):
    """A server whose opens never end."""

    hangs = True


def changes(term: RegionsTerm, kind: str) -> Awaitable[int]:
    return procedure(term, f"{kind}_table", TABLE_TASK.encode(TableTask("t")))


def transits(term: RegionsTerm, kind: str, region: Region) -> Awaitable[int]:
    return procedure(term, kind, TRANSIT.encode(Transit(region.id, "t")))


def moves(term: RegionsTerm, region: Region, to: str = "") -> Awaitable[int]:
    return procedure(term, move.NAME, MOVE.encode(Move(region.id, "t", to)))


async def creating(term: RegionsTerm, regions: int) -> int:
    """Begins the creation of a table; returns its pid once the table is there."""
    pid = await creates(term, regions=regions)
    await until(lambda: "t" in term.env.model.tables)
    return pid


async def known(pid: int) -> int:
    return pid


async def at_rest(term: RegionsTerm) -> None:
    """Waits until no procedure goes on; then nothing is locked, attached or in transition."""
    await until(lambda: not list(term.engine.live()) and not term.env.left)
    assert (term.engine.locks(), term.env.model.transit) == ([], {})
    assert not [one for one in term.env.model.servers.values() if one.expected]


# -- tables


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
        async with running(disk) as term, serving(Hung(term, "a"), Server(term, "b")):
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
        if fails_over:
            async with running(disk) as term:
                await Server(term, "a").register()
                had = lists(one for one in regions_of(term) if one.server is not None)
                await (server := Server(term, "b")).register(*had)
                server.has = {one.region: one.token for one in had}
                polls = [asyncio.ensure_future(one.serve()) for one in (server,)]
                term.env.model.servers["a", 1].leaving = True
                await _changed(term, disk, kind)
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
            disable = await changes(term, "disable")
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
        await moves(term, region)
        await server.report(done(await server.operation()))
        opening = await server.operation()
        deletion = await changes(term, "delete")  # it must be disabled first
        await server.report(Result(opening.pid, protocol.FAILED_OPEN))
        await server.report(done(await server.operation()))
        assert (await term.engine.result(deletion)).state is State.ROLLEDBACK
        assert region.state is S.OPEN


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
        put_step(stack, tables.CREATE, "metadata", some)
        story()


# -- regions whose procedure was ended as it is


@asynccontextmanager
async def one_region(disk: RegionDisk) -> AsyncIterator[tuple[RegionsTerm, Server, Region]]:
    """Runs a term with a region that server a has opened; the test sends what a says from now on."""
    async with running(disk, replace(OPTIONS, lease_ms=100_000)) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term))
        yield term, server, regions_of(term)[0]


@virtual
async def test_a_bypassed_open_is_closed_where_it_may_be_open_and_then_given_up() -> None:
    disk = RegionDisk()
    async with one_region(disk) as (term, server, region):
        moved = await moves(term, region)
        await server.report(done(await server.operation()))
        opening = await server.operation()
        assert isinstance(opening, Open)
        async with serving(other := Server(term, "b")):
            assert await term.engine.bypass(opening.pid)
            await ended(term, known(moved))
            closing = await server.operation()
            assert closing == Close(closing.pid, region.id, opening.token), "it may have opened it by now"
            await asyncio.sleep(5)
            assert (region.state, str(region.server), other.has) == (S.CLOSING, "a,1", {})
            await server.report(done(closing))
            await at_rest(term)
            assert (region.state, disk.regions[region.id].state) == (S.CLOSED, S.CLOSED)
            assert term.env.model.servers["a", 1].state is ServerState.ONLINE
            await ended(term, procedure(term, assign.NAME, TRANSIT.encode(Transit(region.id, "t", to="b"))))
            assert other.has[region.id] > opening.token


@virtual
async def test_a_bypassed_close_is_repeated_and_the_region_of_an_enabled_table_opened() -> None:
    async with one_region(RegionDisk()) as (term, server, region):
        closed = await transits(term, close.NAME, region)
        first = await server.operation()
        assert await term.engine.bypass(closed)
        again = await server.operation()
        assert again == Close(again.pid, region.id, region.token)
        assert again.pid != first.pid
        async with serving(other := Server(term, "b")):
            await server.report(done(again))
            await until(lambda: other.has)
            await at_rest(term)
            assert region.state is S.OPEN


@pytest.mark.parametrize("step", ["close", "between", "open"])
def test_a_bypassed_move_leaves_no_region_that_nobody_has_and_nobody_sees(step: str) -> None:
    async def waits(_env: RegionsEnv, record: Record) -> Wait:
        return Wait(0, record.data, durable=False)

    @virtual
    async def story() -> None:
        async with one_region(RegionDisk()) as (term, server, region):
            moved = await moves(term, region)
            closing = await server.operation()
            if step == "close":
                assert await term.engine.bypass(closing.pid)
                await server.report(done(await server.operation()))
            elif step == "between":  # the move itself, once its close has ended
                await server.report(done(closing))
                await until(lambda: region.state is S.OFFLINE)
                assert await term.engine.bypass(moved)
                await ended(term, known(moved))
            else:
                await server.report(done(closing))
                opening = await server.operation()
                assert await term.engine.bypass(opening.pid)
                await server.report(done(await server.operation()))
            if step != "open":
                opened = await server.operation()
                assert isinstance(opened, Open)
                await server.report(done(opened))
            await at_rest(term)
            assert region.state is (S.CLOSED if step == "open" else S.OPEN)

    with ExitStack() as stack:
        if step == "between":
            put_step(stack, move.MOVE_REGION, "open", lambda _: waits)
        story()


@pytest.mark.parametrize("ends", ["disable", "drain"])
def test_a_region_that_a_bypass_left_does_not_hold_up_a_disable_or_a_drain(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @virtual
    async def story() -> None:
        async with one_region(RegionDisk()) as (term, server, region):
            await moves(term, region)
            await server.report(done(await server.operation()))
            opening = await server.operation()
            monkeypatch.setattr("controller.regions.term.picked_up", lambda *_: None)
            assert await term.engine.bypass(opening.pid)
            await until(lambda: not list(term.engine.live()))
            assert (region.state, region.pid) == (S.OPENING, 0), "nothing has picked it up"
            async with serving(Server(term, "b")):
                data = TABLE_TASK.encode(TableTask("t")) if ends == "disable" else CRASH.encode(Crash("a", 1))
                pid = await procedure(term, tables.DISABLE.name if ends == "disable" else servers.DRAIN, data)
                polls = asyncio.ensure_future(server.serve())
                await ended(term, known(pid))
                assert str(region.server) == ("None" if ends == "disable" else "b,1")
                polls.cancel()

    story()


@virtual
async def test_regions_that_a_failover_finds_in_transition_are_closed_where_their_table_is_disabled() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
    del disk.servers["a", 1]
    disk.tables["t"] = disk.tables["t"]._replace(state=TableState.DISABLED)
    async with running(disk) as term:
        [region] = regions_of(term)
        await until(lambda: region.state is S.CLOSED)
        await at_rest(term)


@pytest.mark.parametrize("kind", ["move", "reopen"])
def test_a_failover_opens_the_region_that_a_move_has_closed_whose_record_cannot_be_used(kind: str) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with one_region(disk) as (term, server, region):
            data = MOVE.encode(Move(region.id, "t", reopens=kind == "reopen"))
            await procedure(term, move.NAME, data)
            await server.report(done(await server.operation()))
            await server.operation()
        for pid in disk.bodies:
            disk.bodies[pid] = b"rotten"
        async with running(disk) as term, serving(server := Server(term, "a")):
            assert term.engine.unusable
            [region] = regions_of(term)
            await until(lambda: region.state is S.OPEN)
            await at_rest(term)

    story()


def test_a_move_between_its_parts_goes_on_after_a_failover_and_nothing_else_picks_its_region_up() -> None:
    async def waits(_env: RegionsEnv, record: Record) -> Wait:
        return Wait(0, record.data, durable=False)

    @virtual
    async def story() -> None:
        disk = RegionDisk()
        with ExitStack() as stack:
            put_step(stack, move.MOVE_REGION, "open", lambda _: waits)
            async with one_region(disk) as (term, server, region):
                moved = await moves(term, region)
                await server.report(done(await server.operation()))
                await until(lambda: region.state is S.OFFLINE)
        async with running(disk) as term, serving(Server(term, "a")):
            [region] = regions_of(term)
            assert region.pid == moved
            await until(lambda: region.state is S.OPEN)
            await at_rest(term)
            assert [one.kind for one in term.engine.records.values() if one.submitted_ms > 0][-1] == move.NAME

    story()
