"""Most servers silent at once: the daemon doubts its own network for one lease, and no longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.regions.operator.reading import _warnings
from controller.regions.term import RegionsTerm
from state_machines.regions.states import ServerState
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import OPTIONS, Server, creates, ended, regions_of, running, until, virtual

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
        assert term.manager.silence.doubt is None


@virtual
async def test_most_of_them_have_one_lease_more_and_the_status_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent.regions")
    async with running(RegionDisk()) as term, members(term, "a", "b", "c") as found:
        await ended(term, creates(term, regions=6))
        began_s = await found.silent("a", "b")
        await asyncio.sleep(1.5 * LEASE_S)
        assert online(term) == {"a", "b", "c"}
        assert [one for one in _warnings(term) if one.startswith("2 of 3 servers do not poll")]
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
            assert term.manager.silence.doubt is not None
            found.poll("a", "b", "c")
            await until(lambda: term.manager.silence.doubt is None)
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
        await until(lambda: term.manager.silence.doubt)
        found.poll("a")
        await asyncio.sleep(1.5 * LEASE_S - (asyncio.get_running_loop().time() - began_s))
        assert online(term) == {"a", "b", "c"}
        await until(lambda: online(term) == {"a", "c"})
        assert asyncio.get_running_loop().time() - began_s < 2.2 * LEASE_S
