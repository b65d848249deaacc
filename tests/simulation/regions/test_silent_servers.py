"""Servers that do not poll, and may be frozen: nobody waits for them longer than for the fence of their own regions."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from controller.regions.dispatcher import WORKERS_MAX
from controller.regions.regime import LOG
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from state_machines.procedures.states import State
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import (
    OPTIONS,
    Server,
    creates,
    done,
    ended,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

LEASE_S = OPTIONS.lease_ms / 1000


def fencing(term: RegionsTerm) -> int:
    """Returns the pid of the procedure that fences a log, 0 without one."""
    return next((one.pid for one in term.engine.live() if one.kind == "fence_log"), 0)


async def polls(server: Server) -> None:
    """Keeps a lease, and does nothing."""
    while True:
        await server.poll()


@virtual
async def test_new_regions_go_to_servers_that_poll() -> None:
    async with running(RegionDisk()) as term:
        silent = Server(term, "a")
        await silent.register()
        async with serving(Server(term, "b")):
            await asyncio.sleep(LEASE_S * 0.6)
            began_s = asyncio.get_running_loop().time()
            await ended(term, creates(term, regions=4))
            assert {str(one.server) for one in regions_of(term)} == {"b,1"}
            assert asyncio.get_running_loop().time() - began_s < LEASE_S * 0.3, "none was sent to the other server"


@virtual
async def test_where_all_servers_are_silent_regions_are_sent_to_one_of_them() -> None:
    async with running(RegionDisk()) as term:
        late = Server(term, "a")
        await late.register()
        await asyncio.sleep(LEASE_S * 0.6)
        pid = await creates(term)
        await until(lambda: [str(one.server) for one in term.env.model.regions.values()] == ["a,1"])
        async with serving(late):
            assert (await term.engine.result(pid)).state is State.SUCCESS


@virtual
async def test_a_log_is_split_by_another_server_as_soon_as_the_first_one_is_silent() -> None:
    loop = asyncio.get_running_loop()
    async with running(RegionDisk(), replace(OPTIONS, fence=LOG)) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
        await Server(term, "b").register()
        began_s = loop.time()
        term.manager.expire(term.env.model.servers["a", 1], "a test")
        await until(lambda: term.env.dispatcher.expects(fencing(term)) == ("b", 1))
        async with serving(Server(term, "c")):
            [region] = regions_of(term)
            await until(lambda: str(region.server) == "c,1")
        assert loop.time() - began_s < LEASE_S, "the lease of the first one has not ended"


@virtual
async def test_a_server_that_was_left_and_has_done_the_work_has_its_result_taken() -> None:
    async with running(RegionDisk(), replace(OPTIONS, fence=LOG)) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
        slow, idle = Server(term, "b"), Server(term, "c")
        await slow.register()
        term.manager.expire(term.env.model.servers["a", 1], "a test")
        task = await slow.operation()
        await idle.register()
        polling = asyncio.ensure_future(polls(idle))
        await until(lambda: term.env.dispatcher.expects(task.pid) == ("c", 1))
        assert await slow.report(done(task)) == []
        assert not fencing(term)
        polling.cancel()


@virtual
async def test_work_on_a_log_counts_only_from_a_server_that_was_to_do_it() -> None:
    async with running(RegionDisk(), replace(OPTIONS, fence=LOG)) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
        worker, other = Server(term, "b"), Server(term, "c")
        await worker.register()
        term.manager.expire(term.env.model.servers["a", 1], "a test")
        task = await worker.operation()
        await other.register()
        assert await other.report(done(task)) == [], "it is not to repeat it"
        assert fencing(term) == task.pid
        await worker.report(done(task))
        assert not fencing(term)
        assert not term.env.dispatcher.is_worker(task.pid, ("b", 1))


@virtual
async def test_the_latest_servers_that_were_to_do_work_on_a_log_are_remembered() -> None:
    async with running(RegionDisk()) as term:
        dispatcher, count = term.env.dispatcher, WORKERS_MAX + 2
        for number in (0, *range(count)):
            name = f"s{number}"
            await Server(term, name).register()
            dispatcher.send(term.env.model.servers[name, 1], protocol.Task(7, "split", "a", 1, "p0"))
            dispatcher.take_back(7)
        found = [number for number in range(count) if dispatcher.is_worker(7, (f"s{number}", 1))]
        assert found == list(range(2, count))
        dispatcher.forget(7)
        assert not dispatcher.is_worker(7, (f"s{count - 1}", 1))


@virtual
async def test_a_region_has_no_route_from_the_moment_on_that_its_server_counts_as_crashed() -> None:
    async with running(RegionDisk(), replace(OPTIONS, fence=LOG)) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term))
            found = await server.ask(protocol.Locate("t", b""))
            assert isinstance(found, protocol.Routes)
            assert [one.server for one in found.routes] == ["a"]
            follow = asyncio.ensure_future(server.ask(protocol.Follow(found.epoch, found.change, ["t"])))
            await asyncio.sleep(0.1)
            term.manager.expire(term.env.model.servers["a", 1], "a test")
            changes = await follow
        assert isinstance(changes, protocol.Changes)
        located = await server.ask(protocol.Locate("t", b""))
        assert isinstance(located, protocol.Routes)
        assert [one.server for one in (*changes.routes, *located.routes)] == ["", ""]
        assert regions_of(term)[0].server is not None, "it is fenced first"
