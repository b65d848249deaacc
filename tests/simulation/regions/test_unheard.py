"""Regions that a server may have although no usable procedure says so: after a failover none goes to a second one."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.regions.environment import WOKEN_TOGETHER
from controller.regions.operator.explain import explained
from controller.regions.procedures import assign, close, servers, tables
from controller.regions.procedures.messages import CRASH, TABLE_TASK, TRANSIT, Crash, TableTask, Transit
from controller.regions.server_lists import Claimants
from controller.regions.term import RegionsTerm
from metadata_store.records import codec
from regent_agent import protocol
from regent_agent.protocol import Close, Left, Open, Owned, Result
from state_machines.regions.entities import Region, Table
from state_machines.regions.states import RegionState, TableKind, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    done,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

OLD_S = 1.1
"""Time after which a list may contradict the model."""
LONG = replace(OPTIONS, lease_ms=30_000)
"""Settings of a term before: a server that is silent since its end is not fenced for so long."""


async def bypassed(disk: RegionDisk) -> Open:
    """Leaves a region that a,1 opens, whose procedure an operator has ended as it is; returns the open.

    The daemon died before the close that follows was stored.
    """
    async with running(disk) as term:
        server = Server(term, "a")
        await server.register()
        pid = await creates(term)
        found = await server.operation()
        assert isinstance(found, Open)
        assert await term.engine.bypass(found.pid)
        await ended(term, _known(pid))
    for one, body in list(disk.bodies.items()):
        if codec.unsealed(one, body).kind == close.NAME:
            del disk.bodies[one]
    disk.tables["t"] = disk.tables["t"]._replace(state=TableState.ENABLED)
    return found


async def _known(pid: int) -> int:
    return pid


async def damaged(disk: RegionDisk) -> Open:
    """Leaves a region that a,1 opens, whose procedure has a record that cannot be read; returns the open."""
    async with running(disk) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term))
            [region] = regions_of(term)
            await ended(term, procedure(term, close.NAME, TRANSIT.encode(Transit(region.id, "t"))))
        await procedure(term, assign.NAME, TRANSIT.encode(Transit(region.id, "t")))
        found = await server.operation()
        assert isinstance(found, Open)
    disk.bodies[found.pid] = b"rotten"
    return found


async def wanted(term: RegionsTerm, region: Region) -> None:
    """Has a region assigned by an operator where the daemon does not do it by itself."""
    if region.state is not RegionState.OFFLINE:
        await procedure(term, assign.NAME, TRANSIT.encode(Transit(region.id, "t")))
    await until(lambda: region.pid in term.env.claimants.held)


@pytest.mark.parametrize("left", [bypassed, damaged])
def test_a_region_whose_open_is_not_known_waits_until_the_server_that_has_it_has_closed_it(left: object) -> None:
    @virtual
    async def story() -> None:
        disk, loop = RegionDisk(), asyncio.get_running_loop()
        opened: Open = await left(disk)  # type: ignore[operator]
        async with running(disk) as term, serving(other := Server(term, "b")):
            [region] = regions_of(term)
            await wanted(term, region)
            assert "a,1" in explained(region, term.env, term.engine).server_because
            await asyncio.sleep(OLD_S)
            server = Server(term, "a")
            await server.register(Owned(region.id, opened.token))
            operation = await server.operation()
            assert isinstance(operation, Close)
            await asyncio.sleep(0.1)
            assert (region.server, other.has) == (None, {}), "the server has it until it says that it has closed it"
            assert await server.ask(protocol.Leave("a", 1, server.epoch)) == Left(1)
            await until(lambda: [one for one in term.engine.records.values() if one.kind == servers.DRAIN])
            await until(lambda: not [one for one in term.engine.live() if one.kind == servers.DRAIN])
            assert await server.ask(protocol.Leave("a", 1, server.epoch)) == Left(1)
            assert ("a", 1) in disk.servers
            closed_s = loop.time()
            await server.report(done(operation))
            await until(lambda: other.has)
            assert loop.time() - closed_s < 1.0, "it does not wait for the lease of the server that has closed it"
            assert other.has[region.id] > opened.token

    story()


@pytest.mark.parametrize("left", [bypassed, damaged])
def test_a_region_whose_open_is_not_known_waits_until_a_silent_server_is_fenced(left: object) -> None:
    @virtual
    async def story() -> None:
        disk, loop = RegionDisk(), asyncio.get_running_loop()
        await left(disk)  # type: ignore[operator]
        began_s = loop.time()
        async with running(disk) as term, serving(other := Server(term, "b")):
            [region] = regions_of(term)
            await wanted(term, region)
            await until(lambda: other.has)
            assert loop.time() - began_s >= OPTIONS.lease_ms / 1000
            assert ("a", 1) not in term.env.claimants.processes

    story()


@virtual
async def test_a_region_whose_open_is_not_known_is_free_once_all_servers_have_listed_theirs() -> None:
    disk, loop = RegionDisk(), asyncio.get_running_loop()
    await damaged(disk)
    async with running(disk) as term, serving(Server(term, "b")):
        [region] = regions_of(term)
        await wanted(term, region)
        began_s = loop.time()
        async with serving(Server(term, "a")):
            await until(lambda: region.state is RegionState.OPEN)
            assert loop.time() - began_s < 1.0


@virtual
async def test_a_batch_gives_no_region_away_that_a_silent_server_may_have() -> None:
    disk = RegionDisk()
    async with running(disk, LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        await ended(term, procedure(term, tables.DISABLE.name, TABLE_TASK.encode(TableTask("t"))))
    async with running(disk) as term, serving(other := Server(term, "b")):
        [region] = regions_of(term)
        enabled = await procedure(term, tables.ENABLE.name, TABLE_TASK.encode(TableTask("t")))
        await until(lambda: region.pid in term.env.claimants.held)
        assert (region.state, other.has) == (RegionState.CLOSED, {})
        async with serving(Server(term, "a")):
            await ended(term, _known(enabled))
            assert region.state is RegionState.OPEN


@virtual
async def test_a_procedure_that_an_operator_ends_is_no_longer_held() -> None:
    disk = RegionDisk()
    await damaged(disk)
    async with running(disk) as term:
        [region] = regions_of(term)
        await wanted(term, region)
        pid = region.pid
        assert await term.engine.bypass(pid)
        await until(lambda: term.engine.records[pid].state.is_final)
        assert pid not in term.env.claimants.held


@virtual
async def test_regions_that_a_server_has_listed_wait_for_no_other_one_when_it_crashes() -> None:
    disk, loop = RegionDisk(), asyncio.get_running_loop()
    async with running(disk, LONG) as term, serving(Server(term, "b")):
        await ended(term, creates(term, regions=3))
        await Server(term, "a").register()
        had = lists(regions_of(term))
    async with running(disk) as term, serving(Server(term, "c")):
        server, began_s = Server(term, "b"), loop.time()
        await server.register(*had)
        await server.poll()
        await until(lambda: {str(one.server) for one in regions_of(term)} == {"c,1"})
        assert loop.time() - began_s < LONG.lease_ms / 1000
        assert term.env.claimants.processes == {("a", 1)}


def test_procedures_that_wait_run_only_once_a_region_may_be_free() -> None:
    claimants, claimed = Claimants(), a_region(7)
    claimants.begin([("a", 1), ("b", 1), ("c", 1)])
    claimants.held.add(1)
    claimants.listed(("a", 1), [7, 8])
    claimants.listed(("b", 1), [7])
    assert claimants.take_held() == [], "another process has not listed its regions"
    claimants.gone(("c", 1))
    assert claimants.take_held() == [1]
    claimants.held.add(1)
    claimants.listed(("a", 1), [7, 8])
    claimants.settled(("b", 1), 9)
    claimants.gone(("d", 1))
    assert claimants.take_held() == [], "as many regions are claimed as before"
    claimants.listed(("a", 1), [8])
    assert claimants.take_held() == [1]
    assert claimants.is_held(claimed)
    assert claimants.why_held(claimed) == "b,1 has it, and is to close it"
    claimants.held.add(1)
    claimants.settled(("b", 1), 7)
    assert claimants.take_held() == [1]
    assert not claimants.is_held(claimed)
    assert claimants.why_held(claimed) == ""
    assert (claimants.claims(("a", 1)), claimants.claims(("b", 1))) == (1, 0)


def a_region(id_: int) -> Region:
    return Region(id_, Table("t", TableKind.USER, TableState.ENABLED, {}, []), b"", b"", RegionState.OFFLINE)


@virtual
async def test_a_region_that_a_server_lists_while_its_next_token_is_reserved_is_not_sent() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        await creates(term)
        first = await server.operation()
        [region], reserve = regions_of(term), term.env.number

        async def number(above: int) -> int:
            term.env.claimants.listed(("b", 1), [region.id])
            return await reserve(above)

        term.env.number = number
        await server.report(Result(first.pid, protocol.FAILED_OPEN, text="the disk is full"))
        await until(lambda: region.pid in term.env.claimants.held)
        assert region.server is None
        term.env.claimants.gone(("b", 1))
        term.env.wake_held()
        term.env.number = reserve
        await server.operation()


@virtual
async def test_a_region_that_a_server_has_closed_in_this_term_waits_for_no_other_one() -> None:
    disk = RegionDisk()
    async with running(disk, LONG) as term, serving(Server(term, "b")):
        await ended(term, creates(term))
        await Server(term, "a").register()
    async with running(disk) as term, serving(Server(term, "b")):
        [region] = regions_of(term)
        await ended(term, procedure(term, close.NAME, TRANSIT.encode(Transit(region.id, "t"))))
        await ended(term, procedure(term, assign.NAME, TRANSIT.encode(Transit(region.id, "t"))))
        assert term.env.claimants.processes == {("a", 1)}


@virtual
async def test_a_drain_goes_on_after_a_failover_and_its_server_gets_no_regions_meanwhile() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=3))
        await procedure(term, servers.DRAIN, CRASH.encode(Crash("a", 1)))
        await until(lambda: term.env.model.servers["a", 1].leaving)
        had = [Owned(one.id, one.token) for one in regions_of(term)]
    async with running(disk) as term:
        server = Server(term, "a")
        await server.register(*had)
        assert not list(term.env.model.online()), "it is marked before anything runs"
        server.has = {one.region: one.token for one in had}
        polls = asyncio.ensure_future(server.serve())
        async with serving(other := Server(term, "b")):
            await until(lambda: len(other.has) == 3)
            assert not server.has
        polls.cancel()


@pytest.mark.parametrize("held", [False, True])
def test_very_many_procedures_that_wait_for_a_server_or_a_free_region_run_in_portions(held: bool) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk()) as term:
            env, pids = term.env, range(1, 3 * WOKEN_TOGETHER + 8)
            with mock.patch.object(term.engine, "wake_all") as woken:
                if held:
                    env.claimants.begin([("a", 1)])
                    env.claimants.held.update(pids)
                    env.claimants.gone(("a", 1))
                    env.wake_held()
                else:
                    env.unplaced.update(pids)
                    env.wake_unplaced()
                await until(lambda: not env.waking)
            some = [list(one.args[0]) for one in woken.call_args_list]
            assert [len(one) for one in some if one] == [WOKEN_TOGETHER, WOKEN_TOGETHER, WOKEN_TOGETHER, 7]
            assert [pid for one in some for pid in one] == list(pids)

    story()
