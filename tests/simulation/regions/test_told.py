"""Sentences for operators and servers where nothing goes on: each has the cause, and what would change it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from controller.regions.kinds import marks, move
from controller.regions.kinds.messages import CRASH, MOVE, Crash, Move
from controller.regions.kinds.servers import DRAIN
from controller.regions.operator.checks import region_problem
from controller.regions.operator.explain import explained
from controller.regions.operator.items import detail_of
from controller.regions.operator.progress import progress_of
from regent_agent import protocol
from regent_agent.protocol import Operation, Refused, Registered, Result, Task
from state_machines.regions.marks import MarkKind
from state_machines.regions.states import ServerState
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import (
    OPTIONS,
    Server,
    creates,
    ended,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)


@virtual
async def test_a_region_of_a_crashed_process_is_moved_to_the_next_one_with_its_name() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=2))
        [region] = [one for one in regions_of(term) if str(one.server) == "a,1"]
        async with serving(Server(term, "a", 2)):
            assert term.env.model.servers["a", 1].state is ServerState.CRASHED
            moves = procedure(term, move.NAME, MOVE.encode(Move(region.id, "t", "a")))
            assert await ended(term, moves) == b"open"
            assert str(region.server) == "a,2"


@pytest.mark.parametrize("fenced", [False, True])
def test_a_process_whose_clock_was_set_back_is_told_that_it_needs_a_higher_incarnation(fenced: bool) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk()) as term:
            assert isinstance(await Server(term, "a", 9).register(), Registered)
            if fenced:
                await until(lambda: not term.env.model.servers)
            refused = await Server(term, "a", 5).register()
            assert isinstance(refused, Refused)
            assert refused.code == protocol.DEAD
            assert ("9" in refused.text, "higher incarnation (was its clock set back?)" in refused.text) == (True, True)

    story()


@virtual
async def test_a_drain_without_another_server_says_that_it_waits_for_one() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
        task = marks.MARK_TASK.encode(marks.MarkTask(MarkKind.CORDON, "b"))
        await ended(term, procedure(term, marks.MARK, task))
        await ended(term, creates(term, regions=2))
        pid = await procedure(term, DRAIN, CRASH.encode(Crash("a", 1)))
        await asyncio.sleep(1)
        said = progress_of(term.engine.records[pid], term.env, term.engine)
        assert said == (
            "2 regions left, online, no server is online that may get regions; leaving until 'regent servers uncordon "
            "NAME', or a next process of it: a,1; cordoned until 'regent servers uncordon NAME': b"
        )


@virtual
async def test_a_move_to_a_drained_server_is_refused_with_what_ends_that() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        assert str(region.server) == "a,1"
        await ended(term, procedure(term, DRAIN, CRASH.encode(Crash("b", 1))))
        problem = region_problem(term.env, region, "move", "b")
        assert problem == (
            "server b,1 is leaving: its regions are moved away; 'regent servers uncordon b' ends that, "
            "and a next process of it gets regions again"
        )
        async with serving(Server(term, "b", 2)):
            assert region_problem(term.env, region, "move", "b") is None


@virtual
async def test_a_region_that_waits_while_all_servers_are_leaving_names_them() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        async with serving(Server(term, "b")):
            await ended(term, procedure(term, DRAIN, CRASH.encode(Crash("a", 1))))
            await ended(term, creates(term))
        [region] = regions_of(term)
        await until(lambda: region.pid in term.env.unplaced)
        told = explained(region, term.env, term.engine)
        assert "no server is online that may get regions; leaving until " in told.procedure_because
        assert told.procedure_because.endswith("a next process of it: a,1")


class Unable(Server):
    """A server that can do nothing to the log of another one."""

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, Task):
            return Result(operation.pid, protocol.FAILED, text="no such volume")
        return super().do(operation)


@virtual
async def test_a_crash_whose_log_nobody_can_fence_says_why() -> None:
    async with running(RegionDisk(), replace(OPTIONS, fence="log")) as term, serving(Unable(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=2))
        [region] = [one for one in regions_of(term) if str(one.server) == "a,1"]
        await until(lambda: any(one.kind == "fence_log" for one in term.engine.live()))
        await asyncio.sleep(3)
        [work] = [one for one in term.engine.live() if one.kind == "fence_log"]
        assert detail_of(work).endswith("; b,1 said failed: no such volume")
        told = explained(region, term.env, term.engine)
        assert told.server_because.endswith(
            f"; procedure {work.pid} (fence_log) repeats the work on its log: b,1 said failed: no such volume"
        )
