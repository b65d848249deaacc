"""Servers that do work on regions, and stories of work that goes on."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from controller.regions.procedures import region_work, table_work
from controller.regions.procedures.messages import REGION_WORK, TABLE_WORK, RegionWork, TableWork
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import FAILED, Operation, Result, Work
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from tests.kit.regions.world import Server, creates, ended, procedure, regions_of, until

COMPACT = "x-compact"


class Worker(Server):
    """A server that does work in the way of a test.

    ``works``: what it was given; ``hangs``: it does not say anything about work. ``says``: outcomes before it does it.
    """

    features = (COMPACT, protocol.FLUSH)

    def __init__(self, term: RegionsTerm, name: str, incarnation: int = 1) -> None:
        super().__init__(term, name, incarnation)
        self.works: list[Work] = []
        self.hangs = False
        self.says: list[str] = []

    async def serve(self) -> None:
        while True:
            mine = [one for one in await self.poll() if not self.is_hung(one)]
            if mine:
                await self.report(*map(self.do, mine))

    def is_hung(self, operation: Operation) -> bool:
        if isinstance(operation, Work):
            self.works.append(operation)
        return self.hangs and isinstance(operation, Work)

    def do(self, operation: Operation) -> Result:
        if not isinstance(operation, Work):
            return super().do(operation)
        if operation.region and self.has.get(operation.region) != operation.token:
            return Result(operation.pid, FAILED, text="it is not here")
        if self.says:
            return Result(operation.pid, self.says.pop(0), text="no room")
        return Result(operation.pid, protocol.DONE, data=operation.data[::-1])


def works(term: RegionsTerm, region: Region, tries_max: int = 0, expires_ms: int = 0) -> Awaitable[int]:
    data = REGION_WORK.encode(RegionWork(region.id, "t", COMPACT, b"ab", "full", tries_max))
    return term.engine.submit(region_work.NAME, data, Caller("User:ops"), expires_ms=expires_ms)


def works_on_all(term: RegionsTerm, **more: Any) -> Awaitable[int]:
    return procedure(term, table_work.NAME, TABLE_WORK.encode(TableWork("t", COMPACT, b"ab", **more)))


async def at_work(term: RegionsTerm, server: Worker) -> tuple[Region, int]:
    """Creates a table, and begins work on its region that the server does not end; returns region and pid."""
    await ended(term, creates(term))
    server.hangs = True
    region = regions_of(term)[0]
    pid = await works(term, region)
    await until(lambda: server.works)
    return region, pid


async def failed(term: RegionsTerm, pid: int) -> str:
    record = await term.engine.result(pid)
    assert record.state is State.ROLLEDBACK
    return record.error


def free(term: RegionsTerm, region: Region) -> None:
    """Checks that nothing is left of work on a region."""
    assert (region.pid, term.env.model.transit, term.engine.locks()) == (0, {}, [])
    assert not term.env.dispatcher._expected
