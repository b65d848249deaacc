"""Regions at two servers of three, and balances of them, in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec.structs import replace

from controller.regions.environment import Options
from controller.regions.procedures import balance
from controller.regions.procedures.balance_plan import (
    BALANCE_TASK,
    BalanceTask,
)
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region
from state_machines.regions.marks import Mark, MarkKind
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

LONG = replace(OPTIONS, lease_ms=100_000)
REGIONS = 9


@asynccontextmanager
async def lopsided(
    options: Options = LONG, disk: RegionDisk | None = None, third: type[Server] = Server
) -> AsyncIterator[tuple[RegionsTerm, list[Server]]]:
    """Runs a term with nine regions at servers a and b; c, which has none, comes last."""
    async with running(disk or RegionDisk(), options) as term, AsyncExitStack() as stack:
        servers = [Server(term, "a"), Server(term, "b"), third(term, "c")]
        await stack.enter_async_context(serving(*servers[:2]))
        await ended(term, creates(term, regions=REGIONS))
        await stack.enter_async_context(serving(servers[2]))
        yield term, servers


def counts(term: RegionsTerm) -> Counter[str]:
    """Returns how many regions each server has."""
    return Counter(one.server.name for one in regions_of(term) if one.server is not None)


async def balances(term: RegionsTerm, *, force: bool = False) -> int:
    return await procedure(term, balance.NAME, BALANCE_TASK.encode(BalanceTask(force=force)))


def task_of(term: RegionsTerm, pid: int) -> BalanceTask:
    task: BalanceTask = BALANCE_TASK.decode(term.engine.records[pid].data)
    return task


async def planned_by(term: RegionsTerm, pid: int) -> BalanceTask:
    """Waits until the plan of a balance is stored."""
    await until(lambda: task_of(term, pid).servers)
    return task_of(term, pid)


async def result(term: RegionsTerm, pid: int) -> Record:
    return await term.engine.result(pid)


def pin(term: RegionsTerm, region: Region, server: str = "a") -> None:
    term.env.model.marks.put(Mark(MarkKind.PIN, str(region.id), server))
