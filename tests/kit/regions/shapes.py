"""Servers that open regions whose data begins in that of others, and stories of splits and merges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from controller.regions.procedures import merge, split
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Operation, Owned, Result
from state_machines.regions.entities import Region
from testing.memory.region_store import RegionDisk
from tests.kit.regions.noting import Told
from tests.kit.regions.world import OPTIONS, creates, ended, procedure, regions_of, running, serving


class Inheriting(Told):
    """A server with features, which remembers what it was told to do. ``keys``: of regions, at which they are split."""

    features: tuple[str, ...] = (protocol.INHERIT, protocol.SPLIT_KEY, protocol.DISCARD)

    def __init__(self, term: RegionsTerm, name: str, incarnation: int = 1) -> None:
        super().__init__(term, name, incarnation)
        self.keys: dict[int, bytes] = {}

    def do(self, operation: Operation) -> Result:
        found = super().do(operation)
        if isinstance(operation, protocol.Work) and operation.what == protocol.SPLIT_KEY:
            return Result(operation.pid, protocol.DONE, data=self.keys.get(operation.region, b""))
        return found

    async def operations(self, count: int) -> list[Operation]:
        """Polls until there were so many operations."""
        found: list[Operation] = []
        while len(found) < count:
            found += await self.poll()
        assert len(found) == count
        return found

    async def independent(self, *regions: Region) -> None:
        """Says that regions have data of their own."""
        owned = [Owned(one.id, one.token) for one in regions]
        await self.ask(protocol.Independent(self.name, self.incarnation, self.epoch, owned))


async def splits(term: RegionsTerm, region: Region, key: bytes = b"") -> int:
    """Begins a split; returns its pid."""
    return await procedure(term, split.NAME, await split.splitting(term.env, region, key, ""))


async def merges(term: RegionsTerm, regions: Sequence[Region]) -> int:
    """Begins a merge; returns its pid."""
    return await procedure(term, merge.NAME, await merge.merging(term.env, regions, ""))


@asynccontextmanager
async def one_inheriting(
    disk: RegionDisk, regions: int = 1, lease_ms: int = 100_000
) -> AsyncIterator[tuple[RegionsTerm, Inheriting, list[Region]]]:
    """Runs a term with regions that server a has opened; the test sends what a says from now on."""
    async with running(disk, replace(OPTIONS, lease_ms=lease_ms)) as term:
        server = Inheriting(term, "a")
        async with serving(server):
            await ended(term, creates(term, regions=regions))
        server.told.clear()
        yield term, server, list(regions_of(term))
