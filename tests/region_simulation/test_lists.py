"""Lists of regions against the daemon's model: only a state older than a second is contradicted."""

from __future__ import annotations

import asyncio

import pytest

from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Accepted, Owned
from state_machines.regions.states import ServerState
from testing.memory.region_store import RegionDisk
from tests.region_simulation.kit import Server, creates, ended, lists, regions_of, running, serving, until, virtual


def is_online(term: RegionsTerm) -> bool:
    return term.env.model.servers["s1", 1].state is ServerState.ONLINE


@pytest.mark.seed("S3-17", "S3-36", "S3-37", "S3-38")
@virtual
async def test_a_list_without_a_region_counts_only_once_the_region_was_open_for_a_second() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "s1")
        async with serving(server):
            await ended(term, creates(term))
            await asyncio.sleep(0.9)
            empty = protocol.Regions("s1", 1, server.epoch, [])
            assert await server.ask(empty) == Accepted()
            assert is_online(term)
            await asyncio.sleep(0.3)
            full = protocol.Regions("s1", 1, server.epoch, lists(regions_of(term)))
            assert await server.ask(full) == Accepted()
            assert is_online(term)
            assert await server.ask(empty) == Accepted()
            assert not is_online(term)


@pytest.mark.seed("S3-9", "S3-16", "S3-17", "S3-36", "S3-38")
@virtual
async def test_a_region_that_is_elsewhere_is_closed_at_the_server_that_lists_it() -> None:
    async with running(RegionDisk()) as term:
        first, second = Server(term, "s1"), Server(term, "s2")
        async with serving(first):
            await ended(term, creates(term))
            async with serving(second):
                await asyncio.sleep(1.5)
                [region] = regions_of(term)
                second.has[region.id] = region.token - 1
                listed = protocol.Regions("s2", 1, second.epoch, [Owned(region.id, region.token - 1)])
                await second.ask(listed)
                await until(lambda: region.id not in second.has)
                assert first.has == {region.id: region.token}
                assert str(region.server) == "s1,1"


@virtual
async def test_a_list_that_comes_together_with_polls_and_reports_surprises_nobody() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "s1")
        async with serving(server):
            made = asyncio.ensure_future(ended(term, creates(term, regions=20)))
            while not made.done():
                owned = [Owned(id_, token) for id_, token in server.has.items()]
                await server.ask(protocol.Regions("s1", 1, server.epoch, owned))
                await asyncio.sleep(0.003)
            await asyncio.sleep(2.0)
            owned = [Owned(id_, token) for id_, token in server.has.items()]
            await server.ask(protocol.Regions("s1", 1, server.epoch, owned))
            assert is_online(term)
            assert len(owned) == 20
            assert not list(term.engine.live())


@virtual
async def test_a_server_lists_its_regions_from_time_to_time() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        asked, ends_s = 0, asyncio.get_running_loop().time() + 200
        while asyncio.get_running_loop().time() < ends_s:
            found = await server.ask(protocol.Poll("a", 1, server.epoch, server.taken))
            assert isinstance(found, protocol.Operations)
            asked += found.list_regions
        assert asked == 3
