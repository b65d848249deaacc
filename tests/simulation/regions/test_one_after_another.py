"""Servers, daemons and operators that come one after another: each finds what the ones before it left to go on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from brokers.regions.connection import Peer
from controller.regions import dispatcher, restored
from controller.regions.environment import Options
from controller.regions.fencing import LeaseAndFence
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import MarkRow
from metadata_store.records.port import Above
from regent_agent import protocol
from regent_agent.protocol import Close, Registered
from state_machines.regions.states import ServerState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    UNTIL_S,
    Server,
    Wall,
    creates,
    ended,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.simulation.regions.test_left_behind import LONG, leaves
from tests.simulation.regions.test_left_out import LOGGED, Splitting
from tests.simulation.regions.test_many_lives import are_open, bound
from tests.simulation.regions.test_members import Slow

LEASE_S = OPTIONS.lease_ms / 1000


# -- a daemon with a shorter lease than the one before


def longer(disk: RegionDisk) -> None:
    """Has the disk say that servers serve under a lease ten times as long."""
    disk.put(LeaseAndFence(10 * OPTIONS.lease_ms, OPTIONS.fence).row)


@pytest.mark.parametrize("registers", [False, True])
def test_a_server_keeps_the_longer_lease_that_it_has_until_it_has_polled(registers: bool) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk) as term:
            await Server(term, "a").register()
        longer(disk)
        if registers:
            async with running(disk) as term:
                await Server(term, "a").register()
                await asyncio.sleep(LEASE_S)
        async with running(disk) as term:
            await asyncio.sleep(9 * LEASE_S)
            assert term.env.model.servers["a", 1].state is ServerState.ONLINE
            await until(lambda: ("a", 1) not in term.env.model.servers)

    story()


# -- a store that was restored from a copy


@asynccontextmanager
async def raised(disk: RegionDisk, options: Options = OPTIONS) -> AsyncIterator[RegionsTerm]:
    """Runs a term that goes above the copy that the disk is."""
    store = MemoryRegionStore(disk)
    term = RegionsTerm(store, store, store.epoch, options, wall_ms=Wall(), seed=1, above=Above(9, 500))
    await term.load()
    run = asyncio.ensure_future(term.run())
    try:
        yield term
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


@virtual
async def test_a_copy_is_remembered_until_the_procedures_that_it_had_are_over() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        await creates(term)
        await until(lambda: bool(term.env.unplaced))
    async with raised(disk) as term:
        await asyncio.sleep(5 * LEASE_S)
        assert restored.is_copy(disk.marks.values()), "an open of the copy waits"
        async with serving(Server(term, "a")):
            await until(lambda: are_open(term, "t") and not restored.is_copy(disk.marks.values()))


@virtual
async def test_a_restored_store_places_regions_after_the_lease_of_its_servers_and_does_not_wait_for_more() -> None:
    disk = RegionDisk()
    longer(disk)
    options = replace(OPTIONS, startup_wait_ms=3_600_000)
    async with raised(disk, options):
        await asyncio.sleep(LEASE_S)
    async with raised(disk, options) as term, serving(Server(term, "a")):
        await creates(term)
        await asyncio.sleep(9 * LEASE_S)
        assert not term.env.places, "processes that the copy does not know may serve for so long"
        await asyncio.sleep(2 * LEASE_S)
        assert are_open(term, "t")


# -- servers


@virtual
async def test_regions_are_placed_after_the_wait_for_servers_though_some_are_missing() -> None:
    async with running(RegionDisk(), replace(OPTIONS, servers_min=2)) as term, serving(Server(term, "a")):
        await creates(term)
        await until(lambda: "t" in term.env.model.tables and are_open(term, "t"))


@virtual
async def test_a_log_is_fenced_and_split_by_the_server_that_comes_after_all_were_gone() -> None:
    async with running(RegionDisk(), LOGGED) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
        await asyncio.sleep(5 * LEASE_S)
        assert [one.kind for one in term.engine.live()] == ["crash", "fence_log"]
        server = Splitting(term, "b")
        server.bad = set()
        async with serving(server):
            await until(lambda: [str(one.server) for one in regions_of(term)] == ["b,1"] and are_open(term, "t"))
        assert sorted(server.split) == ["good", "rotten"]


@virtual
async def test_all_processes_of_a_name_end_once_a_later_one_comes() -> None:
    disk = RegionDisk()
    async with running(disk, LONG) as term:
        await Server(term, "a", 1).register()
        disk.servers["a", 2] = disk.servers["a", 1]._replace(incarnation=2)
    async with running(disk, LONG) as term:
        await Server(term, "a", 3).register()
        assert [one.state for one in term.env.model.servers.values()] == [
            ServerState.CRASHED,
            ServerState.CRASHED,
            ServerState.ONLINE,
        ]


@virtual
async def test_of_two_proofs_that_one_process_gives_at_once_the_first_one_is_stored() -> None:
    disk, register = RegionDisk(), protocol.Register("a", 1, "a:1")
    async with running(disk, store=Slow) as term:
        peers = [Peer(proof="first"), Peer(proof="second")]
        found = await asyncio.gather(*(term.service.handle(register, one) for one in peers))
        assert [isinstance(one, Registered) for one in found] == [True, False]
    async with running(disk) as term:
        assert isinstance(await term.service.handle(register, peers[0]), Registered)
        term.manager.expire(term.env.model.servers["a", 1], "a test")
        await until(lambda: ("a", 1) not in term.env.model.servers)
        assert not [one for one in disk.marks.values() if one.kind == "proof"], "they go with their process"


@virtual
async def test_proofs_of_many_processes_that_are_gone_are_all_removed() -> None:
    disk = RegionDisk()
    disk.marks = {("proof", f"a,{n}"): MarkRow("proof", f"a,{n}", "of one that is gone") for n in range(1, 251)}
    async with running(disk):
        assert not [one for one in disk.marks.values() if one.kind == "proof"]


@virtual
async def test_a_server_that_leaves_before_it_confirms_a_batch_takes_no_slot_with_it() -> None:
    async with running(RegionDisk(), LONG) as term:
        bound(term.env.dispatcher, 1)
        for name in "abc":
            server = Server(term, name)
            await server.register()
            term.env.dispatcher.send(term.env.model.servers[name, 1], Close(1_000, 1, 1))
            assert await asyncio.wait_for(server.operation(), UNTIL_S) == Close(1_000, 1, 1)
            await leaves(server)


@virtual
async def test_a_poll_that_lost_its_connection_ends_with_the_next_one() -> None:
    async with running(RegionDisk(), LONG) as term:
        server = Server(term, "a")
        await server.register()
        lost = asyncio.ensure_future(server.poll())
        await asyncio.sleep(0.1)
        later = asyncio.ensure_future(server.poll())
        assert await asyncio.wait_for(lost, 0.1) == []
        assert not later.done()
        later.cancel()


@virtual
async def test_an_operation_that_is_larger_than_a_batch_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "BATCH_BYTES_MAX", 100)
    async with running(RegionDisk(), LONG) as term:
        server = Server(term, "a")
        await server.register()
        await creates(term, regions=3)
        await until(lambda: len(term.env.model.transit) == 3)
        assert [len(await server.poll()) for _ in range(3)] == [1, 1, 1]
