"""Ways out for operators: of regions whose procedure they ended as it is, or whose record cannot be used."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from unittest import mock

import pytest

from controller.regions import term as terms
from controller.regions.endings import Left
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import assign, close, move, servers, tables
from controller.regions.procedures.messages import CRASH, MOVE, TABLE_TASK, TRANSIT, Crash, Move, TableTask, Transit
from regent_agent.protocol import Close, Open
from state_machines.procedures.outcome import Wait
from state_machines.procedures.record import Record
from state_machines.regions.states import RegionState, ServerState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    Server,
    at_rest,
    creates,
    done,
    ended,
    known,
    moves,
    one_region,
    procedure,
    regions_of,
    running,
    serving,
    transits,
    until,
    virtual,
)
from tests.simulation.regions.operating import Operator, Refusal
from tests.simulation.regions.planting import put_step

S = RegionState


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


@pytest.mark.parametrize("command", ["assign {}", "unassign {}", "reopen {}", "move {} b"])
def test_a_request_about_a_region_that_a_crash_sees_to_names_no_command_that_is_refused(command: str) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with one_region(disk) as (term, server, region):
            closed = await transits(term, close.NAME, region)
            await server.operation()
            async with serving(other := Server(term, "b")):
                term.manager.expire(term.env.model.servers["a", 1], "a test")
                assert await term.engine.bypass(closed)
                await until(lambda: not region.pid)
                assert (region.state, str(region.server)) == (S.CLOSING, "a,1")
                refused = await Operator(lambda: term).does(f"regions {command.format(region.id)}")
                assert isinstance(refused, Refusal)
                assert "the crash of a,1 is dealt with, and sees to it itself" in refused.text
                assert refused.commands == [f"regions explain {region.id}"]
                await asyncio.sleep(term.env.options.lease_ms / 1000)
                await until(lambda: region.id in other.has)
                await at_rest(term)
                assert (region.state, str(region.server)) == (S.OPEN, "b,1"), "it did see to it"

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


@pytest.mark.parametrize("rotten", [False, True])
@virtual
async def test_a_region_that_is_closing_is_in_doubt_after_a_failover_where_a_record_cannot_be_used(
    rotten: bool,
) -> None:
    """A procedure without a record may have sent it to another server, which is to say so before it goes elsewhere."""
    disk = RegionDisk()
    async with one_region(disk) as (term, server, region):
        await moves(term, region)
        await server.operation()
    if rotten:
        disk.bodies[min(disk.bodies)] = b"rotten"
    async with running(disk) as term:
        [region] = regions_of(term)
        assert (region.state, region.doubtful) == (S.CLOSING, rotten)
        assert term.env.claimants.is_held(region) is rotten


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


@virtual
async def test_what_is_picked_up_leaves_room_for_requests_of_others() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=1))
        [region] = regions_of(term)
        task = assign.NAME, TRANSIT.encode(Transit(region.id, "t", "a test"))
        with mock.patch.object(terms, "picked_up", return_value=task):
            term.env.left.extend(Left(region, pid) for pid in range(10_000, 13_000))
            for _ in range(5):
                term._pick_up()
        assert (term.engine.requests, len(term.env.left)) == (terms.LEFT_TOGETHER, 2_500)
        term.env.left.clear()
