"""The works of a term: what ends it, what it repeats, and what servers send while the store writes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast
from unittest import mock

import pytest

from controller.regions import admission
from controller.regions.comparison import OLD_MS
from controller.regions.domain import RegionsDomain
from controller.regions.endings import Left
from controller.regions.environment import WOKEN_TOGETHER
from controller.regions.fencing import LeaseAndFence
from controller.regions.manager import Manager
from controller.regions.operator.namespaces import NamespaceCreation
from controller.regions.procedures.messages import TABLE_TASK, TRANSIT, TableTask, Transit
from controller.regions.term import RegionsTerm
from metadata_store.records.port import StoreFailed
from regent_agent import protocol
from regent_agent.protocol import Left as SlowStoreLeft
from regent_agent.protocol import Owned, Registered
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Region, Table
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    Wall,
    creates,
    done,
    ended,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.simulation.regions.test_members import WRITE_S, Slow


async def term_of(disk: RegionDisk) -> RegionsTerm:
    """Returns a term that is loaded, and runs nothing yet."""
    store = MemoryRegionStore(disk)
    term = RegionsTerm(store, store, store.epoch, OPTIONS, wall_ms=Wall(), seed=1)
    await term.load()
    return term


@virtual
async def test_a_fault_as_regions_begin_to_be_placed_ends_the_term() -> None:
    """Else no region would ever be placed, and nothing would say so."""
    term = await term_of(RegionDisk())
    with mock.patch.object(Manager, "place", side_effect=RuntimeError("a fault")), pytest.raises(RuntimeError):
        await asyncio.wait_for(term.run(), 10 * OPTIONS.startup_wait_ms / 1000)


@virtual
async def test_a_term_goes_on_once_regions_are_placed() -> None:
    term = await term_of(RegionDisk())
    running = asyncio.ensure_future(term.run())
    await asyncio.sleep(10 * OPTIONS.startup_wait_ms / 1000)
    assert (term.env.places, running.done()) == (True, False)
    running.cancel()
    await asyncio.wait({running})


@virtual
async def test_regions_whose_pick_up_is_refused_for_now_are_picked_up_later_and_once() -> None:
    term = await term_of(RegionDisk())
    answers = iter((False, True, False, True, True))
    begun: list[str] = []

    def start(_kind: str, _data: bytes, nonce: str) -> bool:
        if accepted := next(answers):
            begun.append(nonce)
        return accepted

    table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    some = [Region(number, table, b"", b"", RegionState.ABNORMALLY_CLOSED) for number in (1, 2, 3)]
    term.env.left.extend(map(Left, some))
    picks = mock.patch("controller.regions.term.picked_up", return_value=("a", b""))
    with picks, mock.patch.object(term.manager, "start", start):
        running = asyncio.ensure_future(term.run())
        await asyncio.sleep(OPTIONS.lease_ms / 1000)
        running.cancel()
        await asyncio.wait({running})
    assert begun == [f"region {number} left by 0 in term 1" for number in (1, 2, 3)]
    assert not term.env.left


@pytest.mark.parametrize("bypassed", [True, False])
@virtual
async def test_a_result_of_a_procedure_that_was_ended_as_it_is_says_that_rows_may_be_behind(bypassed: bool) -> None:
    """A part of it may have sent what no row says, and left no record."""
    disk = RegionDisk()
    data = TABLE_TASK.encode(TableTask("t", uniform=1))
    result = Record(5, "create_table", State.SUCCESS, 1, 1, 1, data=data, bypassed=bypassed)
    await MemoryRegionStore(disk).write([result])
    assert (await term_of(disk)).env.torn is bypassed


@virtual
async def test_procedures_are_woken_in_portions_until_all_are() -> None:
    term = await term_of(RegionDisk())
    woken: list[int] = []
    with mock.patch.object(term.engine, "wake_all", woken.extend):
        running = asyncio.ensure_future(term.run())
        await asyncio.sleep(0.1)
        term.env.waking.add_pids(range(1, 2 * WOKEN_TOGETHER + 2))
        await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.wait({running})
    assert woken == list(range(1, 2 * WOKEN_TOGETHER + 2))


@virtual
async def test_a_wait_that_was_stored_ends_with_the_load() -> None:
    """The wall clock may have been set since, and servers may have come."""
    disk, wall_ms = RegionDisk(), Wall()()
    store = MemoryRegionStore(disk)
    await store.reserve(10)
    data = TRANSIT.encode(Transit(1, "t"))
    await store.write(
        [Record(5, "assign", State.WAITING_TIMEOUT, 0, 1, wall_ms, data=data, deadline_ms=wall_ms + 500_000)]
    )
    term = await term_of(disk)
    running = asyncio.ensure_future(term.run())
    await asyncio.sleep(1)
    assert term.engine.records[5].state.is_final, "there is no such region"
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize(
    ("stored", "former"),
    [
        (LeaseAndFence(1_000, "lease"), LeaseAndFence(OPTIONS.lease_ms, "lease")),
        (LeaseAndFence(9_000, "log"), LeaseAndFence(9_000, "lease+log")),
    ],
)
@virtual
async def test_servers_are_judged_by_the_longer_lease_and_both_fences_until_all_have_polled(
    stored: LeaseAndFence, former: LeaseAndFence
) -> None:
    disk = RegionDisk()
    await MemoryRegionStore(disk).write((), (), [stored.row])
    term = await term_of(disk)
    assert term.env.former == former
    term.env.restored = True
    await term._settle_fence()
    assert term.env.former == former, "for a lease there may be servers that a copy does not know"
    term.env.restored_places = True
    server = Server(term, "s1")
    await server.register()
    await term._settle_fence()
    assert term.env.former == former, "a server has not polled yet"
    polling = asyncio.ensure_future(server.poll())
    await asyncio.sleep(0.1)
    await term._settle_fence()
    assert term.env.former == LeaseAndFence(OPTIONS.lease_ms, "lease")
    polling.cancel()
    await asyncio.wait({polling})


@virtual
async def test_numbers_of_the_store_are_those_that_it_had_as_the_term_began() -> None:
    disk = RegionDisk()
    await MemoryRegionStore(disk).reserve(70)
    term = await term_of(disk)
    assert term.env.former_number == 70
    await term.engine.number()
    assert (term.env.former_number, term.engine.last_number > 70) == (70, True)


@virtual
async def test_a_list_that_is_compared_as_its_term_ends_is_not_accepted() -> None:
    """The server lists its regions to the next daemon, which may know more of them."""
    term = await term_of(RegionDisk())
    server = Server(term, "s1")
    await server.register()
    model, owner = term.env.model, term.env.model.servers["s1", 1]
    table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    region = Region(7, table, b"", b"", RegionState.OPEN, owner, token=3)
    model.add_table(table)
    model.add_regions(table, [region])
    owner.regions[7] = region
    listing = asyncio.ensure_future(server.ask(protocol.Regions("s1", 1, server.epoch, [protocol.Owned(7, 3)])))
    await asyncio.sleep(0)
    term.close(StoreFailed("the term is over"))
    response = await listing
    assert isinstance(response, protocol.Refused)
    assert response.code == protocol.NOT_ACTIVE


@virtual
async def test_a_process_that_lists_a_region_during_its_last_request_to_leave_stays_a_member() -> None:
    disk = RegionDisk()
    async with running(disk, store=Slow) as term, serving(Server(term, "s2")):
        await ended(term, creates(term))
        await asyncio.sleep(OLD_MS / 1000)
        [region] = regions_of(term)
        server = Server(term, "s1")
        await server.register()
        leave = protocol.Leave("s1", 1, server.epoch)
        assert await server.ask(leave) == SlowStoreLeft(1)
        await until(lambda: not list(term.engine.live()))
        last = asyncio.ensure_future(server.ask(leave))
        await asyncio.sleep(WRITE_S / 2)
        await server.ask(protocol.Regions("s1", 1, server.epoch, [Owned(region.id, region.token - 1)]))
        assert await last == SlowStoreLeft(1)
        assert ("s1", 1) in disk.servers
        await server.report(done(await server.operation()))
        await until(lambda: not list(term.engine.live()))
        assert await server.ask(leave) == SlowStoreLeft(0)
        assert ("s1", 1) not in disk.servers


@virtual
async def test_processes_that_register_together_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SERVERS_MAX", 2)
    disk = RegionDisk()
    async with running(disk, store=Slow) as term:
        found = await asyncio.gather(*(Server(term, name).register() for name in "abc"))
        assert [isinstance(one, Registered) for one in found] == [True, True, False]
        assert len(disk.servers) == 2


@virtual
async def test_a_request_that_is_sent_again_while_it_is_stored_has_the_same_procedure() -> None:
    async with running(RegionDisk(), store=Slow) as term:
        changes = view_of(cast("RegionsDomain", SimpleNamespace(term=term)))
        request = NamespaceCreation(name="shop", nonce="n1")
        first = asyncio.ensure_future(changes.namespaces.create_namespace(request, "User:ops"))
        found = []
        while not first.done():
            await asyncio.sleep(WRITE_S / 5)
            found.append(asyncio.ensure_future(changes.namespaces.create_namespace(request, "User:ops")))
        assert {one.pid for one in await asyncio.gather(*found)} == {first.result().pid}
        assert len(found) > 4


@virtual
async def test_a_crash_that_is_ahead_of_the_request_for_it_is_not_set_back() -> None:
    async with running(RegionDisk(), store=Slow) as term:
        await Server(term, "s1").register()
        server = term.env.model.servers["s1", 1]
        server.state = ServerState.FENCED
        term.manager.crashed(server, "expired by User:ops")
        assert server.state is ServerState.FENCED, "its regions may be elsewhere already"
        assert server.key in term.env.crashing, "the check of leases begins no second one"
        term.env.crashing.clear()
        server.state = ServerState.ONLINE
        term.manager.crashed(server, "expired by User:ops")
        assert server.state is ServerState.CRASHED
