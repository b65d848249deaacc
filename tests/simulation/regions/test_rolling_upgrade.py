"""Servers of an older version beside newer ones: what each has said that it can do decides what it gets."""

from __future__ import annotations

import asyncio

import pytest

from controller.regions.procedures import region_work
from controller.regions.procedures.messages import REGION_WORK, RegionWork
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import HeirRow, Put
from regent_agent import protocol
from regent_agent.protocol import INHERIT, Operation, Owned, Refused, Registered, Result
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.shapes import Source
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    ended,
    procedure,
    regions_of,
    running,
    serving,
    transits,
    until,
    virtual,
)

WORK = "x-compact"


class Versioned(Server):
    """A server of a version, with its features; it notes the operations that it was told."""

    def __init__(self, term: RegionsTerm, name: str, incarnation: int, software: str, *features: str) -> None:
        super().__init__(term, name, incarnation)
        self.software, self.features = software, features
        self.told: list[Operation] = []

    async def register(self, *owned: Owned) -> Registered | Refused:
        mine = [*owned, *(Owned(*one) for one in self.has.items())]
        address = f"{self.name}:1"
        request = protocol.Register(self.name, self.incarnation, address, self.software, mine, list(self.features))
        found = await self.ask(request)
        assert isinstance(found, Registered)
        self.epoch, self.taken = found.epoch, 0
        return found

    def do(self, operation: Operation) -> Result:
        self.told.append(operation)
        return super().do(operation)


async def worked(term: RegionsTerm, region: Region) -> Record:
    task = RegionWork(region.id, "t", WORK, tries_max=1)
    return await term.engine.result(await procedure(term, region_work.NAME, REGION_WORK.encode(task)))


async def leaves(server: Server) -> None:
    """Has a process leave: it repeats its request until its regions are elsewhere, as the agent does."""
    while True:
        found = await server.ask(protocol.Leave(server.name, server.incarnation, server.epoch))
        assert isinstance(found, protocol.Left), found
        if not found.regions:
            return
        await asyncio.sleep(0.1)


@pytest.mark.seed("S1-97", "S3-19")
@virtual
async def test_work_goes_to_the_version_that_does_it_while_servers_are_replaced_one_by_one() -> None:
    async with running(RegionDisk()) as term:
        old = [Versioned(term, name, 1, "1.0") for name in "ab"]
        new = [Versioned(term, name, 2, "2.0", WORK) for name in "ab"]
        async with serving(old[1]):
            async with serving(old[0]):
                await ended(term, creates(term, regions=4))
                for region in regions_of(term):
                    refused = await worked(term, region)
                    assert refused.state is State.ROLLEDBACK
                    assert f"{region.server} does no work 'x-compact': start a version that names it" in refused.error
                assert {str(one) for one in term.env.lacking(WORK)} == {"a,1", "b,1"}
                await leaves(old[0])
            async with serving(new[0]):
                await leaves(old[1])
                assert len(new[0].has) == 4
                async with serving(new[1]):
                    assert not term.env.lacking(WORK)
                    for region in regions_of(term):
                        assert (await worked(term, region)).state is State.SUCCESS
        told = [one for server in old for one in server.told if isinstance(one, protocol.Work)]
        assert not told, "an older agent would not know the operation"
        assert {server.software for server in term.env.model.servers.values()} == {"2.0"}


@pytest.mark.seed("S1-66", "S3-19")
@virtual
async def test_a_region_whose_data_begins_in_that_of_another_waits_for_a_server_that_knows_it() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Versioned(term, "a", 1, "1.0")):
        await ended(term, creates(term, regions=2))
        for one in regions_of(term):
            await ended(term, transits(term, "close", one))
    heir, other = disk.regions
    source = Source(9, b"", b"", 5, 7)
    disk.put(Put(HeirRow(heir, (source,))))
    async with running(disk) as term, serving(old := Versioned(term, "a", 1, "1.0")):
        regions = {one.id: one for one in regions_of(term)}
        waiting = await transits(term, "assign", regions[heir])
        await ended(term, transits(term, "assign", regions[other]))
        await asyncio.sleep(OPTIONS.lease_ms / 1000)
        assert (set(old.has), term.engine.records[waiting].state.is_final) == ({other}, False)
        async with serving(new := Versioned(term, "b", 1, "2.0", INHERIT)):
            assert (await term.engine.result(waiting)).state is State.SUCCESS
            await until(lambda: set(new.has) == {heir})
    [opened] = [one for one in new.told if isinstance(one, protocol.Open)]
    assert opened.sources == [protocol.Source(*source)]
    assert [one.region for one in old.told if isinstance(one, protocol.Open)] == [other]
