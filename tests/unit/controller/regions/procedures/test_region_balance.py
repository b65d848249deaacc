"""A balance stores its plan before it sends anything, moves regions in waves, and judges each move again."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from controller.regions.planner import Made
from controller.regions.procedures.balance import SWITCH
from controller.regions.procedures.balance_plan import (
    BALANCE_TASK,
    PLAN_BYTES_MAX,
    BalanceTask,
    planned,
)
from state_machines.procedures.states import State
from state_machines.regions.balancing.checks import Skip
from state_machines.regions.balancing.cluster import MOVES_MAX, BalancePlan, Cost, Move
from state_machines.regions.marks import Mark, MarkKind
from testing.memory.region_store import RegionDisk
from tests.kit.regions.balances import LONG, balances, counts, lopsided, pin, planned_by, result, task_of
from tests.kit.regions.world import (
    Server,
    at_rest,
    creates,
    ended,
    moves,
    regions_of,
    running,
    serving,
    until,
    virtual,
)


@pytest.mark.seed("S1-11", "S1-32", "S1-54")
@virtual
async def test_a_balance_gives_a_new_server_its_share_by_moves_that_are_procedures() -> None:
    async with lopsided() as (term, servers):
        await ended(term, creates(term, "u", regions=6))
        begun = await balances(term)
        record = await result(term, begun)
        assert record.state is State.SUCCESS
        together = Counter(one.server.name for one in term.env.model.regions.values() if one.server is not None)
        assert together == {"a": 5, "b": 5, "c": 5}
        children = [one for one in term.engine.records.values() if one.parent == begun]
        assert not children, "their records are gone with their end"
        assert task_of(term, begun).begun == len(task_of(term, begun).moves)
        assert {len(one.has) for one in servers} == {5}
        await at_rest(term)


@virtual
async def test_what_is_even_is_left_alone() -> None:
    async with lopsided() as (term, _):
        await result(term, await balances(term))
        assert counts(term) == {"a": 3, "b": 3, "c": 3}
        assert await ended(term, balances(term)) == b"nothing to move: 9 regions at 3 servers"


@pytest.mark.seed("S0-6", "S0-19", "S0-20")
@virtual
async def test_the_plan_is_stored_before_the_first_request_and_goes_on_after_a_failover() -> None:
    disk = RegionDisk()
    async with lopsided(disk=disk) as (term, servers):
        durable: list[int] = []
        pid = await balances(term)
        assert not task_of(term, pid).moves
        term.env.dispatcher.send = lambda *_: durable.append(len(task_of(term, pid).moves))  # type: ignore[method-assign]
        await until(lambda: durable)
        assert set(durable) == {3}, "moves that were stored as something was sent"
        plan = task_of(term, pid)
        assert (plan.left, plan.regions, plan.servers) == (0, 9, 3)
        held = {one.name: one.has for one in servers}
    async with running(disk, LONG) as term, AsyncExitStack() as stack:
        again = [Server(term, name) for name in held]
        for one in again:
            one.has = held[one.name]
        await stack.enter_async_context(serving(*again))
        record = await result(term, pid)
        assert (record.state, record.result) == (State.SUCCESS, b"3 of 3 regions moved")
        assert counts(term) == {"a": 3, "b": 3, "c": 3}
        assert [replace(one, skip="") for one in task_of(term, pid).moves] == list(plan.moves)


@virtual
async def test_moves_come_in_waves() -> None:
    async with lopsided(replace(LONG, balancer_moves_together=2)) as (term, _):
        pid = await balances(term)
        most = 0

        async def watch() -> None:
            nonlocal most
            while not term.engine.records[pid].state.is_final:
                most = max(most, sum(one.parent == pid for one in term.engine.live()))
                await asyncio.sleep(0.001)

        await planned_by(term, pid)
        await watch()
        assert most == 2
        assert counts(term) == {"a": 3, "b": 3, "c": 3}


@virtual
async def test_waves_are_spread_over_the_time_of_the_settings() -> None:
    options = replace(LONG, balancer_moves_together=1, balancer_spread_ms=30_000)
    async with lopsided(options) as (term, _):
        begun_s = term.env.clock()
        assert await ended(term, balances(term)) == b"3 of 3 regions moved"
        assert 20 <= term.env.clock() - begun_s < 40


@virtual
async def test_a_move_that_is_of_no_use_any_more_is_left_out_with_its_cause() -> None:
    async with lopsided(replace(LONG, balancer_moves_together=1, balancer_spread_ms=30_000)) as (term, _):
        pid = await balances(term)
        plan = await planned_by(term, pid)
        await until(lambda: task_of(term, pid).begun == 1)
        model = term.env.model
        pin(term, model.regions[plan.moves[1].region])
        await ended(term, moves(term, model.regions[plan.moves[2].region], "c"))
        record = await result(term, pid)
        assert [one.skip for one in task_of(term, pid).moves] == ["", Skip.PINNED, Skip.ELSEWHERE]
        assert record.result == (
            b"1 of 3 regions moved; 1 left out: the region is not where the plan found it; "
            b"1 left out: the region is pinned"
        )
        assert term.balancing.counters.balance_moves_left_out == {"pinned": 1, "elsewhere": 1}
        assert (term.balancing.counters.balance_moves, term.balancing.counters.balances) == (1, 1)


@virtual
async def test_no_move_goes_to_a_server_that_was_cordoned_or_drained_meanwhile() -> None:
    async with lopsided(replace(LONG, balancer_moves_together=1, balancer_spread_ms=30_000)) as (term, _):
        pid = await balances(term)
        await until(lambda: task_of(term, pid).begun == 1)
        term.env.model.marks.put(Mark(MarkKind.CORDON, "c"))
        await result(term, pid)
        assert [one.skip for one in task_of(term, pid).moves] == ["", Skip.TARGET, Skip.TARGET]


@virtual
async def test_pinned_and_resting_regions_are_in_no_plan_and_cordoned_servers_keep_theirs() -> None:
    async with lopsided(replace(LONG, move_cooldown_ms=600_000)) as (term, _):
        mine = [one for one in regions_of(term) if one.server is not None and one.server.name == "a"]
        for one in mine:
            pin(term, one)
        others = [one for one in regions_of(term) if one not in mine]
        term.env.cooldown.moved(others[0].id, term.env.now_ms())
        plan = await planned_by(term, await balances(term))
        assert {one.region for one in plan.moves} <= {one.id for one in others[1:]}
        assert plan.moves
        await at_rest(term)
        term.env.model.marks.put(Mark(MarkKind.CORDON, "a"))
        assert (await term.env.planner.make()).servers == 2


@virtual
async def test_a_switched_off_balancer_ends_its_balance_before_the_next_wave() -> None:
    async with lopsided(replace(LONG, balancer_moves_together=1, balancer_spread_ms=30_000)) as (term, _):
        pid = await balances(term)
        await until(lambda: task_of(term, pid).begun == 1)
        term.env.model.marks.put(Mark(MarkKind.OFF, SWITCH))
        record = await result(term, pid)
        assert record.result == b"1 of 3 regions moved; 2 not begun: the balancer was switched off"
        refused = await result(term, await balances(term))
        assert (refused.state, "'regent balancer on'" in refused.error) == (State.ROLLEDBACK, True)


@virtual
async def test_an_abort_ends_it_between_waves_and_what_has_moved_stays() -> None:
    async with lopsided(replace(LONG, balancer_moves_together=1, balancer_spread_ms=30_000)) as (term, _):
        pid = await balances(term)
        await until(lambda: task_of(term, pid).begun == 1)
        assert await term.engine.abort(pid)
        assert (await result(term, pid)).state is State.ROLLEDBACK
        await at_rest(term)
        assert counts(term)["c"] == 1


def test_a_plan_is_stored_as_far_as_it_may_be_large() -> None:
    def of(count: int, chars: int, zero: str = "0") -> BalancePlan:
        cost = Cost("regions", 1.0, 0.5)
        names = [f"{one:{zero}>{chars}}" for one in range(count)]
        found = [Move(at, f"s{one}", f"t{one}", "uneven") for at, one in enumerate(names)]
        return BalancePlan(tuple(found), (cost,), (replace(cost, value=0.0),))

    many = planned(BalanceTask(), Made(of(MOVES_MAX + 5, 4), 9, 3))
    assert (len(many.moves), many.left, many.before, many.after) == (MOVES_MAX, 5, 0.5, 0.0)
    long = planned(BalanceTask(), Made(of(1_000, 200), 9, 3))
    assert 0 < len(long.moves) < 1_000
    assert len(long.moves) + long.left == 1_000
    assert len(BALANCE_TASK.encode(long)) <= PLAN_BYTES_MAX
    for zero in "é", "零":
        assert len(BALANCE_TASK.encode(planned(BalanceTask(), Made(of(1_000, 200, zero), 9, 3)))) <= PLAN_BYTES_MAX
    cut_off = planned(BalanceTask(), Made(replace(of(9, 4), left=7), 16, 3))
    assert (len(cut_off.moves), cut_off.left) == (9, 7)
    skipped = replace(many, moves=tuple(replace(one, skip=Skip.ELSEWHERE.value) for one in many.moves))
    assert len(BALANCE_TASK.encode(skipped)) <= PLAN_BYTES_MAX


@virtual
async def test_a_balancer_that_fails_ends_the_balance_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with lopsided() as (term, _):

        class Faulty:
            def plan(self, *_: object) -> BalancePlan:
                raise ZeroDivisionError("a fault")

        good, term.env.planner._balancer = term.env.planner._balancer, Faulty()
        record = await result(term, await balances(term))
        assert record.state is State.ROLLEDBACK
        assert "no plan could be made: ZeroDivisionError: a fault" in record.error
        term.env.planner._balancer = good
        assert await ended(term, balances(term)) == b"3 of 3 regions moved"
        assert "moves 3 of 9 regions between 3 servers, 20 at a time (cost 0.500, then 0.000)" in caplog.text


async def test_a_stochastic_balance_has_a_child_plan_it() -> None:
    """The clock is the real one: a child takes its time."""
    async with lopsided(replace(LONG, balancer="stochastic")) as (term, _):
        pid = await balances(term)
        record = await result(term, pid)
        assert record.result == b"3 of 3 regions moved"
        assert set(counts(term).values()) == {3}
        assert task_of(term, pid).whys == ("its server has more regions than its share",)


async def test_a_stochastic_balance_without_a_plan_in_time_fails_and_moves_nothing() -> None:
    async with lopsided(replace(LONG, balancer="stochastic", balancer_timeout_ms=1)) as (term, _):
        record = await result(term, await balances(term))
        assert record.state is State.ROLLEDBACK
        assert "within 0.001 s, and its process was killed: raise regions.balancer_timeout_ms" in record.error
        assert set(counts(term).values()) == {4, 5}
