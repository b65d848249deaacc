"""Clone a table, or restore a snapshot: new regions begin as the data of others, and need them until it is their own.

A clone is a new table. A restore replaces the regions of a disabled one, and nothing of it is undone: their data may be
gone by now. The table that is cloned stays disabled, and the snapshot is there, as long as a region needs its data.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Step
from controller.process.wording import named
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import creation, messages, tables, truncation
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from metadata_store.catalog.rows import HeirRow, NewRegions, Put, PutTable, RegionRow, TableRow, Write
from regent_agent.protocol import INHERIT
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand
from state_machines.procedures.outcome import Failed, Next, Outcome
from state_machines.procedures.record import Record
from state_machines.regions.changes import too_many
from state_machines.regions.entities import Region, Table, namespace_of
from state_machines.regions.references import keys_lost, of_snapshot, of_table, source_problem
from state_machines.regions.reshaping import no_room
from state_machines.regions.shapes import Source
from state_machines.regions.states import RegionState, TableKind, TableState

ROWS_OF_REGION: Final = 2
"""Rows of one new region: its own, and the one of what it refers to."""


def clone_problem(env: RegionsEnv, task: TableTask) -> str | None:
    """Returns why a table cannot be cloned now; None where it can."""
    model = env.model
    if task.table in model.tables:
        return f"table {task.table!r} exists already"
    if why := model.damages.of_table(task.table):
        return f"table {task.table!r} is stored already, and left out ({why}): restore its rows first"
    if (namespace := namespace_of(task.table)) not in model.namespaces:
        return f"namespace {namespace!r} does not exist: create it first"
    return _source_problem(env, task) or too_many(task.table, {**_as_source(env, task)[1], **task.options})


def restore_problem(env: RegionsEnv, task: TableTask) -> str | None:
    """Returns why the regions of a table cannot be replaced by those of a snapshot; None where they can."""
    if why := env.model.damages.of_rows(task.table):
        return f"table {task.table} cannot be restored whole ({why}): stop the daemon, restore its rows, then start it"
    return _source_problem(env, task)


def _source_problem(env: RegionsEnv, task: TableTask) -> str | None:
    if (why := _missing(env, task)) is not None:
        return why
    if lacking := env.lacking(INHERIT):
        names = named(sorted(map(str, lacking)))
        return f"servers {names} do not have the feature {INHERIT!r}: start a version of them that has it"
    return no_room(env.model, count_of(env, task))


def _missing(env: RegionsEnv, task: TableTask) -> str | None:
    model = env.model
    if task.snapshot:
        return None if task.snapshot in model.snapshots else f"snapshot {task.snapshot!r} does not exist"
    source = model.tables.get(task.source)
    if source is None:
        return f"table {task.source!r} does not exist"
    if why := model.damages.of_rows(task.source):
        return f"table {task.source!r} cannot be cloned whole: {why}"
    return source_problem(model, source) or keys_lost(model, task.source)


def count_of(env: RegionsEnv, task: TableTask) -> int:
    """Returns how many regions the snapshot or the table has, as whose data others are to begin."""
    if task.snapshot:
        return env.model.snapshots[task.snapshot].row.regions
    return len(env.model.tables[task.source].regions)


def _sources(env: RegionsEnv, task: TableTask) -> list[Source]:
    """Returns as what the next regions begin: as many as one step may store."""
    regions_max = max(1, env.rows_max // ROWS_OF_REGION)
    if task.snapshot:
        found = list(islice(of_snapshot(env.model.snapshots[task.snapshot], task.made), regions_max))
    else:
        found = list(of_table(env.model.tables[task.source], task.made, task.made + regions_max))
    twice = ((one.start + one.start, one.end + one.end) for one in found)
    return found[: len(env.fit(twice))]


async def layout(env: RegionsEnv, record: Record) -> Outcome:
    """Checks the table and its source, and reserves the ids of its regions."""
    task: TableTask = TABLE_TASK.decode(record.data)
    if (why := clone_problem(env, task)) is not None:
        return Failed(f"{tables.CLONE}: {why}")
    count, (kind, options) = count_of(env, task), _as_source(env, task)
    first = await env.reserve(count)  # its locks keep all else as it is
    chosen = replace(task, first_id=first, count=count, kind=kind, options={**options, **task.options})
    return Next(record.step + 1, TABLE_TASK.encode(chosen))


def _as_source(env: RegionsEnv, task: TableTask) -> tuple[int, dict[str, str]]:
    if task.snapshot:
        row = env.model.snapshots[task.snapshot].row
        return row.kind, dict(row.options)
    source = env.model.tables[task.source]
    return source.kind, source.options


async def metadata(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores some regions, and as what they begin."""
    task: TableTask = TABLE_TASK.decode(record.data)
    if (why := keys_lost(env.model, task.source)) is not None:  # a row was lost since
        return Failed(f"{record.kind}: {why}")
    some = list(enumerate(_sources(env, task), task.first_id + task.made))
    last = task.made + len(some)
    offline = RegionState.OFFLINE
    rows = [RegionRow(one, task.table, source.start, source.end, offline) for one, source in some]
    writes: list[Write] = [NewRegions(tuple(rows)), *(Put(HeirRow(one, (source,))) for one, source in some)]
    makes = record.kind == tables.CLONE
    if makes and not task.made:
        options = tuple(sorted(task.options.items()))
        writes.insert(0, PutTable(TableRow(task.table, task.kind, TableState.CREATING, options)))

    def entered(_: Change) -> None:
        table = env.model.tables.get(task.table)
        if table is None:
            table = Table(task.table, TableKind(task.kind), TableState.CREATING, dict(task.options), [])
            env.model.add_table(table)
            env.journal.table(table.name, None, table.state, 0, record.pid)
        env.model.sources.update((one, (source,)) for one, source in some)
        now_ms = env.now_ms()
        new = [Region(row.id, table, row.start, row.end, offline, changed_ms=now_ms) for row in rows]
        env.model.add_regions(table, new)
        env.journal.made(table, new, record.pid)

    step = record.step + 1 if last == task.count else record.step
    return Effect(Next(step, TABLE_TASK.encode(replace(task, made=last))), tuple(writes), entered)


