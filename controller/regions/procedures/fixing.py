"""Fix the keys of a table: keys that no region has get regions of their own, which begin empty.

The row of a region may be lost while a process serves that region still. So no region is made before each process has
listed what it has, and has closed what no row tells of: no key has two owners.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.process.wording import counted, named
from controller.regions.dispatcher import Key
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import many, messages
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from metadata_store.catalog.rows import NewRegions, RegionRow
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record
from state_machines.regions.changes import keys_problem
from state_machines.regions.entities import Region, Table
from state_machines.regions.findings import FindingKind, Scope
from state_machines.regions.heirs import Range
from state_machines.regions.report import Judge
from state_machines.regions.states import RegionState, TableState

NAME: Final = "fix_keys"
FIND: Final = 0
METADATA: Final = 1
OPEN: Final = 2
"""Point of no return: the record has this step from the write of the regions on."""
FILLED_MAX: Final = 50
"""Regions that one procedure makes: to put one into the list of a table with a million others takes about 1 ms."""
NAMED_MAX: Final = 3
"""Processes that one sentence names."""
S = RegionState


async def holes_of(env: RegionsEnv, table: Table, listed_max: int) -> list[Range]:
    """Returns the first of the key ranges that no region of a table has; other work goes on while it looks."""
    judge = Judge(env.model, Scope(table.name, FindingKind.HOLE, listed_max=listed_max, mends=False))
    for _ in judge.of_keys():
        await asyncio.sleep(0)
    return [(one.start, one.end) for one in judge.found.listed]


async def to_fill(env: RegionsEnv, table: Table) -> list[Range]:
    """Returns the key ranges to which one repair gives regions: as many as one step may write."""
    return env.fit(await holes_of(env, table, FILLED_MAX))


def waits_for(env: RegionsEnv) -> str:
    """Returns why keys may have an owner of which no row tells, and what ends that; empty where they have none."""
    if processes := sorted(env.claimants.processes):
        what = f"{_named(processes)} did not list their regions since the daemon started"
    elif (found := env.claimants.unknown(env.model.regions)) is not None:
        region, processes = found[0], sorted(found[1])
        what = f"{_named(processes)} has region {region}, of which no row tells, and is to close it"
    else:
        return ""
    return f"{what}; where that hangs, 'regent servers expire {processes[0][0]}' ends the process"


def progress_text(env: RegionsEnv, step: int, task: TableTask) -> str:
    """Says how many keys without a region have one, or what keeps these from it."""
    waits = waits_for(env) if step < OPEN else ""
    return f"it waits: {waits}" if waits else f"{task.made} of {counted(task.count, 'hole')} filled"


def _named(processes: Iterable[Key]) -> str:
    return named((f"{name},{incarnation}" for name, incarnation in processes), NAMED_MAX)


async def find(env: RegionsEnv, record: Record) -> Outcome:
    """Finds the keys that no region has, once no process can have them, and reserves ids."""
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables.get(task.table)
    if table is None:
        return Failed(f"{NAME}: table {task.table!r} does not exist")
    if (why := keys_problem(env.model, table)) is not None:
        return Failed(f"{NAME}: {why}")
    if (ending := env.endings.of(table)) is not None:
        return Failed(f"{NAME}: {ending.why()}")
    if waits_for(env):
        return _held(env, record)
    holes = await to_fill(env, table)
    if not holes:
        return Done(b"0")
    first = await env.reserve(len(holes))
    return Next(METADATA, TABLE_TASK.encode(replace(task, first_id=first, count=len(holes))))


def _held(env: RegionsEnv, record: Record) -> Wait:
    """Waits until each process has listed its regions, and has closed those of which no row tells."""
    env.claimants.held.add(record.pid)
    return Wait(0, record.data, durable=False)


async def metadata(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores the regions as closed: nothing but this procedure opens them."""
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables[task.table]
    if task.first_id <= env.copied_number:
        return Failed("the store was restored from a copy, and the new regions may have had data since: begin it again")
    holes = (await to_fill(env, table))[: task.count]
    if waits_for(env):  # behind the await: a list may have come meanwhile
        return _held(env, record)
    made = [(one, *keys) for one, keys in enumerate(holes, task.first_id)]
    rows = NewRegions(tuple(RegionRow(one, table.name, start, end, S.CLOSED) for one, start, end in made))

    def entered(_: Change) -> None:
        now_ms = env.now_ms()
        new = [Region(one, table, start, end, S.CLOSED, changed_ms=now_ms) for one, start, end in made]
        env.model.fill(table, new)
        env.journal.made(table, new, record.pid)

    return Effect(Next(OPEN, TABLE_TASK.encode(replace(task, made=len(made)))), (rows,), entered)


async def open_regions(env: RegionsEnv, record: Record) -> Outcome:
    """Has the new regions of an enabled table assigned."""
    task: TableTask = TABLE_TASK.decode(record.data)
    regions, table = _made(env, task), env.model.tables[task.table]
    if not regions or table.state is not TableState.ENABLED or env.endings.of(table) is not None:
        return Next(record.step + 1, record.data)
    batches = tuple(many.of_regions(many.ASSIGN_MANY, regions, task.why or "no region had its keys"))
    return Children(batches, record.step + 1, record.data)


async def end(env: RegionsEnv, record: Record) -> Outcome:
    """Ends the repair; the result counts new regions of an enabled table that could not be opened."""
    task: TableTask = TABLE_TASK.decode(record.data)
    wanted = env.model.tables[task.table].state is TableState.ENABLED
    return Done(b"%d" % (wanted and sum(one.state is not S.OPEN for one in _made(env, task))))


def _made(env: RegionsEnv, task: TableTask) -> list[Region]:
    ids = range(task.first_id, task.first_id + task.made)
    return [one for id_ in ids if (one := env.model.regions.get(id_)) is not None]


FIX_KEYS: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("find", find), Step("metadata", metadata), Step("open", open_regions), Step("end", end)),
    lambda record: messages.lock_of_keys(TABLE_TASK.decode(record.data).table),
    no_return=OPEN,
    holds_locks=True,
    members=messages.of_table,
)
