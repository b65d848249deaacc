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
from metadata_store.catalog.rows import DropRegions, NewRegions, ParentRow, Put, RegionRow
from regent_agent.protocol import DISCARD
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Done, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record
from state_machines.regions.changes import truncation_problem
from state_machines.regions.entities import Region, Table
from state_machines.regions.shapes import HEIRS_MAX
from state_machines.regions.states import RegionState, TableState

ROWS: Final = 1
EMPTIED: Final = 2
"""Steps of a truncation."""
ROWS_OF_REGION: Final = 3
"""Rows of one region: the one that goes, the one that comes, and the one by which its data is discarded."""
PAUSE_MS: Final = 500


async def begin(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Takes the table out of sight, and reserves the ids of its new regions."""
    task: TableTask = TABLE_TASK.decode(record.data)
    if (why := _problem(env, task)) is not None:
        return Failed(f"{record.kind}: {why}")
    table = env.model.tables.get(task.table)
    count = 1 if table is None or task.drops_splits else len(table.regions)
    first = await env.reserve(count)  # its lock keeps all else as it is
    begun = replace(record, data=TABLE_TASK.encode(replace(task, first_id=first, count=count)))
    return tables.begun(env, begun, TableState.TRUNCATING, ROWS)


def _problem(env: RegionsEnv, task: TableTask) -> str | None:
    table = env.model.tables.get(task.table)
    if table is None:
        return None  # the begin of any change of a table says so
    if why := env.model.damages.of_rows(task.table):
        return f"table {task.table} cannot be truncated whole ({why}): stop the daemon, restore its rows, then start it"
    return truncation_problem(table, drops_splits=task.drops_splits)


async def rows(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Replaces some regions, as many as a step may; those that go are remembered until their data is discarded."""
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables[task.table]
    if task.drops_splits:
        return _as_one(env, record, table, task)
    left = table.regions[task.made : task.made + max(1, env.rows_max // ROWS_OF_REGION)]
    keys = env.fit((one.start * ROWS_OF_REGION, one.end * ROWS_OF_REGION) for one in left)
    old, made = left[: len(keys)], task.made + len(keys)
    gone = _gone(env, table, old, [task.first_id + at for at in range(task.made, made)])
    if gone is None:
        return _awaits_room(env, record)
    new = [
        RegionRow(id_, table.name, one.start, one.end, RegionState.OFFLINE)
        for id_, one in enumerate(old, task.first_id + task.made)
    ]

    def entered(_: Change) -> None:
        env.model.replace_from(table, task.made, _regions(env, table, new))
        _remember(env, gone)
        env.journal.made(table, table.regions[task.made : made], record.pid)

    step = EMPTIED if made >= len(table.regions) else record.step
    writes = (DropRegions(tuple(one.id for one in old)), NewRegions(tuple(new)), *map(Put, gone))
    return Effect(Next(step, TABLE_TASK.encode(replace(task, made=made))), writes, entered)


def _regions(env: RegionsEnv, table: Table, new: list[RegionRow]) -> list[Region]:
    now_ms = env.now_ms()
    return [Region(one.id, table, one.start, one.end, RegionState.OFFLINE, changed_ms=now_ms) for one in new]


def _as_one(env: RegionsEnv, record: Record, table: Table, task: TableTask) -> Outcome | Effect:
    """Removes some regions; the last ones make way for one that has all keys."""
    if len(table.regions) > max(1, env.rows_max // ROWS_OF_REGION):
        return _dropped(env, record, table, Next(record.step, record.data), task.first_id)
    new = RegionRow(task.first_id, table.name, b"", b"", RegionState.OFFLINE)
    last = _dropped(env, record, table, Next(EMPTIED, record.data), task.first_id)
    if not isinstance(last, Effect) or last.entered is None:
        return last
    dropped = last.entered

    def entered(change: Change) -> None:
        dropped(change)
        found = _regions(env, table, [new])
        env.model.add_regions(table, found)
        env.journal.made(table, found, record.pid)

    return Effect(last.outcome, (*last.rows, NewRegions((new,))), entered)


async def drop(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes some regions of a table that is restored; the step is repeated until none is left."""
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables[task.table]
    if not table.regions:
        return Next(record.step + 1, record.data)
    return _dropped(env, record, table, Next(record.step, record.data), task.first_id)


def _dropped(env: RegionsEnv, record: Record, table: Table, outcome: Outcome, heir: int) -> Outcome | Effect:
    """Removes the last regions of a table. ``heir``: the region, or the first of those, that get their keys."""
    old = table.regions[-max(1, env.rows_max // ROWS_OF_REGION) :]
    gone = _gone(env, table, old, [heir] * len(old))
    if gone is None:
        return _awaits_room(env, record)

    def entered(_: Change) -> None:
        env.model.drop_last(table, len(old))
        _remember(env, gone)

    return Effect(outcome, (DropRegions(tuple(one.id for one in old)), *map(Put, gone)), entered)


def _gone(env: RegionsEnv, table: Table, old: list[Region], heirs: list[int]) -> list[ParentRow] | None:
    """Returns what is remembered of regions whose data is to be discarded; None while there is no room for that.

    Where servers discard no data nothing is remembered: all of it is the service's to remove. After a failover that is
    known once all servers have come.
    """
    if env.model.servers and not any(DISCARD in one.features for one in env.model.servers.values()):
        return None if env.unregistered() else []
    if len(env.model.parents) + len(old) > HEIRS_MAX:
        return None
    return [
        ParentRow(one.id, table.name, one.start, one.end, one.state, (heir,), one.token, one.sequence)
        for one, heir in zip(old, heirs, strict=True)
    ]


def _remember(env: RegionsEnv, gone: list[ParentRow]) -> None:
    env.model.parents.update((one.id, one) for one in gone)
    env.parents_ms.update((one.id, env.now_ms()) for one in gone)


def _awaits_room(env: RegionsEnv, record: Record) -> Wait:
    """Waits until servers have come, or have discarded the data of some of the regions that are remembered."""
    return Wait(env.wall_ms() + PAUSE_MS, record.data, durable=False)


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
