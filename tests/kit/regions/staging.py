"""Servers that stage copies for snapshots of tables, and note the work that they do; stories of snapshots."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controller.regions.procedures import snapshots
from controller.regions.procedures.messages import SNAPSHOT_TASK, TABLE_TASK, SnapshotTask, TableTask
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Operation, Owned, Refused, Registered, Result
from state_machines.procedures.record import Record
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import Server, creates, ended, procedure, regions_of, running, serving

FEATURES = (protocol.INHERIT, protocol.STAGE, protocol.UNSTAGE, protocol.DISCARD, protocol.FLUSH)


class Worker(Server):
    """A server that notes the work that it does, and what its regions begin as. ``refuses``: work that fails."""

    features = FEATURES

    def __init__(self, term: RegionsTerm, name: str) -> None:
        super().__init__(term, name)
        self.works: list[tuple[str, int, bytes]] = []
        self.sources: dict[int, list[protocol.Source]] = {}
        self.refuses = self.hangs = ""

    async def register(self, *owned: Owned) -> Registered | Refused:
        """Registers it with what it has."""
        return await super().register(*(owned or [Owned(*one) for one in self.has.items()]))

    async def serve(self) -> None:
        """Does what it is told, until it is cancelled."""
        while True:
            operations = await self.poll()
            done = [self.do(one) for one in operations if not self._hangs(one)]
            if done:
                await self.report(*done)

    def _hangs(self, operation: Operation) -> bool:
        return isinstance(operation, protocol.Work) and operation.what == self.hangs

    def do(self, operation: Operation) -> Result:
        """Does an operation, and notes it."""
        if isinstance(operation, protocol.Open):
            self.sources[operation.region] = list(operation.sources)
        elif isinstance(operation, protocol.Work):
            if operation.what == self.refuses:
                return Result(operation.pid, protocol.FAILED, text="the disk is full")
            self.works.append((operation.what, operation.region, operation.data))
        return super().do(operation)


@asynccontextmanager
async def stage(disk: RegionDisk, regions: int = 4) -> AsyncIterator[tuple[RegionsTerm, Worker, Worker]]:
    """Runs a term with two servers and a table."""
    async with running(disk) as term:
        one, two = Worker(term, "a"), Worker(term, "b")
        async with serving(one, two):
            await ended(term, creates(term, regions=regions))
            yield term, one, two


async def snapshot(term: RegionsTerm, name: str = "s", table: str = "t", kind: str = snapshots.MAKE) -> Record:
    """Makes or deletes a snapshot, and awaits the end."""
    data = SNAPSHOT_TASK.encode(SnapshotTask(name, table))
    return await term.engine.result(await procedure(term, kind, data))


async def change(term: RegionsTerm, kind: str, table: str, **fields: object) -> Record:
    """Begins a change of a table, and awaits its end."""
    task = TableTask(table, **fields)  # type: ignore[arg-type]
    return await term.engine.result(await procedure(term, kind, TABLE_TASK.encode(task)))


def known_as(term: RegionsTerm, name: str = "s") -> bytes:
    """Returns what servers know a snapshot by."""
    return term.env.model.snapshots[name].identity.encode()


def works(what: str, *servers: Worker) -> list[tuple[int, bytes]]:
    """Returns the work of a kind that servers have done, by region."""
    return sorted((region, data) for one in servers for name, region, data in one.works if name == what)


def small(disk: RegionDisk, kind: type) -> list[object]:
    """Returns rows that come one at a time, of one kind."""
    return [one for one in disk.small.values() if isinstance(one, kind)]


def once_more(term: RegionsTerm) -> tuple[Worker, Worker]:
    """Returns the servers as they come to the next daemon, with what they have."""
    found = Worker(term, "a"), Worker(term, "b")
    for region in regions_of(term):
        for one in found:
            if region.server is not None and region.server.name == one.name:
                one.has[region.id] = region.token
    return found
