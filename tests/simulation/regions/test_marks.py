"""Marks of operators: cordoned servers, held regions, pins; and ends of drains, marks and opens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from controller.regions import bypassed
from controller.regions.operator.explain import explained
from controller.regions.procedures import many, servers
from controller.regions.procedures.messages import CRASH, MANY, MOVE, TABLE_TASK, Crash, Many, TableTask
from controller.regions.procedures.servers import MARK, MARK_TASK, UNMARK, MarkTask
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import FAILED_OPEN, Open, Operations, Owned
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from state_machines.regions.marks import MarkKind
from state_machines.regions.states import RegionState, ServerState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    UNTIL_S,
    Broken,
    Server,
    at_rest,
    changes,
    creates,
    ended,
    known,
    moves,
    procedure,
    regions_of,
    running,
    serving,
    transits,
    until,
    virtual,
)
from tests.simulation.regions.test_left_behind import LONG, Says
from tests.simulation.regions.test_many_lives import are_open as are_all_open


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
        kept = [(MarkKind.CORDON, "b"), (MarkKind.LEVEL, "store"), (MarkKind.PIN, str(region.id))]
        assert [(one.kind, one.subject) for one in term.env.model.marks] == kept
    async with running(disk) as term:
        assert [(one.kind, one.subject) for one in term.env.model.marks] == kept


@virtual
async def test_a_mark_too_many_is_refused_and_one_that_is_there_is_replaced() -> None:
    with patch.object(servers, "MARKS_MAX", 2):
        async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
            assert [one.kind for one in term.env.model.marks] == [MarkKind.LEVEL]
            await marked(term, MarkKind.HOLD, "a", for_ms=60_000)
            await marked(term, MarkKind.HOLD, "a", for_ms=90_000)
            pid = await procedure(term, MARK, MARK_TASK.encode(MarkTask(MarkKind.CORDON, "b")))
            record = await term.engine.result(pid)
            assert record.state is State.ROLLEDBACK
            assert "there are 2 marks, which is the most: remove some" in record.error
            assert not term.env.model.marks.is_cordoned("b")


LEASE_S = OPTIONS.lease_ms / 1000


def marks_shown(
    term: RegionsTerm, step: str, kind: MarkKind, subject: str, value: str = "", until_ms: int = 0
) -> Awaitable[bytes]:
    return ended(term, procedure(term, step, MARK_TASK.encode(MarkTask(kind, subject, value, until_ms))))


@virtual
async def test_a_drain_moves_the_regions_that_others_depend_on_last() -> None:
    async with running(RegionDisk(), LONG) as term:
        async with serving(Server(term, "a")):
            for name, kind in (("meta", 0), ("user", 2), ("system", 1)):
                await ended(term, procedure(term, "create_table", TABLE_TASK.encode(TableTask(name, kind, uniform=2))))
        async with serving(Server(term, "b")):
            await procedure(term, servers.DRAIN, CRASH.encode(Crash("a", 1)))
            await until(lambda: [one for one in term.engine.live() if one.kind == "move"])
            found = [MOVE.decode(one.data).table for one in term.engine.live() if one.kind == "move"]
            assert found == ["user", "user", "system", "system", "meta", "meta"]


@virtual
async def test_the_end_of_a_hold_lets_no_server_get_regions_that_was_drained() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, procedure(term, servers.DRAIN, CRASH.encode(Crash("a", 1))))
        await marks_shown(term, MARK, MarkKind.HOLD, "a", until_ms=term.env.wall_ms() + 10_000)
        await marks_shown(term, UNMARK, MarkKind.HOLD, "a")
        await ended(term, creates(term, regions=4))
        assert {str(one.server) for one in regions_of(term)} == {"b,1"}


@virtual
async def test_a_batch_that_an_operator_ends_lets_all_its_regions_go() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=3))
        for region in regions_of(term):
            term.env.model.attach(region, 1_000)
        before = Record(1_000, many.ASSIGN_MANY, State.RUNNABLE, 0, 1, 1, data=MANY.encode(Many("t", count=3)))
        after = replace(before, state=State.SUCCESS, bypassed=True, ending=Ending("bypass"))
        bypassed.see_to(term.env, [Transition(before, after)])
        await at_rest(term)


@virtual
async def test_a_server_lists_its_regions_again_once_an_operator_has_ended_the_close_of_one() -> None:
    """Else no other server gets the region until the next list."""
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "b")):
        await ended(term, creates(term))
        await asyncio.sleep(1.5)
        [region] = regions_of(term)
        server = Server(term, "a")
        await server.register()
        await server.ask(protocol.Regions("a", 1, server.epoch, [Owned(region.id, region.token - 1)]))
        closing = await server.operation()
        assert await term.engine.bypass(closing.pid)
        found = await server.ask(protocol.Poll("a", 1, server.epoch, server.taken))
        assert isinstance(found, Operations)
        assert found.list_regions


@virtual
async def test_a_crash_waits_for_no_place_among_the_regions_in_transition_and_a_disable_does() -> None:
    disk, full = RegionDisk(), replace(OPTIONS, transit_max=0)
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
    async with running(disk, full) as term, serving(Server(term, "b")):
        await until(lambda: [str(one.server) for one in regions_of(term)] == ["b,1"] and are_all_open(term, "t"))
        await changes(term, "disable")
        await asyncio.sleep(5 * LEASE_S)
        assert are_all_open(term, "t")


@virtual
async def test_a_disable_closes_the_regions_of_a_server_that_was_fenced_meanwhile() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=2))
        term.env.model.servers["a", 1].state = ServerState.FENCED
        async with asyncio.timeout(UNTIL_S):
            await ended(term, changes(term, "disable"))
        assert term.env.model.tables["t"].state is TableState.DISABLED


@virtual
async def test_held_regions_go_back_to_their_server_under_each_placement() -> None:
    async with running(RegionDisk(), placement="round_robin") as term, serving(Server(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=4))
            had = {one.id for one in regions_of(term) if str(one.server) == "a,1"}
            await marks_shown(term, MARK, MarkKind.HOLD, "a", until_ms=term.env.wall_ms() + 60_000)
        await until(lambda: term.env.model.is_fenced(("a", 1)))
        async with serving(Server(term, "c"), Server(term, "a", 2)):
            await until(lambda: all(one.server and one.server.key != ("a", 1) for one in regions_of(term)))
            await until(lambda: are_all_open(term, "t"))
            assert {one.id for one in regions_of(term) if str(one.server) == "a,2"} == had


@virtual
async def test_a_pinned_region_whose_server_died_as_it_opened_it_goes_to_the_next_process_of_that() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        await marks_shown(term, MARK, MarkKind.PIN, str(region.id), "a")
        first = Server(term, "a")
        await first.register()
        moving = await moves(term, region, "a")
        assert isinstance(await first.operation(), Open)
        async with serving(Server(term, "a", 2)):
            await ended(term, known(moving))
            assert str(region.server) == "a,2"


@virtual
async def test_clients_learn_that_a_region_is_closing_before_it_is_closed() -> None:
    async with running(RegionDisk(), LONG) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
        [region] = regions_of(term)
        change = term.env.routes.change
        await transits(term, "close", region)
        await until(lambda: region.state is RegionState.CLOSING)
        found = await asyncio.wait_for(term.service.handle(protocol.Follow(1, change, ["t"])), 1.0)
        assert isinstance(found, protocol.Changes)
        assert [(one.region, one.server) for one in found.routes] == [(region.id, "")]


@virtual
async def test_why_a_region_was_given_up_is_forgotten_once_it_is_open_and_a_close_of_a_closed_one_leaves_it() -> None:
    async with running(RegionDisk(), replace(OPTIONS, open_attempts_max=1)) as term:
        server = Says(term, "a")
        server.outcomes = [FAILED_OPEN]
        async with serving(server):
            await ended(term, creates(term))
            [region] = regions_of(term)
            assert "failed_open" in term.env.causes.of_region(region.id).lower()
            await ended(term, transits(term, "assign", region))
            assert (region.state, term.env.causes.of_region(region.id)) == (RegionState.OPEN, "")
            for _ in range(2):
                await ended(term, transits(term, "close", region))
            await at_rest(term)
            assert term.journal._live == {}
