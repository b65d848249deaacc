"""Servers that register, leave and come back: what seeds of the simulation have shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from controller.http.procedures import Procedure
from controller.regions import admission
from controller.regions.endings import Ending
from controller.regions.procedures import assign, crash, many
from controller.regions.procedures.messages import CRASH, TRANSIT, Crash, Transit
from controller.regions.term import RegionsTerm
from metadata_store.records import codec
from metadata_store.records.port import Stored, StoreFailed
from regent_agent import protocol
from regent_agent.protocol import Left, Refused, Registered
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions import model
from state_machines.regions.states import RegionState, ServerState, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    Wall,
    creates,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.simulation.regions.operating import Operator, Refusal

WRITE_S = 0.1


class Slow(MemoryRegionStore):
    """A store whose writes take long."""

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        await asyncio.sleep(WRITE_S)
        await super().write(puts, deletes, rows)


class SlowToLoad(MemoryRegionStore):
    """A store that takes longer to load than a lease lasts."""

    async def load(self) -> Stored:
        await asyncio.sleep(5.0)
        return await super().load()


@pytest.mark.seed("S1-91")
@virtual
async def test_a_process_that_was_fenced_never_registers_again() -> None:
    """Its regions are with others, and it would serve them as soon as its lease is valid."""
    disk = RegionDisk()
    async with running(disk) as term:
        zombie, other = Server(term, "s1", 5), Server(term, "s2")
        async with serving(zombie):
            await ended(term, creates(term))
        had = lists(regions_of(term))
        async with serving(other):
            await until(lambda: len(term.env.model.servers) == 1)
            found = await zombie.register(*had)
            assert isinstance(found, Refused)
            assert (found.code, "must end" in found.text) == (protocol.DEAD, True)
            older = await Server(term, "s1", 4).register()
            assert isinstance(older, Refused)
    async with running(disk) as term:
        found = await Server(term, "s1", 5).register()
        assert isinstance(found, Refused)
        assert found.code == protocol.DEAD
        assert isinstance(await Server(term, "s1", 6).register(), Registered)
        await asyncio.sleep(0)


@pytest.mark.seed("S1-91")
@virtual
async def test_of_two_processes_with_one_name_that_register_together_the_later_one_stays() -> None:
    disk = RegionDisk()
    async with running(disk, store=Slow) as term:
        older, newer = Server(term, "s1", 5), Server(term, "s1", 6)
        first = asyncio.ensure_future(older.register())
        await asyncio.sleep(WRITE_S / 2)
        second = asyncio.ensure_future(newer.register())
        assert isinstance(await first, Registered)  # it was the only one then
        assert isinstance(await second, Registered)
        first = asyncio.ensure_future(Server(term, "s2", 6).register())
        await asyncio.sleep(WRITE_S / 2)
        second = asyncio.ensure_future(Server(term, "s2", 5).register())
        assert isinstance(await first, Registered)
        refused = await second
        assert isinstance(refused, Refused)
        assert refused.code == protocol.DEAD
        model = term.env.model
        states = {key: one.state for key, one in model.servers.items()}
        assert states["s2", 6] is states["s1", 6] is ServerState.ONLINE
        assert states["s2", 5] is states["s1", 5] is ServerState.CRASHED
        assert model.servers.keys() == disk.servers.keys()


@pytest.mark.parametrize("after_ms", range(0, 900, 50))
def test_a_server_that_leaves_while_a_region_is_sent_to_it_gives_it_away_first(after_ms: int) -> None:
    """Its row goes last: without it another daemon would take the region for lost, and assign it a second time."""

    @virtual
    async def test() -> None:
        disk = RegionDisk()
        async with running(disk, store=Slow) as term:
            leaver, stays = Server(term, "s1"), Server(term, "s2")
            async with serving(leaver, stays):
                made = asyncio.ensure_future(ended(term, creates(term, regions=4)))
                await asyncio.sleep(after_ms / 1000)
                while True:
                    left = await leaver.ask(protocol.Leave("s1", 1, leaver.epoch))
                    rows = {one.server for one in disk.regions.values()} - {""}
                    assert rows <= {name for name, _ in disk.servers}
                    assert isinstance(left, Left)
                    if not left.regions:
                        break
                    await asyncio.sleep(0.05)
                assert not leaver.has
                assert list(disk.servers) == list(term.env.model.servers) == [("s2", 1)]
                await made
                await until(lambda: len(stays.has) == 4)

    test()


@virtual
async def test_a_server_that_asks_again_whether_it_has_left_is_not_sent_back() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "s1")
        await server.register()
        leave = protocol.Leave("s1", 1, server.epoch)
        assert await server.ask(leave) == Left(1)  # its drain has not begun
        await asyncio.sleep(0.1)
        assert await server.ask(leave) == Left(0)
        assert not term.env.model.servers
        assert await server.ask(leave) == Left(0)


@virtual
async def test_a_fence_ends_in_time_although_the_wall_clock_was_set_back_before_a_failover() -> None:
    disk, wall = RegionDisk(), Wall()
    async with running(disk, wall=wall) as term:
        server = Server(term, "s1")
        async with serving(server):
            await ended(term, creates(term))
        term.manager.expire(term.env.model.servers["s1", 1], "test")
        await until(lambda: any(one.kind == "crash" and one.deadline_ms for one in term.engine.live()))
    wall.ahead_ms = -3_600_000
    async with running(disk, wall=wall) as term, serving(Server(term, "s2")):
        began_s = asyncio.get_running_loop().time()
        await until(lambda: str(regions_of(term)[0].server) == "s2,1")
        assert asyncio.get_running_loop().time() - began_s < 6.0


@virtual
async def test_leases_begin_after_the_load() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "s1")):
        await ended(term, creates(term))
    async with running(disk, store=SlowToLoad) as term:
        await asyncio.sleep(1.0)
        assert term.env.model.servers["s1", 1].state is ServerState.ONLINE


@virtual
async def test_a_daemon_whose_store_was_taken_over_refuses_servers_and_ends_its_term() -> None:
    disk = RegionDisk()
    opened = MemoryRegionStore(disk)
    term = RegionsTerm(opened, opened, opened.epoch, OPTIONS, wall_ms=Wall())
    await term.load()
    run = asyncio.ensure_future(term.run())
    MemoryRegionStore(disk)
    refused = await Server(term, "s1").register()
    assert isinstance(refused, Refused)
    assert refused.code == protocol.NOT_ACTIVE
    with pytest.raises(StoreFailed, match="another daemon"):
        await run


@virtual
async def test_a_process_that_is_expired_while_it_leaves_does_not_come_back() -> None:
    disk = RegionDisk()
    async with running(disk, store=Slow) as term:
        server = Server(term, "s1")
        async with serving(server):
            leave = protocol.Leave("s1", 1, server.epoch)
            assert await server.ask(leave) == Left(1)
            await until(lambda: not list(term.engine.live()))
            await asyncio.sleep(2 * WRITE_S)
            last = asyncio.ensure_future(server.ask(leave))
            await asyncio.sleep(WRITE_S / 2)
            term.manager.expire(term.env.model.servers["s1", 1], "operator")
            assert await last == Left(0)
        await until(lambda: not list(term.engine.live()))
        await asyncio.sleep(4 * WRITE_S)
        refused = await server.register()
        assert isinstance(refused, Refused)
        assert refused.code == protocol.DEAD
        assert not term.env.crashing
    async with running(disk) as term:
        refused = await Server(term, "s1").register()
        assert isinstance(refused, Refused)
        assert refused.code == protocol.DEAD, "the next daemon knows it, too"


@virtual
async def test_a_step_that_meets_a_store_that_failed_ends_the_term() -> None:
    disk = RegionDisk()
    opened = MemoryRegionStore(disk)
    term = RegionsTerm(opened, opened, opened.epoch, OPTIONS, wall_ms=Wall())
    await term.load()
    await term.engine._pids.reserve(1)
    run = asyncio.ensure_future(term.run())
    made = asyncio.ensure_future(creates(term))
    MemoryRegionStore(disk)
    with pytest.raises(StoreFailed, match="another daemon"):
        await run
    term.close(StoreFailed("over"))
    await asyncio.gather(made, return_exceptions=True)


@virtual
async def test_a_crash_that_an_operator_ends_begins_anew_and_its_process_stays_out() -> None:
    """Other servers may have its regions already, however the procedure ends."""
    disk = RegionDisk()
    async with running(disk) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
            [region] = regions_of(term)
            had = lists([region])
        polls = asyncio.ensure_future(_only_polls(Server(term, "b")))
        await until(lambda: str(region.server) == "b,1")
        assert await term.engine.bypass(region.pid)
        refused = await Server(term, "a").register(*had)
        assert isinstance(refused, Refused)
        assert refused.code == protocol.DEAD
        await until(lambda: ("a", 1) not in disk.servers)
        polls.cancel()
    async with running(disk) as term, serving(Server(term, "c")):
        assert isinstance(await Server(term, "a").register(*had), Refused)
        [region] = regions_of(term)
        await until(lambda: region.state is RegionState.CLOSED and not region.pid)
        await ended(term, procedure(term, assign.NAME, TRANSIT.encode(Transit(region.id, "t"))))
        assert str(region.server) == "c,1"
        assert ("b", 1) not in term.env.claimants.processes


@virtual
async def test_a_process_whose_crash_an_operator_ended_stays_out_of_the_next_term_and_crashes_anew() -> None:
    """It was not released yet, so nothing but the record of that crash tells the next daemon."""
    disk = RegionDisk()
    async with running(disk) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
        term.manager.expire(term.env.model.servers["a", 1], "a test")
        [crashed] = await until(lambda: [one for one in term.engine.live() if one.kind == crash.NAME])
        assert await term.engine.bypass(crashed.pid)
        await until(lambda: term.engine.records[crashed.pid].state.is_final)
        disk.opened += 1  # the daemon dies before the crash begins anew
    async with running(disk) as term, serving(Server(term, "c")):
        refused = await Server(term, "a").register(*lists(regions_of(term)))
        assert isinstance(refused, Refused)
        assert refused.code == protocol.DEAD
        await until(lambda: {str(one.server) for one in regions_of(term)} == {"c,1"})


@virtual
async def test_a_process_whose_crash_has_a_record_that_cannot_be_used_stays_out_and_crashes_anew() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
    for one in (
        Record(2_001, crash.NAME, State.WAITING, 1, 1, 1, data=CRASH.encode(Crash("a", 1)), done=(0,), born=(2_002,)),
        Record(2_002, "newer", State.RUNNABLE, 0, 1, 1, parent=2_001, ancestors=(2_001,)),
    ):
        disk.bodies[one.pid] = codec.sealed(one)
    async with running(disk) as term, serving(Server(term, "c")):
        assert term.engine.unusable.keys() == {2_001, 2_002}
        assert isinstance(await Server(term, "a").register(*lists(regions_of(term))), Refused)
        await until(lambda: {str(one.server) for one in regions_of(term)} == {"c,1"})
        assert await term.engine.remove(2_001) == [2_001, 2_002]


@virtual
async def test_a_process_counts_as_crashed_from_the_moment_at_which_an_operators_request_is_durable() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        server = term.env.model.servers["a", 1]
        seen: list[ServerState] = []
        term._entered = lambda moved: seen.extend(server.state for one in moved if one.after.kind == crash.NAME)
        await procedure(term, crash.NAME, CRASH.encode(Crash("a", 1)))
        assert seen[0] is ServerState.CRASHED


@virtual
async def test_a_process_that_an_operator_expires_as_its_lease_ends_crashes_once() -> None:
    async with running(RegionDisk(), store=Slow) as term, serving(Server(term, "b")):
        async with serving(Server(term, "a")):
            operator = Operator(lambda: term)
            expired = asyncio.ensure_future(operator.does("servers expire a"))
            await asyncio.sleep(WRITE_S / 2)
            term.manager.expire(term.env.model.servers["a", 1], "no poll for a lease")
            assert isinstance(await operator.does("servers expire a"), Refusal)
            found = await expired
        assert isinstance(found, Procedure)
        assert [one.pid for one in term.engine.live() if one.kind == crash.NAME] == [found.pid]
        again = await operator.does("servers expire a")
        assert isinstance(again, Procedure)
        assert again.pid == found.pid


@virtual
async def test_a_crash_opens_no_region_of_a_table_that_is_to_be_closed_and_leaves_its_lock_alone() -> None:
    """Batches of several crashes that open nothing would take turns with the lock that the change waits for."""
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=2))
        [region] = [one for one in regions_of(term) if str(one.server) == "a,1"]
        term.env.endings.begin(Ending(9_999, "disable_table", "t", TableState.DISABLING))
        await until(lambda: ("a", 1) not in term.env.model.servers)
        assert not [one for one in term.engine.records.values() if one.kind == many.ASSIGN_MANY]
        assert (region.state, region.server, region.pid) == (RegionState.OFFLINE, None, 0)
        assert disk.regions[region.id].state == RegionState.OFFLINE
        assert term.env.endings.over(9_999) == [region], "it is opened where the table stays as it is"


async def _only_polls(server: Server) -> None:
    """Takes operations, and does none."""
    await server.register()
    while True:
        await server.poll()


@virtual
async def test_the_names_of_fenced_servers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is forgotten cannot bring its regions back either; the names of members are never forgotten."""
    monkeypatch.setattr(model, "BURIED_MAX", 3)
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "keeper", 2)):
        await ended(term, creates(term))
        disk.buried["keeper"] = term.env.model.buried["keeper"] = 1
        for number in range(6):
            await Server(term, f"s{number}").register()
            await asyncio.sleep(0.01)
        await until(lambda: [str(one) for one in term.env.model.servers.values()] == ["keeper,2"])
        assert len(disk.buried) == 7, "all were members at the time"
        await Server(term, "s6").register()
        await until(lambda: ("s6", 1) not in term.env.model.servers)
        assert disk.buried == term.env.model.buried == {"keeper": 1, "s4": 1, "s5": 1, "s6": 1}
        found = await Server(term, "s0").register(*lists(regions_of(term)))
        assert isinstance(found, Refused)
        assert found.code == protocol.DEAD
        assert isinstance(await Server(term, "s0").register(), Registered), "without regions it is as good as a new one"
    async with running(disk) as term:
        assert list(term.env.model.buried) == ["keeper", "s4", "s5", "s6"]


@virtual
async def test_processes_of_servers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SERVERS_MAX", 2)
    async with running(RegionDisk()) as term:
        first = Server(term, "a")
        for one in (first, Server(term, "b")):
            assert isinstance(await one.register(), Registered)
        refused = await Server(term, "c").register()
        assert isinstance(refused, Refused)
        assert (refused.code, "'c'" in refused.text, "2 processes" in refused.text) == (protocol.FULL, True, True)
        assert "'regent servers list'" in refused.text
        assert isinstance(await first.register(), Registered)
        long = await Server(term, "\N{SNOWMAN}" * 40).register()
        assert isinstance(long, Refused)
        assert "360 bytes" in long.text
