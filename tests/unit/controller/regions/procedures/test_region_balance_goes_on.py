"""A balance goes on after a failover as the daemon before would have; a fault of a balancer ends nothing else."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from itertools import pairwise
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.regions.planner import Made
from controller.regions.procedures import balance
from controller.regions.procedures.balance import SWITCH
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask, PlannedMove
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from state_machines.regions.balancing.checks import Skip
from state_machines.regions.balancing.cluster import BalancePlan
from state_machines.regions.balancing.simple import Simple
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.balances import LONG, balances, counts, lopsided, result, task_of
from tests.kit.regions.world import (
    Broken,
    Server,
    at_rest,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

SLOW = replace(LONG, balancer_moves_together=1, balancer_spread_ms=30_000)


@pytest.mark.seed("S0-20")
@virtual
async def test_no_move_is_left_out_because_servers_have_not_come_to_a_new_daemon_yet() -> None:
    disk = RegionDisk()
    async with lopsided(SLOW, disk) as (term, servers):
        pid = await balances(term)
        await until(lambda: counts(term)["c"] == 1 and not term.env.model.transit)
        held = {one.name: one.has for one in servers}
    async with running(disk, SLOW) as term, AsyncExitStack() as stack:
        again = [Server(term, name) for name in held]
        for one in again:
            one.has = held[one.name]
        await stack.enter_async_context(serving(*again[:2]))
        begun_s = term.env.clock()
        await until(lambda: term.env.clock() > begun_s + 40)
        assert task_of(term, pid).begun == 1, "judged before c has come"
        await stack.enter_async_context(serving(again[2]))
        record = await result(term, pid)
        assert (record.state, record.result) == (State.SUCCESS, b"3 of 3 regions moved")
        assert counts(term) == {"a": 3, "b": 3, "c": 3}


@virtual
async def test_servers_are_looked_at_once_for_all_moves_of_a_wave_that_are_left_out() -> None:
    async with lopsided(SLOW) as (term, _):
        pid = await balances(term)
        await until(lambda: counts(term)["c"] == 1 and not term.env.model.transit)
        term.env.model.marks.put(Mark(MarkKind.CORDON, "c"))
        for one in task_of(term, pid).moves:
            term.env.model.sources[one.region] = ()
        with mock.patch.object(term.env, "able", wraps=term.env.able) as able:
            await result(term, pid)
        assert [one.skip for one in task_of(term, pid).moves] == ["", Skip.TARGET, Skip.TARGET]
        assert able.call_count == 1


@virtual
async def test_a_region_that_another_server_may_have_is_not_closed_for_a_balance() -> None:
    async with lopsided(SLOW) as (term, _):
        pid = await balances(term)
        await until(lambda: counts(term)["c"] == 1 and not term.env.model.transit)
        region = term.env.model.regions[task_of(term, pid).moves[1].region]
        term.env.claimants.listed(("b", 1), {region.id})
        await until(lambda: task_of(term, pid).begun == 3)
        assert region.state is RegionState.OPEN
        assert task_of(term, pid).moves[1].skip == Skip.CLAIMED
        term.env.claimants.listed(("b", 1), ())
        record = await result(term, pid)
        assert record.result == b"2 of 3 regions moved; 1 left out: another server may have the region"


@virtual
async def test_a_fault_of_a_balancer_ends_a_look_and_not_the_term(caplog: pytest.LogCaptureFixture) -> None:
    async with lopsided(replace(LONG, balancer_period_ms=30_000)) as (term, _):

        class Faulty:
            looks = 0

            def plan(self, *_: object) -> BalancePlan:
                self.looks += 1
                raise ZeroDivisionError("a fault")

        faulty = Faulty()
        good, term.env.planner._balancer = term.env.planner._balancer, faulty
        await until(lambda: faulty.looks)
        assert "could be made: ZeroDivisionError: a fault; the next look tries again" in caplog.text
        term.env.planner._balancer = good
        await until(lambda: counts(term) == {"a": 3, "b": 3, "c": 3})


@virtual
async def test_a_server_that_opens_nothing_is_tried_by_some_moves_and_left_alone_by_the_others() -> None:
    options = replace(LONG, balancer_moves_together=1)
    async with lopsided(options, third=Broken) as (term, _):
        with mock.patch.object(balance, "TRIED_MAX", 1):
            pid = await balances(term)
            record = await result(term, pid)
        assert [one.skip for one in task_of(term, pid).moves] == ["", Skip.FAILS, Skip.FAILS]
        assert record.result == (
            b"0 of 3 regions moved; 2 left out: its new server got none of the regions that were moved to it before"
        )
        assert counts(term) == {"a": 5, "b": 4}


@virtual
async def test_balances_that_move_nothing_begin_less_and_less_often() -> None:
    options = replace(LONG, balancer_period_ms=6_000, balancer_joins_ms=0)
    async with lopsided(options, third=Broken) as (term, _):
        begun_s = list[float]()
        for _ in range(4):
            await until(term.balancing.running)
            begun_s.append(term.env.clock())
            await until(lambda: not term.balancing.running())
        waits = [after - before for before, after in pairwise(begun_s)]
        assert waits == sorted(waits)
        assert waits[-1] > 3 * waits[0], waits


@virtual
async def test_a_look_beside_a_balance_says_and_counts_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent.regions")
    async with lopsided(SLOW) as (term, _):
        await balances(term)
        await until(term.balancing.running)
        assert not await term.balancing.look()
        assert not term.balancing.counters.balance_refusals
        assert "not balanced by themselves" not in caplog.text


@virtual
async def test_the_plan_of_a_look_is_that_of_its_balance() -> None:
    async with lopsided() as (term, _):
        with mock.patch.object(term.env.planner, "make", wraps=term.env.planner.make) as make:
            assert await term.balancing.look()
            await until(lambda: counts(term)["c"] == 3)
        assert make.call_count == 1
        await at_rest(term)
        with mock.patch.object(term.env.planner, "make") as make:
            assert not await term.balancing.look(), "what is even by its numbers needs no plan"
        assert not make.called


@virtual
async def test_the_plan_of_a_look_whose_balance_failed_is_that_of_no_other_balance() -> None:
    async with lopsided() as (term, _):
        assert await term.balancing.look()
        term.env.model.marks.put(Mark(MarkKind.OFF, SWITCH))
        await until(term.balancing.last)
        term.env.model.marks.drop(MarkKind.OFF, SWITCH)
        async with serving(Server(term, "d")):
            await result(term, await balances(term))
            assert counts(term)["d"] == 2
            await at_rest(term)


@virtual
async def test_what_comes_in_the_way_while_a_look_plans_is_looked_at_again_soon() -> None:
    async with lopsided(replace(LONG, balancer_period_ms=300_000, balancer_joins_ms=5_000)) as (term, _):
        planner, region, made_s = term.env.planner, regions_of(term)[0], list[float]()
        make = planner.make

        async def hindered() -> Made:
            made = await make()
            if not made_s:
                term.env.model.attach(region, 99)
            made_s.append(term.env.clock())
            return made

        with mock.patch.object(planner, "make", side_effect=hindered):
            await until(lambda: made_s)
            await asyncio.sleep(1)
            assert not term.balancing.running()
            term.env.model.detach(region, 99)
            await until(lambda: counts(term) == {"a": 3, "b": 3, "c": 3})
        assert made_s[1] - made_s[0] <= 11
        await at_rest(term)


@virtual
async def test_the_end_of_a_balance_whose_record_is_damaged_ends_nothing_else() -> None:
    async with lopsided() as (term, _):
        record = await result(term, await balances(term))
        move = PlannedMove(regions_of(term)[0].id, 0, 1, 0)
        whole = BALANCE_TASK.encode(BalanceTask(names=("a", "b"), whys=("w",), moves=(move,), begun=1))
        damaged = whole.replace(BALANCE_TASK.encode(("a", "b")), BALANCE_TASK.encode(("a",)))
        with pytest.raises(ValueError, match="names no server or no cause of the plan"):
            BALANCE_TASK.decode(damaged)
        running_ = replace(record, state=State.RUNNABLE, data=whole)
        term.balancing.changed([Transition(running_, replace(record, data=damaged, bypassed=True))])


@virtual
async def test_the_next_balance_makes_the_moves_that_did_not_fit_into_a_plan_also_within_the_slop() -> None:
    async with lopsided(replace(LONG, balancer_period_ms=20_000, balancer_joins_ms=5_000)) as (term, _):
        term.env.planner._balancer = Simple(moves_max=2, slop=0.2)
        await until(lambda: counts(term)["c"] == 2)
        assert not term.env.planner.is_uneven()
        await until(lambda: counts(term) == {"a": 3, "b": 3, "c": 3})
        await at_rest(term)
        assert not await term.balancing.look()
