"""Truncate a table: its regions are replaced by new ones that begin empty, with the same keys or as one region.

The table is out of sight from the begin on, and nothing is undone then: the data of its regions may be gone by now. An
ended truncation is begun again, or the table is deleted.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import tables
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from metadata_store.catalog.rows import DropRegions, NewRegions, RegionRow
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Done, Failed, Next, Outcome
from state_machines.procedures.record import Record
from state_machines.regions.changes import truncation_problem
from state_machines.regions.model import Region, Table
from state_machines.regions.states import RegionState, TableState

ROWS: Final = 1
EMPTIED: Final = 2
"""Steps of a truncation."""


async def begin(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Takes the table out of sight, and reserves the ids of its new regions."""
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables.get(task.table)
    count = 1 if table is None or task.drops_splits else len(table.regions)
    first = await env.reserve(count)
    if (why := _problem(env, task)) is not None:
        return Failed(f"{record.kind}: {why}")
    begun = replace(record, data=TABLE_TASK.encode(replace(task, first_id=first)))
    return tables.begun(env, begun, TableState.TRUNCATING, ROWS)


def _problem(env: RegionsEnv, task: TableTask) -> str | None:
    table = env.model.tables.get(task.table)
    if table is None:
        return None  # the begin of any change of a table says so
    if why := env.model.damages.of_rows(task.table):
        return f"table {task.table} cannot be truncated whole ({why}): stop the daemon, restore its rows, then start it"
    return truncation_problem(table, drops_splits=task.drops_splits)


async def rows(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Replaces some regions, as many as a step may."""
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables[task.table]
    if task.drops_splits:
        return _as_one(env, record, table, task)
    left = table.regions[task.made :]
    keys = env.fit((one.start, one.end) for one in left)
    old = left[: max(1, len(keys) // 2)]  # each is one row that goes, and one that comes
    made = task.made + len(old)
    new = [RegionRow(one, table.name, start, end, RegionState.OFFLINE) for one, (start, end) in _numbered(task, keys)]
    new = new[: len(old)]

    def entered(_: Change) -> None:
        env.model.replace_from(table, task.made, _regions(env, table, new))
        env.journal.made(table, table.regions[task.made : made], record.pid)

    step = EMPTIED if made >= len(table.regions) else record.step
    writes = (DropRegions(tuple(one.id for one in old)), NewRegions(tuple(new)))
    return Effect(Next(step, TABLE_TASK.encode(replace(task, made=made))), writes, entered)


def _numbered(task: TableTask, keys: list[tuple[bytes, bytes]]) -> list[tuple[int, tuple[bytes, bytes]]]:
    return list(enumerate(keys, task.first_id + task.made))


def _regions(env: RegionsEnv, table: Table, new: list[RegionRow]) -> list[Region]:
    now_ms = env.now_ms()
    return [Region(one.id, table, one.start, one.end, RegionState.OFFLINE, changed_ms=now_ms) for one in new]


def _as_one(env: RegionsEnv, record: Record, table: Table, task: TableTask) -> Effect:
    """Removes some regions; the last ones make way for one that has all keys."""
    if len(table.regions) > max(1, env.rows_max - 1):
        return tables.some_dropped(env, table, Next(record.step, record.data))
    new = RegionRow(task.first_id, table.name, b"", b"", RegionState.OFFLINE)

    def entered(_: Change) -> None:
        env.model.drop_last(table, len(table.regions))
        found = _regions(env, table, [new])
        env.model.add_regions(table, found)
        env.journal.made(table, found, record.pid)

    writes = (DropRegions(tuple(one.id for one in table.regions)), NewRegions((new,)))
    return Effect(Next(EMPTIED, record.data), writes, entered)


async def emptied(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Enters that the table is whole again, and disabled as it was."""
    task: TableTask = TABLE_TASK.decode(record.data)
    end = Next(record.step + 1, record.data) if task.enables else Done()
    return tables.stated(env, record, TableState.DISABLED, end)


TRUNCATE_TABLE: Final = tables.kind(
    tables.TRUNCATE,
    (
        Step("begin", begin),
        Step("rows", rows),
        Step("emptied", emptied),
        Step("enable", tables.begin_enabling),
        Step("assign", tables.assign_regions),
        Step("enabled", tables.enabled),
    ),
    no_return=1,
)
