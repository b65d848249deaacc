"""Servers that are silent or hang: nobody waits for them for long, and the daemon doubts its own network first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from controller.http.procedures import Procedure
from controller.regions.dispatcher import WORKERS_MAX
from controller.regions.fencing import LOG
from controller.regions.operator.status import of_term
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState, ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    done,
    ended,
    polls,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.simulation.regions.cases import Case
from tests.simulation.regions.operating import Refusal
from tests.simulation.regions.test_named_ways import in_situation
from tests.simulation.regions.ways_out import ended_by_operator

LEASE_S = OPTIONS.lease_ms / 1000


class Members:
    """Servers by name, which poll or are silent."""

    def __init__(self, servers: list[Server]) -> None:
        self._servers = {one.name: one for one in servers}
        self._polls: dict[str, asyncio.Task[None]] = {}

    def poll(self, *names: str) -> None:
        """Has some servers poll from now on."""
        for name in names:
            self._polls[name] = asyncio.ensure_future(self._servers[name].serve())

    async def silent(self, *names: str) -> float:
        """Has some servers poll no more; returns when."""
        for name in names:
            self._polls[name].cancel()
        await asyncio.gather(*(self._polls.pop(name) for name in names), return_exceptions=True)
        return asyncio.get_running_loop().time()

    async def stop(self) -> None:
        await self.silent(*self._polls)


@asynccontextmanager
async def members(term: RegionsTerm, *names: str) -> AsyncIterator[Members]:
    """Registers servers, and has them poll."""
    servers = [Server(term, name) for name in names]
    for one in servers:
        await one.register()
    found = Members(servers)
    found.poll(*names)
    try:
        yield found
    finally:
        await found.stop()


def online(term: RegionsTerm) -> set[str]:
    return {one.name for one in term.env.model.servers.values() if one.state is ServerState.ONLINE}


@virtual
async def test_less_than_most_of_them_count_as_crashed_after_their_lease() -> None:
    async with running(RegionDisk()) as term, members(term, "a", "b") as found:
        began_s = await found.silent("a")
        await until(lambda: online(term) == {"b"})
        assert asyncio.get_running_loop().time() - began_s < 1.2 * LEASE_S
        assert term.manager.silence.doubt(term.env.clock()) is None


@virtual
async def test_most_of_them_have_one_lease_more_and_the_status_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent.regions")
    async with running(RegionDisk()) as term, members(term, "a", "b", "c") as found:
        await ended(term, creates(term, regions=6))
        began_s = await found.silent("a", "b")
        await asyncio.sleep(1.5 * LEASE_S)
        assert online(term) == {"a", "b", "c"}
        assert [one for one in of_term(term) if one.startswith("2 of 3 servers do not poll")]
        assert len([one for one in caplog.messages if "points to the network of this daemon" in one]) == 1
        await until(lambda: online(term) == {"c"})
        assert 1.7 * LEASE_S < asyncio.get_running_loop().time() - began_s < 2.2 * LEASE_S
        await until(lambda: {str(one.server) for one in regions_of(term)} == {"c,1"})
        assert "no poll for 3000 ms and one lease more, 3000 ms" in caplog.text


@virtual
async def test_those_that_poll_again_keep_their_regions_and_may_be_spared_again() -> None:
    async with running(RegionDisk()) as term, members(term, "a", "b", "c") as found:
        await ended(term, creates(term, regions=6))
        before = {one.id: str(one.server) for one in regions_of(term)}
        for _ in range(2):
            await found.silent("a", "b", "c")
            await asyncio.sleep(1.7 * LEASE_S)
            assert term.manager.silence.doubt(term.env.clock()) is not None
            found.poll("a", "b", "c")
            await until(lambda: term.manager.silence.doubt(term.env.clock()) is None)
        await asyncio.sleep(2 * LEASE_S)
        assert {one.id: str(one.server) for one in regions_of(term)} == before


@virtual
async def test_one_that_stays_silent_has_no_third_lease_while_the_others_are_back() -> None:
    async with running(RegionDisk()) as term, members(term, "a", "b", "c") as found:
        began_s = await found.silent("a", "b", "c")
        await asyncio.sleep(1.5 * LEASE_S)
        found.poll("b", "c")
        await until(lambda: online(term) == {"b", "c"})
        assert asyncio.get_running_loop().time() - began_s < 2.2 * LEASE_S


@virtual
async def test_servers_that_do_not_come_back_after_a_failover_have_one_lease_more() -> None:
    disk = RegionDisk()
    async with running(disk) as term, members(term, "a", "b", "c"):
        assert len(online(term)) == 3
    async with running(disk) as term:
        await asyncio.sleep(1.5 * LEASE_S)
        assert len(online(term)) == 3
        await until(lambda: not online(term))


@virtual
async def test_another_one_that_falls_silent_later_gives_the_first_ones_no_third_lease() -> None:
    async with running(RegionDisk()) as term, members(term, "a", "b", "c") as found:
        began_s = await found.silent("a", "b")
        await asyncio.sleep(0.9 * LEASE_S)
        await found.silent("c")
        await until(lambda: online(term) == {"c"})
        assert asyncio.get_running_loop().time() - began_s < 2.2 * LEASE_S


@virtual
async def test_one_server_alone_has_no_more_than_its_lease_and_two_that_are_silent_have() -> None:
    for names in (("a",), ("a", "b")):
        async with running(RegionDisk()) as term, members(term, *names) as found:
            began_s = await found.silent(*names)
            await until(lambda: not online(term))
            leases = (asyncio.get_running_loop().time() - began_s) / LEASE_S
            assert round(leases) == len(names)


@virtual
async def test_a_server_that_is_spared_with_the_first_one_stays_so_while_that_polls_again() -> None:
    async with running(RegionDisk()) as term, members(term, "a", "b", "c") as found:
        await found.silent("a")
        await asyncio.sleep(0.3 * LEASE_S)
        began_s = await found.silent("b")
        await until(lambda: term.manager.silence.doubt(term.env.clock()))
        found.poll("a")
        await asyncio.sleep(1.5 * LEASE_S - (asyncio.get_running_loop().time() - began_s))
        assert online(term) == {"a", "b", "c"}
        await until(lambda: online(term) == {"a", "c"})
        assert asyncio.get_running_loop().time() - began_s < 2.2 * LEASE_S


def fencing(term: RegionsTerm) -> int:
    """Returns the pid of the procedure that fences a log, 0 without one."""
    return next((one.pid for one in term.engine.live() if one.kind == "fence_log"), 0)


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


# -- an open that was given up


@in_situation("a move whose open hangs")
async def test_a_region_whose_open_was_given_up_is_assigned_to_another_server(case: Case) -> None:
    region = next(iter(case.term.env.model.transit.values()))
    await ended_by_operator(case, case.pid)
    for actor in case.actors.values():
        actor.heal()  # the open ends at last, and the region is closed
    await case.reaches(lambda: region.state is RegionState.CLOSED)
    [other] = [one for one in case.term.env.model.regions.values() if one is not region]
    await case.done(f"regions move {other.id} a")
    await case.begin_server("c")  # b would be chosen: it has no region, like c, and the first name
    case.faulty("b", open="hangs")
    await case.runs(f"regions assign {region.id}")
    await case.reaches(lambda: region.state is RegionState.OPEN)
    assert region.server is not None
    assert region.server.name != "b"


@pytest.mark.parametrize("pinned", [False, True])
def test_a_server_that_an_operator_names_is_not_passed_over(*, pinned: bool) -> None:
    @in_situation("a move whose open hangs")
    async def story(case: Case) -> None:
        region = next(iter(case.term.env.model.transit.values()))
        await ended_by_operator(case, case.pid)
        case.actors["b"].heal()
        await case.reaches(lambda: region.state is RegionState.CLOSED)
        if pinned:
            await case.done(f"regions pin {region.id} b")
        await case.done(f"regions assign {region.id}" + ("" if pinned else " b"))
        assert region.server is not None
        assert region.server.name == "b"

    story()


# -- one drain of a process


@in_situation("a drain whose close hangs")
async def test_a_second_drain_of_a_server_is_refused_with_the_pid_of_the_first(case: Case) -> None:
    refused = await case.operator.does("servers drain a")
    assert isinstance(refused, Refusal)
    assert f"procedure {case.pid} does that" in refused.text
    await ended_by_operator(case, case.pid)
    await asyncio.sleep(1)
    assert not case.live("drain_server")
    assert isinstance(await case.operator.does("servers drain a"), Procedure)


@in_situation("an enabled table")
async def test_of_two_drains_at_the_same_moment_one_is_refused(case: Case) -> None:
    case.faulty("a", close="hangs")
    found = await asyncio.gather(case.operator.does("servers drain a"), case.operator.does("servers drain a"))
    assert sorted(type(one).__name__ for one in found) == ["Procedure", "Refusal"]
    assert len(case.live("drain_server")) == 1


@in_situation("a drain whose close hangs")
async def test_a_forced_drain_is_taken_once_beside_one_that_is_not_forced(case: Case) -> None:
    assert case.server is not None
    assert isinstance(await case.operator.does("servers drain a --force"), Procedure)
    assert case.server.forced
    refused = await case.operator.does("servers drain a")
    assert isinstance(refused, Refusal)
    assert len(case.live("drain_server")) == 2
