"""What a server sends is bounded before it becomes work, and what a daemon was told by another one is kept."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from controller.regions.comparison import STRAYS_TOGETHER
from controller.regions.dispatcher import BATCH_BYTES_MAX
from controller.regions.fencing import BOTH, LEASE, LOG, LeaseAndFence, fences_in
from controller.regions.procedures import servers
from controller.regions.procedures.crash import PARTS_TOGETHER
from controller.regions.procedures.messages import CRASH, TABLE_TASK, Crash, TableTask
from regent_agent import protocol
from regent_agent.protocol import Owned, Refused, Registered, Result
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    done,
    ended,
    lists,
    polls,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

LONG = replace(OPTIONS, lease_ms=30_000)


@virtual
async def test_a_region_that_is_open_with_a_sequence_that_cannot_be_stored_goes_to_no_other_server() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "b")):
        server = Server(term, "a")
        await server.register()
        await procedure(term, "create_table", TABLE_TASK.encode(TableTask("t", splits=(b"m",))))
        while not (operations := await server.poll()):
            pass
        await server.report(*(Result(one.pid, protocol.OPENED, 1 << 63) for one in operations))
        await until(lambda: all(one.state is RegionState.OPEN for one in regions_of(term)))
        assert {(str(one.server), one.sequence) for one in regions_of(term)} == {("a,1", 0), ("b,1", 1)}


@pytest.mark.parametrize("software", ["x" * 201, "a\nb"])
def test_a_version_that_is_no_text_is_refused(software: str) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk()) as term:
            found = await term.service.handle(protocol.Register("a", 1, "a:1", software))
            assert isinstance(found, Refused)
            assert found.code == protocol.INVALID
            assert "software" in found.text

    story()


@virtual
async def test_a_list_of_many_strays_becomes_a_bounded_number_of_procedures() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        await server.register(*(Owned(number, 1) for number in range(1, 5_001)))
        await asyncio.sleep(0.1)
        assert len(list(term.engine.live())) == STRAYS_TOGETHER


@virtual
async def test_a_batch_fits_into_a_frame() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        options = {"x": "y" * 200_000}
        await procedure(term, "create_table", TABLE_TASK.encode(TableTask("t", options=options, uniform=32)))
        sizes: list[int] = []
        while sum(sizes) < 32:
            operations = await server.poll()
            sizes.append(len(operations))
            assert len(operations) * 200_000 <= BATCH_BYTES_MAX
        assert max(sizes) > 1


class Splitting(Server):
    """A server that finds a log of many parts. ``split``: those that it has split; ``most``: at a time."""

    split: set[str]
    most: int

    async def serve(self) -> None:
        self.split, self.most = set(), 0
        while True:
            operations = await self.poll()
            self.most = max(self.most, sum(one.kind == "split_log" for one in self.term.engine.live()))
            for one in operations:
                assert isinstance(one, protocol.Open | protocol.Task)
                if isinstance(one, protocol.Task) and one.what == "fence":
                    await self.report(Result(one.pid, protocol.DONE, parts=[str(part) for part in range(250)]))
                    continue
                if isinstance(one, protocol.Task):
                    self.split.add(one.part)
                await self.report(done(one))


@virtual
async def test_a_log_of_many_parts_is_split_some_at_a_time() -> None:
    async with running(RegionDisk(), replace(OPTIONS, fence=LOG)) as term:
        worker = Splitting(term, "b")
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=2))
        async with serving(worker):
            await until(lambda: ("a", 1) not in term.env.model.servers)
        assert all(str(one.server) == "b,1" for one in term.env.model.regions.values())
    assert worker.split == {str(part) for part in range(250)}
    assert worker.most == PARTS_TOGETHER


# -- the regime


def test_the_longer_lease_and_both_fences_are_safe() -> None:
    assert LeaseAndFence(1, LEASE).united(LeaseAndFence(2, LEASE)) == LeaseAndFence(2, LEASE)
    assert LeaseAndFence(3, LOG).united(LeaseAndFence(2, LEASE)) == LeaseAndFence(3, "lease+log")
    assert LeaseAndFence(3, BOTH).united(LeaseAndFence(2, LOG)) == LeaseAndFence(3, "lease+log")


@virtual
async def test_a_server_keeps_the_lease_that_it_was_given_by_a_daemon_before() -> None:
    disk, loop = RegionDisk(), asyncio.get_running_loop()
    async with running(disk, LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=2))
    async with running(disk, OPTIONS) as term, serving(Server(term, "b")):
        began_s = loop.time()
        await until(lambda: all(str(one.server) == "b,1" for one in term.env.model.regions.values()))
        assert loop.time() - began_s >= LONG.lease_ms / 1000
        await until(lambda: term.env.former == LeaseAndFence(OPTIONS.lease_ms, OPTIONS.fence))
    async with running(disk, OPTIONS) as term:
        assert term.env.former.lease_ms == OPTIONS.lease_ms, "no server of the long lease is left"


@virtual
async def test_a_server_whose_log_was_to_be_fenced_is_fenced_by_its_log_also_later() -> None:
    disk = RegionDisk()
    async with running(disk, replace(OPTIONS, fence=LOG)) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
    async with running(disk, OPTIONS) as term:
        await until(lambda: [one for one in term.engine.live() if one.kind == "crash"])
        [record] = [one for one in term.engine.live() if one.kind == "crash"]
        found: Crash = CRASH.decode(record.data)
        assert fences_in(found.method) == {LEASE, LOG}


@virtual
async def test_the_fence_of_a_daemon_before_is_waited_for_with_its_lease() -> None:
    disk, loop = RegionDisk(), asyncio.get_running_loop()
    async with running(disk, LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        term.manager.expire(term.env.model.servers["a", 1], "a test")
        await until(lambda: [one for one in term.engine.live() if one.kind == "crash"])
    async with running(disk, OPTIONS) as term, serving(Server(term, "b")):
        began_s = loop.time()
        await until(lambda: all(str(one.server) == "b,1" for one in term.env.model.regions.values()))
        assert loop.time() - began_s >= LONG.lease_ms / 1000


@virtual
async def test_a_server_that_lost_the_response_to_its_registration_counts_as_under_the_regime_before() -> None:
    disk, loop = RegionDisk(), asyncio.get_running_loop()
    async with running(disk, replace(LONG, fence=LOG)) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        had = lists(regions_of(term))
    async with running(disk, OPTIONS) as term:
        began_s = loop.time()
        assert isinstance(await Server(term, "a").register(*had), Registered)
        [record] = await until(lambda: [one for one in term.engine.live() if one.kind == "crash"])
        assert loop.time() - began_s >= LONG.lease_ms / 1000
        found: Crash = CRASH.decode(record.data)
        assert fences_in(found.method) == {LEASE, LOG}
        assert disk.marks["regime", "domain"] != LeaseAndFence(OPTIONS.lease_ms, OPTIONS.fence).row.row


@virtual
async def test_a_server_that_polls_has_the_lease_and_the_fence_of_this_daemon() -> None:
    disk, loop = RegionDisk(), asyncio.get_running_loop()
    async with running(disk, replace(LONG, fence=LOG)) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        had = lists(regions_of(term))
    async with running(disk, OPTIONS) as term:
        server = Server(term, "a")
        await server.register(*had)
        await server.poll()
        began_s = loop.time()
        [record] = await until(lambda: [one for one in term.engine.live() if one.kind == "crash"])
        assert loop.time() - began_s < 2 * OPTIONS.lease_ms / 1000
        found: Crash = CRASH.decode(record.data)
        assert found.method == OPTIONS.fence
        assert term.env.former == LeaseAndFence(OPTIONS.lease_ms, OPTIONS.fence)


# -- what one procedure may not do to others


@virtual
async def test_a_drain_that_is_aborted_lets_its_server_get_regions_again() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=2))
        pid = await procedure(term, servers.DRAIN, CRASH.encode(Crash("a", 1)))
        await until(lambda: term.env.model.servers["a", 1].leaving)
        assert not list(term.env.model.online())
        assert await term.engine.abort(pid)
        await until(lambda: term.engine.records[pid].state.is_final)
        assert [str(one) for one in term.env.model.online()] == ["a,1"]


@virtual
async def test_a_crash_waits_for_no_table_that_is_slow_to_open() -> None:
    async with running(RegionDisk(), replace(OPTIONS, transit_max=2)) as term, serving(Server(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=2))
        slow = Server(term, "c")
        await slow.register()
        task = TableTask("slow", uniform=6)
        await procedure(term, "create_table", TABLE_TASK.encode(task))
        await until(lambda: len(term.env.model.transit) >= 2)
        polling = asyncio.ensure_future(polls(slow))
        await until(lambda: {str(one.server) for one in term.env.model.tables["t"].regions} <= {"b,1", "c,1"})
        assert len(term.env.model.transit) >= 2, "the other table is still on its way"
        polling.cancel()