async def begin_restoring(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Takes the table out of sight, and reserves the ids of its new regions."""
    task: TableTask = TABLE_TASK.decode(record.data)
    if (why := restore_problem(env, task)) is not None:
        return Failed(f"{tables.RESTORE}: {why}")
    count = count_of(env, task)
    first = await env.reserve(count)  # its locks keep all else as it is
    chosen = TABLE_TASK.encode(replace(task, first_id=first, count=count))
    return tables.begun(env, replace(record, data=chosen), TableState.TRUNCATING)


def _demand(record: Record) -> Demand:
    """Demands the table, and what its regions begin as: others may read that, too."""
    task: TableTask = TABLE_TASK.decode(record.data)
    shared = messages.lock_of_snapshot(task.snapshot, exclusive=False)
    if not task.snapshot:
        shared = messages.share_of_table(task.source)
    return messages.lock_of_table(task.table)._replace(also=(shared,))


CLONE_TABLE: Final = tables.kind(
    tables.CLONE,
    (
        Step(tables.LAYOUT, layout),
        Step("metadata", metadata, creation.unmade),
        Step("assign", tables.assign_regions),
        Step("descriptor", tables.enabled),
    ),
    no_return=2,
    demand=_demand,
)
RESTORE_SNAPSHOT: Final = tables.kind(
    tables.RESTORE,
    (
        Step("begin", begin_restoring),
        Step("drop", truncation.drop),
        Step("metadata", metadata),
        Step("whole", truncation.emptied),
        Step("enable", tables.begin_enabling),
        Step("assign", tables.assign_regions),
        Step("enabled", tables.enabled),
    ),
    no_return=1,
    demand=_demand,
)
