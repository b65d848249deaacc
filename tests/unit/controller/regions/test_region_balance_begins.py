"""Regions are balanced by a command or a timer, after a rolling restart, and never while anything is in the way."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from operator import is_
from typing import NamedTuple
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.http.documents import ViewRefused
from controller.regions.balancing import WHY
from controller.regions.child_balancer import NoPlan
from controller.regions.operator.balancer import BalanceRequest
from controller.regions.procedures import balance
from controller.regions.procedures.balance import SWITCH, problem_of
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from state_machines.regions.balancing.checks import Bar
from state_machines.regions.balancing.cluster import Cluster
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.states import ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.balances import LONG, balances, counts, lopsided, planned_by, result
from tests.kit.regions.term import view_of
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


class Shown(NamedTuple):
    """A domain, as a view sees it."""

    term: RegionsTerm


@pytest.mark.seed("S0-17", "S2-54")
@virtual
async def test_what_keeps_a_balance_from_beginning_is_named_with_a_remedy() -> None:
    async with lopsided() as (term, _):
        env, model = term.env, term.env.model
        assert problem_of(env) is None
        region = regions_of(term)[0]
        model.attach(region, 99)
        found = problem_of(env)
        assert found is not None
        assert (found.bar, found.what) == (Bar.TRANSIT, "1 region in transition, or at work")
        assert problem_of(env, force=True) is None
        model.detach(region, 99)
        for bar, word in (
            (Bar.OFF, "switched off by ops"),
            (Bar.RUNNING, "procedure 7 balances"),
            (Bar.SERVERS, "1 server may get regions"),
            (Bar.CRASH, "the crash of c,1"),
            (Bar.UNHEARD, "c,1 have not listed"),
            (Bar.SILENT, "c,1 have not polled for half a lease"),
        ):
            server, stack = model.servers["c", 1], ExitStack()
            if bar is Bar.OFF:
                model.marks.put(Mark(MarkKind.OFF, SWITCH, by="ops"))
            elif bar is Bar.SERVERS:
                for name in ("b", "c"):
                    model.marks.put(Mark(MarkKind.CORDON, name))
            elif bar is Bar.CRASH:
                server.state = ServerState.CRASHED
            elif bar is Bar.UNHEARD:
                server.here = False
            elif bar is Bar.SILENT:
                stack.enter_context(mock.patch.object(env, "is_late", partial(is_, server)))
            found = problem_of(env, 7 if bar is Bar.RUNNING else 0)
            assert found is not None
            assert (found.bar, word in found.what, bool(found.remedy)) == (bar, True, True), found
            model.marks.drop(MarkKind.OFF, SWITCH)
            for name in ("b", "c"):
                model.marks.drop(MarkKind.CORDON, name)
            server.state, server.here = ServerState.ONLINE, True
            stack.close()


@virtual
async def test_a_second_balance_is_refused_beside_the_first() -> None:
    async with lopsided(replace(LONG, balancer_moves_together=1, balancer_spread_ms=30_000)) as (term, _):
        pid = await balances(term)
        await planned_by(term, pid)
        with pytest.raises(Exception, match=f"procedure {pid} balances already"):
            await balances(term)
        assert term.balancing.running() == pid
        found = term.balancing.problem()
        assert found is not None
        assert found.bar is Bar.RUNNING
        await result(term, pid)
        last = term.balancing.last()
        assert last is not None
        assert (last.pid, term.balancing.running()) == (pid, 0)


@pytest.mark.seed("S0-16", "S1-11")
@virtual
async def test_a_balance_begins_by_a_timer_where_regions_are_not_even_and_only_there() -> None:
    async with lopsided(replace(LONG, balancer_period_ms=30_000, balancer_joins_ms=0)) as (term, _):
        begun_s = term.env.clock()
        await until(lambda: counts(term) == {"a": 3, "b": 3, "c": 3})
        assert term.env.clock() - begun_s <= 31
        await at_rest(term)
        await until(lambda: term.env.clock() - begun_s > 59)
        [record] = [one for one in term.engine.records.values() if one.kind == balance.NAME]
        why = "regions are not even: server c,1 has joined"
        assert (record.caller.principal, record.caller.reason) == ("regent", why)


@virtual
async def test_a_balance_begins_once_servers_have_ceased_to_come_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with lopsided(replace(LONG, balancer_period_ms=300_000, balancer_joins_ms=10_000)) as (term, _):
        begun_s = term.env.clock()
        await until(term.balancing.running)
        assert 10 <= term.env.clock() - begun_s <= 16
        await until(lambda: counts(term) == {"a": 3, "b": 3, "c": 3})
    assert (
        "regions are balanced by themselves: a look each 300 s, and once no server has come or gone for 10 s, begins a "
        "balance where a server misses its share by more than 20 %; 'regent balancer off' ends that, and "
        "regions.balancer_period_ms = 0 does for good"
    ) in caplog.messages


@virtual
async def test_a_balance_names_what_has_changed_since_the_look_before_as_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with lopsided() as (term, _):
        whys = list[str]()

        async def looks() -> None:
            assert await term.balancing.look()
            await until(lambda: ends() == len(whys) + 1)
            await at_rest(term)
            last = term.balancing.last()
            assert last is not None
            whys.append(last.caller.reason.removeprefix("regions are not even: "))

        def ends() -> int:
            return sum(one.kind == balance.NAME for one in term.engine.ended())

        async def empties(name: str, to: str) -> None:
            for one in regions_of(term):
                if one.server is not None and one.server.name == name:
                    await ended(term, moves(term, one, to))

        with mock.patch.object(term.env.planner, "make", side_effect=NoPlan("it took too long")):
            assert not await term.balancing.look(), "such a look does not count"
        await looks()
        async with serving(Server(term, "d")):
            await looks()
            marks = term.env.model.marks
            marks.put(Mark(MarkKind.WEIGHT, "d", "6"))
            await looks()
            marks.drop(MarkKind.WEIGHT, "d")
            marks.put(Mark(MarkKind.CORDON, "a"))
            await empties("a", "b")
            await looks()
            marks.drop(MarkKind.CORDON, "a")
            await looks()
            await empties("d", "a")
            await looks()
    first = "server a,1 has joined, server b,1 has joined, server c,1 has joined"
    assert whys == [
        first,
        "server d,1 has joined",
        "the weight of server d is 6",
        "the weight of server d is 1, server a,1 gets no regions any more",
        "server a,1 gets regions again",
        WHY,
    ]
    assert any(f"; its cause: regions are not even: {first}; 'regent balancer plan" in one for one in caplog.messages)


@virtual
async def test_the_status_says_when_the_next_look_comes_or_why_none_comes() -> None:
    async with lopsided(replace(LONG, balancer_period_ms=300_000, balancer_joins_ms=30_000)) as (term, _):
        view = view_of(Shown(term)).balancer
        await asyncio.sleep(6)
        found, env = view.balancer(), term.env
        assert found.next_look is not None
        left_s = found.next_look.timestamp() - env.shown_ms(env.wall_ms()) / 1000
        assert 20 < left_s <= 30
        assert found.next_because == "server c,1 has joined, and the look comes 30 s after the last such change"
        with mock.patch.object(env, "is_late", return_value=True):
            because = view.balancer().next_because
        assert because.endswith(
            "; it begins no balance as long as this holds: servers a,1, b,1, c,1 have not polled for half a lease"
        )
        await until(lambda: counts(term) == {"a": 3, "b": 3, "c": 3})
        await at_rest(term)
        await asyncio.sleep(60)
        found = view.balancer()
        assert found.next_because == "a look comes each 300 s; it begins no balance where regions are as even as now"
        env.model.marks.put(Mark(MarkKind.OFF, SWITCH, by="ops"))
        found = view.balancer()
        assert found.next_look is None
        assert found.next_because == "the balancer is switched off by ops: 'regent balancer on' switches it on"
    async with lopsided() as (term, _):
        found = view_of(Shown(term)).balancer.balancer()
        assert found.next_look is None
        assert found.next_because == "regions.balancer_period_ms is 0, so only 'regent balancer run' balances"


@virtual
async def test_the_status_names_what_has_put_the_next_look_off_at_last() -> None:
    async with lopsided(replace(LONG, balancer_period_ms=300_000, balancer_joins_ms=30_000)) as (term, _):
        view, marks = view_of(Shown(term)).balancer, term.env.model.marks
        await asyncio.sleep(6)
        marks.put(Mark(MarkKind.WEIGHT, "c", "2.5"))
        await asyncio.sleep(6)
        after, joined = "and the look comes 30 s after the last such change", "server c,1 has joined with weight 2.5"
        assert view.balancer().next_because == f"{joined}; at last the weight of server c is 2.5, {after}"
        marks.put(Mark(MarkKind.OFF, SWITCH, by="ops"))
        await asyncio.sleep(31)
        marks.drop(MarkKind.OFF, SWITCH)
        hindered = "the last look began no balance (the balancer is switched off by ops)"
        assert view.balancer().next_because == f"{joined}; at last {hindered}, {after}"
        await until(lambda: counts(term) == {"a": 2, "b": 2, "c": 5})
        await at_rest(term)
        await asyncio.sleep(60)
        assert view.balancer().next_because.startswith("a look comes each 300 s")


@virtual
async def test_a_weight_moves_regions_at_the_next_look_and_back_once_it_ends() -> None:
    async with lopsided(replace(LONG, balancer_period_ms=300_000, balancer_joins_ms=5_000)) as (term, _):
        await until(lambda: counts(term) == {"a": 3, "b": 3, "c": 3})
        await at_rest(term)
        term.env.model.marks.put(Mark(MarkKind.WEIGHT, "c", "2.5"))
        await until(lambda: counts(term) == {"a": 2, "b": 2, "c": 5})
        await at_rest(term)
        term.env.model.marks.drop(MarkKind.WEIGHT, "c")
        await until(lambda: counts(term) == {"a": 3, "b": 3, "c": 3})


@pytest.mark.seed("S0-17")
@virtual
async def test_a_look_begins_nothing_while_anything_is_in_the_way(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with lopsided() as (term, _):
        assert LONG.balancer_period_ms == 0, "no balance begins by itself unless the settings say so"
        region, other = regions_of(term)[:2]
        term.env.model.attach(region, 99)
        assert not await term.balancing.look()
        term.env.model.attach(other, 99)
        assert not await term.balancing.look()
        term.env.model.detach(other, 99)
        assert term.balancing.counters.balance_refusals == {"transit": 1}
        told = [one for one in caplog.messages if "not balanced by themselves for now" in one]
        assert told == ["regions are not balanced by themselves for now: 1 region in transition, or at work"], "once"
        term.env.model.detach(region, 99)
        assert await term.balancing.look()
        await until(lambda: counts(term)["c"] == 3)
        await at_rest(term)
        assert not await term.balancing.look(), "what is even is left alone"
        view = view_of(Shown(term)).balancer
        planner = term.env.planner
        with (
            mock.patch.object(planner, "make", side_effect=NoPlan("it took too long")),
            mock.patch.object(planner, "is_even", return_value=False),
        ):
            assert not await term.balancing.look()
            with pytest.raises(ViewRefused, match="no plan could be made: it took too long"):
                await view.run(BalanceRequest(dry_run=True), "ops")
        assert "no plan of a balance could be made: it took too long; the next look tries again" in caplog.messages
        assert "regions are balanced again" in caplog.messages


@virtual
async def test_a_dry_run_is_refused_while_another_plan_is_made_and_a_balance_waits_for_it() -> None:
    async with lopsided() as (term, _):
        view, planner, goes_on = view_of(Shown(term)).balancer, term.env.planner, asyncio.Event()
        real, began = planner.snapshot, list[int]()

        async def slow() -> Cluster:
            began.append(len(began))
            await goes_on.wait()
            return await real()

        with mock.patch.object(planner, "snapshot", side_effect=slow):
            first = asyncio.ensure_future(view.run(BalanceRequest(dry_run=True), "ops"))
            await until(lambda: began)
            with pytest.raises(ViewRefused, match="another plan is being made"):
                await view.run(BalanceRequest(dry_run=True), "ops")
            pid = await balances(term)
            await until(lambda: planner.has_begun(pid))
            assert began == [0], "plans that are made at a time"
            goes_on.set()
            assert "3 of 9 regions would move" in (await first).detail
            await result(term, pid)
        assert counts(term) == {"a": 3, "b": 3, "c": 3}


class Stopping(Server):
    """A server that asks to leave, and goes on serving until it has nothing left."""

    async def leaves(self) -> None:
        while True:
            found = await self.ask(protocol.Leave(self.name, self.incarnation, self.epoch))
            if isinstance(found, protocol.Left) and not found.regions:
                return
            await asyncio.sleep(0.05)


@pytest.mark.seed("S1-11")
@virtual
async def test_after_a_rolling_restart_of_four_servers_and_with_a_fifth_one_regions_are_even() -> None:
    names = ["a", "b", "c", "d"]
    async with running(RegionDisk(), LONG) as term, AsyncExitStack() as last:
        async with AsyncExitStack() as first:
            here = {name: Stopping(term, name) for name in names}
            before = {name: await first.enter_async_context(AsyncExitStack()) for name in names}
            for name, one in here.items():
                await before[name].enter_async_context(serving(one))
            await ended(term, creates(term, regions=40))
            assert set(counts(term).values()) == {10}
            for name in names:
                await here[name].leaves()
                await before[name].aclose()
                await last.enter_async_context(serving(Server(term, name, 2)))
        await at_rest(term)
        found = counts(term)
        assert (found.total(), found["d"], max(found.values()) > 12) == (40, 0, True), "the last one has none"
        await result(term, await balances(term))
        assert counts(term) == dict.fromkeys(names, 10)
        await last.enter_async_context(serving(Server(term, "e")))
        await result(term, await balances(term))
        assert counts(term) == dict.fromkeys([*names, "e"], 8)
        await at_rest(term)
