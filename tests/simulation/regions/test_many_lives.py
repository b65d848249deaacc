"""What a domain holds over many lives of its servers: slots, flags, addresses and numbers come back as they were."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from controller.regions.comparison import LIST_EVERY_S, STRAYS_TOGETHER
from controller.regions.dispatcher import HOLD_FRACTION, Dispatcher, DispatchLimits
from controller.regions.domain import RegionsDomain
from controller.regions.operator.servers import ServerChange
from controller.regions.procedures import servers
from controller.regions.procedures.messages import CRASH, MOVE, Crash, Move
from controller.regions.procedures.servers import MARK_TASK, MarkTask
from controller.regions.routes import route_of
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import OPENED, Open, Operation, Operations, Owned, Registered, Result
from state_machines.regions import model
from state_machines.regions.marks import MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    OPTIONS,
    UNTIL_S,
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

LEASE_S = OPTIONS.lease_ms / 1000


def are_open(term: RegionsTerm, *tables: str) -> bool:
    return all(one.state is RegionState.OPEN for name in tables for one in regions_of(term, name))


async def fenced(term: RegionsTerm, key: tuple[str, int]) -> None:
    await until(lambda: term.env.model.is_fenced(key))


def bound(dispatcher: Dispatcher, in_flight_max: int) -> None:
    dispatcher._limits = DispatchLimits(delay_ms=5, in_flight_max=in_flight_max)


# -- slots of batches under way


@virtual
async def test_servers_that_crash_with_a_batch_under_way_take_no_slot_with_them() -> None:
    async with running(RegionDisk()) as term:
        bound(term.env.dispatcher, 2)
        await creates(term, "t0")
        for life in range(6):
            dying = Server(term, "dying", life + 1)
            await dying.register()
            assert isinstance(await asyncio.wait_for(dying.operation(), UNTIL_S), Open)
            term.manager.expire(term.env.model.servers["dying", life + 1], "a test")
            await fenced(term, ("dying", life + 1))
        async with serving(Server(term, "good")):
            await creates(term, "t1", 3)
            await until(lambda: "t1" in term.env.model.tables and are_open(term, "t0", "t1"))


@virtual
async def test_all_that_wait_for_a_slot_get_their_turn_without_the_end_of_their_polls() -> None:
    async with running(RegionDisk()) as term:
        bound(term.env.dispatcher, 1)
        some = [Server(term, name) for name in "abcd"]
        for server in some:
            await server.register()
        await creates(term, regions=len(some))
        await until(lambda: "t" in term.env.model.tables and len(term.env.model.transit) == len(some))
        first = some[0]
        assert len(await first.poll()) == 1, "it has the only slot"
        polls = [asyncio.ensure_future(server.poll()) for server in some[1:]]
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in polls)
        free_s = asyncio.get_running_loop().time()
        confirms = [asyncio.ensure_future(first.poll())]
        got: list[list[Operation]] = []
        for server, poll in zip(some[1:], polls, strict=True):
            got.append(await poll)
            confirms.append(asyncio.ensure_future(server.poll()))
        assert [len(one) for one in got] == [1, 1, 1]
        waited_s = asyncio.get_running_loop().time() - free_s
        assert waited_s < LEASE_S / HOLD_FRACTION / 2, "each waits for the slot alone, not for the end of its poll"
        for one in confirms:
            one.cancel()


# -- what a process registers, lists and reports more than once


@virtual
async def test_a_process_that_registers_again_has_the_address_that_it_gives_then() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        for number in (8_000, 9_000):
            await term.service.handle(
                protocol.Register("a", 1, f"a:{number}", f"v{number}", [Owned(region.id, region.token)])
            )
            assert route_of(region).address == f"a:{number}"
            assert term.env.model.servers["a", 1].software == f"v{number}"
    async with running(disk) as term:
        assert term.env.model.servers["a", 1].address == "a:9000"


@virtual
async def test_a_server_whose_connection_breaks_while_its_list_waits_crashes_like_any_silent_one() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        async with term.manager.comparison._turn:  # another list is being compared
            lists = asyncio.ensure_future(server.ask(protocol.Regions("a", 1, server.epoch, [])))
            await asyncio.sleep(0.1)
            lists.cancel()
            await asyncio.gather(lists, return_exceptions=True)
        await until(lambda: term.env.model.servers.get(("a", 1)) is None)
        assert term.env.model.is_buried(("a", 1))


@virtual
async def test_a_server_with_many_strays_lists_the_rest_soon() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        await server.register(*(Owned(number, 1) for number in range(1, 2 * STRAYS_TOGETHER)))
        clock = asyncio.get_running_loop().time
        began_s = clock()
        while True:
            found = await server.ask(protocol.Poll("a", 1, server.epoch, server.taken))
            assert isinstance(found, Operations)
            server.taken = found.number
            if found.list_regions:
                break
            assert clock() - began_s < LIST_EVERY_S / 2, "its other strays wait for the next list of any server"


@virtual
async def test_each_connection_with_the_same_report_gets_its_response() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        await creates(term)
        result = Result((await server.operation()).pid, OPENED, 1)
        reports = asyncio.gather(*(server.report(result) for _ in range(3)))
        assert await asyncio.wait_for(reports, UNTIL_S) == [[], [], []]
        assert are_open(term, "t")


# -- what is remembered of an open, a drain, a mark


@virtual
async def test_a_server_that_reports_no_sequence_number_leaves_the_one_before() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        first = Server(term, "a")
        await first.register()
        await creates(term)
        await first.report(Result((await first.operation()).pid, OPENED, 7))
        [region] = regions_of(term)
        next_one = Server(term, "b")
        await next_one.register()
        term.manager.expire(term.env.model.servers["a", 1], "a test")
        opens = await next_one.operation()
        assert isinstance(opens, Open)
        assert opens.sequence == 7
        await next_one.report(Result(opens.pid, OPENED, 0))
        await until(lambda: str(region.server) == "b,1" and region.state is RegionState.OPEN)
        assert (region.sequence, disk.regions[region.id].sequence) == (7, 7)


@virtual
async def test_a_forced_drain_that_is_aborted_forces_no_later_one() -> None:
    options = replace(OPTIONS, move_cooldown_ms=600_000)
    async with running(RegionDisk(), options) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        assert region.server is not None
        to = "b" if region.server.name == "a" else "a"
        await ended(term, procedure(term, "move", MOVE.encode(Move(region.id, "t", to))))
        other = "a" if to == "b" else "b"
        await ended(term, procedure(term, servers.MARK, MARK_TASK.encode(MarkTask(MarkKind.CORDON, other))))
        forced = await procedure(term, servers.DRAIN, CRASH.encode(Crash(to, 1, force=True)))
        drained = term.env.model.servers[to, 1]
        drained.forced = True  # as the request of an operator does
        await until(lambda: drained.leaving)
        assert await term.engine.abort(forced)
        await until(lambda: term.engine.records[forced].state.is_final)
        await ended(term, procedure(term, servers.UNMARK, MARK_TASK.encode(MarkTask(MarkKind.CORDON, other))))
        await procedure(term, servers.DRAIN, CRASH.encode(Crash(to, 1)))
        await asyncio.sleep(20)
        assert str(region.server) == f"{to},1", "it rests after its move"


@virtual
async def test_a_dry_run_of_a_forced_drain_forces_nothing() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a"), Server(term, "b")):
        changes = view_of(cast("RegionsDomain", SimpleNamespace(term=term)))
        for dry_run in (True, False):
            await changes.servers.change_server("drain", "a", ServerChange(force=True, dry_run=dry_run), "uid 0")
            assert term.env.model.servers["a", 1].forced is not dry_run


@virtual
async def test_a_region_that_waits_for_a_cordoned_server_goes_there_once_that_is_lifted() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        await ended(term, procedure(term, servers.MARK, MARK_TASK.encode(MarkTask(MarkKind.CORDON, "a"))))
        await creates(term, regions=3)
        await until(lambda: len(term.env.unplaced) == 3)
        await asyncio.sleep(10 * LEASE_S)
        assert not are_open(term, "t")
        await ended(term, procedure(term, servers.UNMARK, MARK_TASK.encode(MarkTask(MarkKind.CORDON, "a"))))
        await until(lambda: are_open(term, "t"))


def test_a_name_that_is_buried_again_is_forgotten_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "BURIED_MAX", 3)
    regions = Regions()
    for number, (name, incarnation) in enumerate([("a", 1), ("b", 1), ("c", 1), ("a", 2), ("d", 1)]):
        regions.enter_buried(regions.bury((name, incarnation), number))
    assert regions.buried == {"c": 1, "a": 2, "d": 1}
    assert regions.is_buried(("a", 2))


@virtual
async def test_a_daemon_that_stood_still_for_a_lease_gives_each_server_another_one() -> None:
    async with running(RegionDisk()) as term:
        silent = Server(term, "a")
        assert isinstance(await silent.register(), Registered)
        loop = asyncio.get_running_loop()
        term.env.clock = term.env.dispatcher._clock = lambda: loop.time() + 10 * LEASE_S
        await asyncio.sleep(LEASE_S / 2)
        assert term.env.model.servers["a", 1].state is ServerState.ONLINE
        await until(lambda: ("a", 1) not in term.env.model.servers)
