"""Servers that open regions whose data begins in that of others, and stories of splits and merges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from msgspec.structs import replace

from controller.regions.procedures import merge, split
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Operation, Owned, Refused, Registered, Result
from state_machines.procedures.record import Record
from state_machines.regions.model import Region
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import OPTIONS, Server, creates, ended, procedure, regions_of, running, serving


class Transaction(NamedTuple):
    """One write of the store."""

    puts: list[Record]
    deletes: list[int]
    rows: list[object]


class Noting(MemoryRegionStore):
    """A store that notes its transactions."""

    def __init__(self, noted: list[Transaction], disk: RegionDisk) -> None:
        super().__init__(disk)
        self._noted = noted

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        one = Transaction(list(puts), list(deletes), list(rows))
        await super().write(one.puts, one.deletes, one.rows)
        self._noted.append(one)


class Inheriting(Server):
    """A server with features, which remembers what it was told to do. ``keys``: of regions, at which they are split."""

    features: tuple[str, ...] = (protocol.INHERIT, protocol.SPLIT_KEY, protocol.DISCARD)

    def __init__(self, term: RegionsTerm, name: str, incarnation: int = 1) -> None:
        super().__init__(term, name, incarnation)
        self.told: list[Operation] = []
        self.keys: dict[int, bytes] = {}

    async def register(self, *owned: Owned) -> Registered | Refused:
        message = protocol.Register(
            self.name, self.incarnation, f"{self.name}:1", owned=list(owned), features=list(self.features)
        )
        found = await self.ask(message)
        assert isinstance(found, Registered | Refused)
        if isinstance(found, Registered):
            self.epoch, self.taken = found.epoch, 0
        return found

    def do(self, operation: Operation) -> Result:
        self.told.append(operation)
        if isinstance(operation, protocol.Work) and operation.what == protocol.SPLIT_KEY:
            return Result(operation.pid, protocol.DONE, data=self.keys.get(operation.region, b""))
        return super().do(operation)

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
