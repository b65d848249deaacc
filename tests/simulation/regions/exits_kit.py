"""Servers that open nothing, and what tests of ways out do with a term."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from msgspec.structs import replace

from controller.regions.procedures import move
from controller.regions.procedures.messages import MOVE, TABLE_TASK, TRANSIT, Move, TableTask, Transit
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Open, Operation, Result
from state_machines.regions.model import Region
from state_machines.regions.states import RegionState
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
    until,
)

S = RegionState


class Broken(Server):
    """A server that opens nothing; ``hangs``: it does not even say so. It closes what it is to close."""

    hangs = False
    opened_s = 0.0

    async def serve(self) -> None:
        while True:
            operations = await self.poll()
            mine = [one for one in operations if not (self.hangs and isinstance(one, Open))]
            if mine:
                await self.report(*map(self.do, mine))

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, Open):
            return Result(operation.pid, protocol.FAILED_OPEN, text="no such codec")
        return super().do(operation)


class Hung(Broken):
    """A server whose opens never end."""

    hangs = True


def changes(term: RegionsTerm, kind: str) -> Awaitable[int]:
    return procedure(term, f"{kind}_table", TABLE_TASK.encode(TableTask("t")))


def transits(term: RegionsTerm, kind: str, region: Region) -> Awaitable[int]:
    return procedure(term, kind, TRANSIT.encode(Transit(region.id, "t")))


def moves(term: RegionsTerm, region: Region, to: str = "") -> Awaitable[int]:
    return procedure(term, move.NAME, MOVE.encode(Move(region.id, "t", to)))


async def creating(term: RegionsTerm, regions: int) -> int:
    """Begins the creation of a table; returns its pid once the table is there."""
    pid = await creates(term, regions=regions)
    await until(lambda: "t" in term.env.model.tables)
    return pid


async def known(pid: int) -> int:
    return pid


async def at_rest(term: RegionsTerm) -> None:
    """Waits until no procedure goes on; then nothing is locked, attached or in transition."""
    await until(lambda: not list(term.engine.live()) and not term.env.left)
    assert (term.engine.locks(), term.env.model.transit) == ([], {})
    assert not [one for one in term.env.model.servers.values() if one.expected]


@asynccontextmanager
async def one_region(disk: RegionDisk) -> AsyncIterator[tuple[RegionsTerm, Server, Region]]:
    """Runs a term with a region that server a has opened; the test sends what a says from now on."""
    async with running(disk, replace(OPTIONS, lease_ms=100_000)) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term))
        yield term, server, regions_of(term)[0]
