"""In which order a crash assigns classes of tables, and what opens a region that comes after its decision."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.regions.operator.region_changes import region_problem
from controller.regions.procedures.messages import TABLE_TASK, TRANSIT, TableTask, Transit
from controller.regions.term import RegionsTerm
from regent_agent.protocol import Open
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState, ServerState, TableKind
from testing.memory.region_store import RegionDisk
from tests.kit.regions.noting import Told
from tests.kit.regions.world import at_rest, ended, procedure, regions_of, running, serving, until, virtual

S = RegionState
A_SPLIT = 999
"""Stands for the pid of a split that is undone."""


class Slow(Told):
    """A server that opens regions of some tables only once the test says so."""

    def __init__(self, term: RegionsTerm, *tables: str) -> None:
        super().__init__(term, "slow")
        self.waiting: list[Open] = []
        self._tables = tables

    async def serve(self) -> None:
        while True:
            for one in await self.poll():
                if isinstance(one, Open) and one.table in self._tables:
                    self.waiting.append(one)
                else:
                    await self.report(self.do(one))

    async def opens(self) -> str:
        """Waits for an open, and does it; returns its table."""
        await until(lambda: self.waiting)
        one = self.waiting.pop()
        await self.report(self.do(one))
        return one.table


async def created(term: RegionsTerm, name: str, kind: TableKind) -> Region:
    await ended(term, procedure(term, "create_table", TABLE_TASK.encode(TableTask(name, kind=kind, uniform=1))))
    return regions_of(term, name)[0]


@asynccontextmanager
async def two_classes() -> AsyncIterator[tuple[RegionsTerm, Region, Region]]:
    """Runs a term with a system table and a user table, whose server is silent from now on."""
    async with running(RegionDisk()) as term:
        async with serving(Told(term, "a")):
            found = await created(term, "sys", TableKind.SYSTEM), await created(term, "t", TableKind.USER)
        yield term, *found


@virtual
async def test_a_crash_has_no_region_of_a_user_table_opened_before_those_of_the_system_are_open() -> None:
    async with two_classes() as (term, system, user):
        slow = Slow(term, "sys", "t")
        async with serving(slow):
            await until(lambda: slow.waiting)
            assert (system.state, user.state, user.pid) == (S.OPENING, S.OPEN, 0)
            assert [await slow.opens(), await slow.opens()] == ["sys", "t"]
            await at_rest(term)


@virtual
async def test_a_system_region_that_is_given_back_after_the_decision_is_opened_at_once_by_a_command() -> None:
    async with two_classes() as (term, system, user):
        assert term.env.model.take(system, A_SPLIT)
        slow = Slow(term, "t")
        async with serving(slow):
            await until(lambda: slow.waiting)
            term.env.model.detach(system, A_SPLIT)
            assert system.server is not None
            assert (system.state, system.server.state) == (S.OPEN, ServerState.FENCED)
            assert region_problem(term.env, system, "assign", "") is None
            await ended(term, procedure(term, "assign", TRANSIT.encode(Transit(system.id, "sys"))))
            assert (system.state, str(system.server)) == (S.OPEN, "slow,1")
            assert user.state is S.OPENING, "the batch goes on"
            await slow.opens()
            await at_rest(term)
        assert (user.state, str(user.server)) == (S.OPEN, "slow,1")


@virtual
async def test_a_system_region_that_is_given_back_after_the_decision_is_assigned_once_the_batch_is_over() -> None:
    async with two_classes() as (term, system, _):
        assert term.env.model.take(system, A_SPLIT)
        slow = Slow(term, "sys", "t")
        async with serving(slow):
            await until(lambda: slow.waiting)
            term.env.model.detach(system, A_SPLIT)
            assert [await slow.opens(), await slow.opens()] == ["t", "sys"]
            await at_rest(term)
