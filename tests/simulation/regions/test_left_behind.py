"""Procedures, reports and servers that are over leave nothing behind that holds up, or counts against, later ones."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from brokers.regions.connection import Peer
from controller.regions import admission, bypassed
from controller.regions.comparison import OLD_MS
from controller.regions.procedures import assign, crash, servers
from controller.regions.procedures.messages import CRASH, TRANSIT, Crash, Transit
from regent_agent import protocol
from regent_agent.protocol import BUSY, FAILED_OPEN, Left, Open, Operation, Owned, Registered, Result
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from state_machines.regions.states import RegionState, ServerState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    UNTIL_S,
    Server,
    at_rest,
    changes,
    creates,
    done,
    ended,
    known,
    lists,
    moves,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.simulation.regions.test_left_out import LOGGED, Splitting, crashed, one_that_fails, operator
from tests.simulation.regions.test_members import WRITE_S, Slow

LONG = replace(OPTIONS, lease_ms=100_000)


class Says(Server):
    """A server that says of its first opens what the test wants, and opens the later ones."""

    outcomes: list[str]

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, Open) and self.outcomes:
            return Result(operation.pid, self.outcomes.pop(0))
        return super().do(operation)


async def leaves(server: Server) -> None:
    """Has a server without regions leave."""
    async with asyncio.timeout(UNTIL_S):
        while await server.ask(protocol.Leave(server.name, 1, server.epoch)) != Left(0):  # noqa: ASYNC110  # a server asks again and again
            await asyncio.sleep(0.01)


@virtual
async def test_a_server_that_was_busy_has_not_failed() -> None:
    async with running(RegionDisk(), replace(OPTIONS, open_attempts_max=2)) as term:
        server = Says(term, "a")
        server.outcomes = [BUSY, BUSY, BUSY, FAILED_OPEN]
        async with serving(server):
            await ended(term, creates(term))
            assert [one.state for one in regions_of(term)] == [RegionState.OPEN]


# -- procedures that an operator ends as they are


@virtual
async def test_a_procedure_that_had_chosen_a_server_leaves_no_region_on_its_way_to_it() -> None:
    """The drain of that server would wait for the region for ever."""
    async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        data = TRANSIT.encode(Transit(region.id, "t"))
        before = Record(1_000, assign.NAME, State.RUNNABLE, assign.QUEUE, 1, 1, data=data)
        term.env.expect(before.pid, {term.env.model.servers["a", 1]: 1})
        term.env.unplaced.add(before.pid)
        after = replace(before, state=State.SUCCESS, bypassed=True, ending=Ending("bypass"))
        bypassed.see_to(term.env, [Transition(before, after)])
        assert not term.env.unplaced
        async with asyncio.timeout(UNTIL_S):
            await ended(term, procedure(term, servers.DRAIN, CRASH.encode(Crash("a", 1))))


# -- crashes


@virtual
async def test_a_crash_that_is_dealt_with_leaves_nothing_in_memory() -> None:
    async with running(RegionDisk(), LOGGED) as term, serving(Splitting(term, "b")):
        await crashed(term)
        failing = await one_that_fails(term)
        await operator(term).end("leave-out", failing.pid, "User:eve", "its disk is lost")
        await until(lambda: ("a", 1) not in term.env.model.servers)
        await at_rest(term)
        assert (term.env.log_parts, term.env.left_out, term.env.crashing) == ({}, {}, set())


@virtual
async def test_a_crash_has_the_regions_that_it_gives_up_until_that_is_stored() -> None:
    """A change of the table that begins meanwhile closes none of them beside it."""
    async with running(RegionDisk(), LONG, store=Slow) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        server = term.env.model.servers["a", 1]
        server.state, region.table.state = ServerState.FENCED, TableState.DISABLING
        data = CRASH.encode(Crash("a", 1))
        await crash.assign(term.env, Record(1_000, crash.NAME, State.RUNNABLE, crash.ASSIGN, 1, 1, data=data))
        assert not term.env.model.take(region, 1_001)


# -- processes of servers


@virtual
async def test_processes_that_have_left_do_not_count_against_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SERVERS_MAX", 2)
    async with running(RegionDisk()) as term:
        for life in range(1, 6):
            server = Server(term, f"s{life}")
            assert isinstance(await server.register(), Registered)
            await leaves(server)


@virtual
async def test_a_process_that_stays_after_it_asked_to_leave_has_its_proof_after_a_failover() -> None:
    disk, own, other = RegionDisk(), Peer(proof="own"), Peer(proof="other")
    register = protocol.Register("s1", 1, "s1:1")
    async with running(disk, store=Slow) as term, serving(Server(term, "s2")):
        await ended(term, creates(term))
        await asyncio.sleep(OLD_MS / 1000)
        [region] = regions_of(term)
        found = await term.service.handle(register, own)
        assert isinstance(found, Registered)
        leave = protocol.Leave("s1", 1, found.epoch)
        assert await term.service.handle(leave, own) == Left(1)
        await until(lambda: not list(term.engine.live()))
        last = asyncio.ensure_future(term.service.handle(leave, own))
        await asyncio.sleep(WRITE_S / 2)
        listed = protocol.Regions("s1", 1, found.epoch, [Owned(region.id, region.token - 1)])
        await term.service.handle(listed, own)
        assert await last == Left(1)
    async with running(disk) as term:
        refused = await term.service.handle(register, other)
        assert isinstance(refused, protocol.Refused)
        assert refused.code == protocol.UNAUTHENTICATED
        assert isinstance(await term.service.handle(register, own), Registered)


# -- reports and lists


@virtual
async def test_what_a_report_has_of_no_use_keeps_nothing_else_of_it_from_being_taken() -> None:
    async with running(RegionDisk(), LONG) as term:
        first, second = Server(term, "a"), Server(term, "b")
        await first.register()
        await second.register()
        await creates(term, regions=4)
        (durable, *mine), (other, *_) = [await first.poll(), await second.poll()]
        await first.report(done(durable))
        assert await first.report(done(durable), done(other), *map(done, mine)) == []
        assert [str(one.server) for one in regions_of(term) if one.state is RegionState.OPEN] == ["a,1", "a,1"]
        assert term.env.dispatcher.expects(other.pid) == ("b", 1)


@virtual
async def test_each_result_that_comes_ahead_of_its_procedure_is_to_be_sent_again() -> None:
    disk = RegionDisk()
    async with running(disk, LONG) as term:
        server = Server(term, "a")
        await server.register()
        await creates(term, regions=3)
        opens = await server.poll()
    async with running(disk, LONG) as term:
        results = [Result(one.pid, BUSY) for one in opens]
        member = term.env.model.servers["a", 1]
        assert await term.manager.report(member, results, 0) == [one.pid for one in opens]


@virtual
async def test_a_region_that_its_server_turns_out_to_own_goes_to_others_later() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        assert region.server is not None
        owner, to = region.server, "b" if region.server.name == "a" else "a"
        term.env.claimants.listed(owner.key, [region.id])
        stray = Transit(region.id, "", "stray", *owner.key, region.token)
        assert await ended(term, procedure(term, servers.STRAY, TRANSIT.encode(stray))) == b"it is its owner"
        async with asyncio.timeout(UNTIL_S):
            await ended(term, moves(term, region, to))
        assert str(region.server) == f"{to},1"


@virtual
async def test_a_list_that_came_as_a_region_changed_comes_again_soon() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        server = Server(term, "a")
        await server.register()
        await server.ask(protocol.Regions("a", 1, server.epoch, [Owned(region.id, region.token - 1)]))
        found = await server.ask(protocol.Poll("a", 1, server.epoch, server.taken))
        assert isinstance(found, protocol.Operations)
        assert found.list_regions


# -- failovers


@virtual
async def test_after_a_failover_a_move_that_waits_for_its_lock_keeps_no_region_from_a_change_of_the_table() -> None:
    disk = RegionDisk()
    async with running(disk, LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        has = lists(regions_of(term))
    async with running(disk, replace(LONG, transit_max=0)) as term:
        disabling = await changes(term, "disable")
        await until(lambda: [one for one in term.engine.live() if one.kind == "close_many"])
        moving = await moves(term, regions_of(term)[0])
        await until(lambda: moving in term.engine.records)
    async with running(disk, LONG) as term:
        server = Server(term, "a")
        await server.register(*has)
        polls = asyncio.ensure_future(server.serve())
        async with asyncio.timeout(UNTIL_S):
            await ended(term, known(disabling))
        assert term.env.model.tables["t"].state is TableState.DISABLED
        polls.cancel()
