"""Stores that have lost rows of regions or have too many, and servers that keep data by the ids of regions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

from msgspec.structs import replace

from controller.http.procedures import Procedure
from controller.regions.domain import RegionsDomain
from controller.regions.operator.repairs import Adoption, Forgetting, Repairs
from controller.regions.operator.report import ReportView
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Operation, Owned, Result
from state_machines.procedures.record import Record
from state_machines.regions.findings import Scope
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import Inheriting
from tests.kit.regions.world import OPTIONS, Server, creates, ended, lists, regions_of, running, serving

LONG = replace(OPTIONS, lease_ms=100_000)
COUNT = 5
Data = dict[int, dict[bytes, bytes]]
"""What servers have stored, by the ids of regions."""


class Keeping(Inheriting):
    """A server that serves what is stored below the ids of its regions. ``data``: all servers share it."""

    def __init__(self, term: RegionsTerm, name: str, data: Data, incarnation: int = 1) -> None:
        super().__init__(term, name, incarnation)
        self.data = data

    def write(self, region: int, key: bytes, value: bytes) -> None:
        assert region in self.has
        self.data.setdefault(region, {})[key] = value

    def read(self, region: int, key: bytes) -> bytes | None:
        return self.data.get(region, {}).get(key) if region in self.has else None

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, protocol.Work) and operation.what == protocol.DISCARD:
            self.data.pop(int(operation.data), None)
        return super().do(operation)


def view_on(term: RegionsTerm) -> RegionsDomain:
    return cast("RegionsDomain", SimpleNamespace(term=term))


async def adopts(
    term: RegionsTerm,
    region: int,
    table: str = "t",
    *,
    start: str | None = None,
    end: str | None = None,
    dry_run: bool = False,
    reason: str = "its row is lost",
) -> Procedure:
    wanted = Adoption(table=table, start=start, end=end, reason=reason, dry_run=dry_run)
    return await Repairs(view_on(term)).adopt(region, wanted, "ops")


async def forgets(
    term: RegionsTerm,
    region: int,
    *,
    dry_run: bool = False,
    reason: str = "it cannot be right",
    leave_hole: bool = False,
) -> Procedure:
    wanted = Forgetting(reason=reason, dry_run=dry_run, leave_hole=leave_hole)
    return await Repairs(view_on(term)).forget(region, wanted, "ops")


async def result_of(term: RegionsTerm, begun: Procedure) -> Record:
    return await term.engine.result(begun.pid)


async def counts_of(term: RegionsTerm) -> dict[str, int]:
    return (await ReportView(view_on(term)).report(Scope())).counts


async def mends_of(term: RegionsTerm) -> list[str]:
    return [one.mend for one in (await ReportView(view_on(term)).report(Scope())).findings]


async def joins(term: RegionsTerm, server: Server, owned: list[Owned]) -> asyncio.Task[None]:
    """Registers a server with what it has; it serves then, and does what is wanted."""
    server.has = {one.region: one.token for one in owned}
    await server.register(*owned)
    return asyncio.ensure_future(server.serve())


@asynccontextmanager
async def changed(
    disk: RegionDisk, change: Callable[[RegionDisk, list[int]], None]
) -> AsyncIterator[tuple[RegionsTerm, list[Owned]]]:
    """Runs a term on a store that another tool has changed; server a had all of its regions, and lists them."""
    async with running(disk, LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=COUNT))
        owned = lists(regions_of(term))
    change(disk, [one.region for one in owned])
    async with running(disk, LONG) as term:
        yield term, owned


def without(*positions: int) -> Callable[[RegionDisk, list[int]], None]:
    """Loses the rows of some regions, by their positions in the table."""

    def change(disk: RegionDisk, ids: list[int]) -> None:
        for at in positions:
            del disk.regions[ids[at]]

    return change


def damaging(*positions: int, **fields: object) -> Callable[[RegionDisk, list[int]], None]:
    """Damages fields of the rows of some regions."""

    def change(disk: RegionDisk, ids: list[int]) -> None:
        for at in positions:
            disk.regions[ids[at]] = disk.regions[ids[at]]._replace(**fields)  # type: ignore[arg-type]

    return change
