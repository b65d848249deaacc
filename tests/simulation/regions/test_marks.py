"""Marks of operators: cordoned servers get nothing, held regions wait for their server's next process, pins last."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from controller.regions.kinds import marks
from controller.regions.kinds.marks import MARK, MARK_TASK, UNMARK, MarkTask
from controller.regions.operator.explain import explained
from controller.regions.term import RegionsTerm
from state_machines.procedures.states import State
from state_machines.regions.marks import MarkKind
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.exits_kit import Broken, moves
from tests.simulation.regions.kit import Server, creates, ended, procedure, regions_of, running, serving, until, virtual


async def marked(term: RegionsTerm, kind: MarkKind, subject: str, value: str = "", for_ms: int = 0) -> None:
    until_ms = term.env.wall_ms() + for_ms if for_ms else 0
    await ended(term, procedure(term, MARK, MARK_TASK.encode(MarkTask(kind, subject, value, until_ms))))


async def unmarked(term: RegionsTerm, kind: MarkKind, subject: str) -> None:
    await ended(term, procedure(term, UNMARK, MARK_TASK.encode(MarkTask(kind, subject))))


def owners(term: RegionsTerm) -> set[str]:
    return {str(one.server) for one in regions_of(term) if one.state is RegionState.OPEN}


def are_open(term: RegionsTerm) -> bool:
    return all(one.state is RegionState.OPEN for one in regions_of(term))


@virtual
async def test_a_cordoned_server_gets_no_regions_and_keeps_its_own() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a"), Server(term, "b")):
        await marked(term, MarkKind.CORDON, "a")
        await ended(term, creates(term, regions=4))
        assert owners(term) == {"b,1"}
        await marked(term, MarkKind.CORDON, "b")
        second = asyncio.ensure_future(ended(term, creates(term, "u", regions=2)))
        await asyncio.sleep(5)
        assert not second.done(), "no server may have them"
        assert owners(term) == {"b,1"}
        await unmarked(term, MarkKind.CORDON, "a")
        await second
        assert {str(one.server) for one in regions_of(term, "u")} == {"a,1"}
    async with running(disk) as term:
        assert term.env.model.marks.is_cordoned("b"), "the next daemon knows it"


@virtual
async def test_held_regions_wait_for_the_next_process_of_their_server() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=4))
            mine = [one for one in regions_of(term) if one.server is not None and one.server.name == "a"]
            assert len(mine) == 2
            await marked(term, MarkKind.HOLD, "a", for_ms=600_000)
        await until(lambda: term.env.model.servers["a", 1].state.name == "FENCED")
        await asyncio.sleep(5)
        assert all(one.state is not RegionState.OPEN or one.server is term.env.model.servers["a", 1] for one in mine)
        told = explained(mine[0], term.env, term.engine)
        [pid] = [one.pid for one in term.engine.live() if one.kind == "crash"]
        assert "a,1 crashed and is fenced: a hold keeps it for the next process of a, until 20" in told.server_because
        assert told.server_because.endswith(f"; then procedure {pid} (crash) has another server get the region")
        assert told.procedure_because == f"procedure {pid} (crash) waits for the end of the hold"
        assert "a registers, or its hold ends; 'regent servers release a' ends it" in told.would_change
        async with serving(Server(term, "a", 2)):
            await until(lambda: all(str(one.server) == "a,2" for one in mine) and are_open(term))


@virtual
async def test_a_hold_ends_with_its_time() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=4))
            await marked(term, MarkKind.HOLD, "a", for_ms=20_000)
        await asyncio.sleep(15)
        assert ("a", 1) in term.env.model.servers
        await until(lambda: ("a", 1) not in term.env.model.servers)
        assert owners(term) == {"b,1"}
        assert are_open(term)


@virtual
async def test_a_hold_that_is_removed_ends_at_once() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=4))
            await marked(term, MarkKind.HOLD, "a", for_ms=600_000)
        await until(lambda: term.env.model.servers["a", 1].state.name == "FENCED")
        await asyncio.sleep(1)
        await unmarked(term, MarkKind.HOLD, "a")
        await until(lambda: ("a", 1) not in term.env.model.servers and are_open(term))
        assert owners(term) == {"b,1"}


@virtual
async def test_a_pinned_region_goes_to_its_server_wherever_that_is_online() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "b"), Server(term, "c")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=3))
            [region] = [one for one in regions_of(term) if one.server is not None and one.server.name == "a"]
            await marked(term, MarkKind.PIN, str(region.id), "c")
        await until(lambda: ("a", 1) not in term.env.model.servers and are_open(term))
        assert str(region.server) == "c,1"


@pytest.mark.parametrize("why", ["a pin", "a move"])
def test_a_region_that_is_to_go_to_a_server_which_cannot_open_it_goes_to_another(why: str) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk()) as term, serving(other := Server(term, "b")):
            await ended(term, creates(term))
            [region] = regions_of(term)
            async with serving(Broken(term, "a")):
                if why == "a pin":
                    await marked(term, MarkKind.PIN, str(region.id), "a")
                await ended(term, moves(term, region, "" if why == "a pin" else "a"))
                assert (str(region.server), other.has) == ("b,1", {region.id: region.token})

    story()


@virtual
async def test_a_new_mark_takes_those_with_it_that_mean_nothing_any_more() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term, regions=1))
        [region] = regions_of(term)
        await marked(term, MarkKind.HOLD, "a", for_ms=1_000)
        await marked(term, MarkKind.PIN, str(region.id), "a")
        await marked(term, MarkKind.PIN, str(region.id + 1), "a")
        await asyncio.sleep(2)
        await marked(term, MarkKind.CORDON, "b")
        kept = [(MarkKind.CORDON, "b"), (MarkKind.PIN, str(region.id))]
        assert [(one.kind, one.subject) for one in term.env.model.marks] == kept
    async with running(disk) as term:
        assert [(one.kind, one.subject) for one in term.env.model.marks] == kept


@virtual
async def test_a_mark_too_many_is_refused_and_one_that_is_there_is_replaced() -> None:
    with patch.object(marks, "MARKS_MAX", 1):
        async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
            await marked(term, MarkKind.HOLD, "a", for_ms=60_000)
            await marked(term, MarkKind.HOLD, "a", for_ms=90_000)
            pid = await procedure(term, MARK, MARK_TASK.encode(MarkTask(MarkKind.CORDON, "b")))
            record = await term.engine.result(pid)
            assert record.state is State.ROLLEDBACK
            assert "there are 1 marks, which is the most: remove some" in record.error
            assert not term.env.model.marks.is_cordoned("b")
