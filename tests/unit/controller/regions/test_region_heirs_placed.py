"""Heirs go to servers that know what they refer to, and stay where they are while no other server does."""

from __future__ import annotations

import asyncio

from controller.regions.in_transition import wait_of
from controller.regions.operator.explain import explained
from controller.regions.operator.progress import progress_of
from controller.regions.operator.region_changes import region_problem
from controller.regions.procedures import servers
from controller.regions.procedures.messages import CRASH, Crash
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import one_inheriting, splits
from tests.kit.regions.world import Server, ended, procedure, regions_of, serving, transits, until, virtual

S = RegionState


@virtual
async def test_a_drain_leaves_heirs_open_that_no_other_server_could_open() -> None:
    async with one_inheriting(RegionDisk(), 2) as (term, server, (parent, beside)), serving(server):
        await ended(term, splits(term, parent, b"1"))
        first, second, _ = regions_of(term)
        async with serving(former := Server(term, "b")):
            assert region_problem(term.env, first, "move", "b", force=True) == (
                f'server b,1 lacks the feature "inherit": {first} needs it until its data is its own: name another '
                "server, or wait until then"
            )
            pid = await procedure(term, servers.DRAIN, CRASH.encode(Crash("a", 1, force=True)))
            await until(lambda: str(beside.server) == "b,1" and beside.state is S.OPEN)
            await asyncio.sleep(60)
            assert [(one.state, str(one.server)) for one in (first, second)] == [(S.OPEN, "a,1")] * 2
            assert progress_of(term.engine.records[pid], term.env, term.engine).startswith(
                '2 regions left, online, no server that may get regions has the feature "inherit", and the data of 2 of'
            )
            await server.independent(first, second)
            await ended(term, asyncio.sleep(0, pid))
            assert sorted(former.has) == [one.id for one in (beside, first, second)]


@virtual
async def test_an_heir_that_waits_for_a_server_with_the_feature_says_so() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        async with serving(server):
            await ended(term, splits(term, parent, b"m"))
            first, _ = regions_of(term)
            await ended(term, transits(term, "close", first))
        term.manager.expire(term.env.model.servers["a", 1], "it is gone")
        async with serving(Server(term, "b")):
            await transits(term, "assign", first)
            await until(lambda: first.pid in term.env.unplaced)
            assert wait_of(first, term.env).what == 'a server with the feature "inherit" comes'
            assert (
                'no server that may get regions has the feature "inherit"'
                in explained(first, term.env, term.engine).procedure_because
            )
