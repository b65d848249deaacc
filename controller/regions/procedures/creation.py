"""Create a table: layout (ids and keys of its regions), metadata (their rows), then the descriptor.

These are HBase's steps. Clients see the table once its regions are assigned; before that an abort takes it back.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import tables
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from metadata_store.catalog.rows import NewRegions, PutTable, RegionRow, TableRow, Write
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Done, Failed, Next, Outcome
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region, Table, namespace_of
from state_machines.regions.layout import count_of, ranges
from state_machines.regions.states import RegionState, TableKind, TableState

METADATA: Final = 1
"""The step of a creation that stores rows."""
ESCAPED: Final = 6
"""Bytes of a control character in JSON."""


async def layout(env: RegionsEnv, record: Record) -> Outcome:
    """Checks the table, and reserves the ids of its regions."""
    task: TableTask = TABLE_TASK.decode(record.data)
    if task.table in env.model.tables:
        return Failed(f"table {task.table!r} exists already")
    if why := env.model.damages.of_table(task.table):
        return Failed(f"table {task.table!r} is stored already, and left out ({why}): restore its rows first")
    if namespace_of(task.table) not in env.model.namespaces:
        return Failed(f"namespace {namespace_of(task.table)!r} does not exist: create it first")
    first = await env.reserve(count_of(task.splits, task.uniform))
    return Next(record.step + 1, TABLE_TASK.encode(replace(task, first_id=first)))


async def metadata(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores some rows of its regions."""
    task: TableTask = TABLE_TASK.decode(record.data)
    taken_bytes = 0 if task.made else sum(ESCAPED * (len(key) + len(value)) for key, value in task.options.items())
    fitting = env.fit(ranges(task.splits, task.uniform, task.made), taken_bytes)
    last = task.made + len(fitting)
    some = [(one, start, end) for one, (start, end) in enumerate(fitting, task.first_id + task.made)]
    rows: tuple[Write, ...] = (
        NewRegions(tuple([RegionRow(one, task.table, start, end, RegionState.OFFLINE) for one, start, end in some])),
    )
    if not task.made:
        rows = (PutTable(_row(task)), *rows)

    def entered(_: Change) -> None:
        table = env.model.tables.get(task.table)
        if table is None:
            table = Table(task.table, TableKind(task.kind), TableState.CREATING, dict(task.options), [])
            env.model.add_table(table)
            env.journal.table(table.name, None, table.state, 0, record.pid)
        known = env.model.regions
        now_ms, state = env.now_ms(), RegionState.OFFLINE
        new = [Region(one, table, start, end, state, changed_ms=now_ms) for one, start, end in some if one not in known]
        env.model.add_regions(table, new)
        env.journal.made(table, new, record.pid)

    step = record.step + 1 if last == count_of(task.splits, task.uniform) else record.step
    return Effect(Next(step, TABLE_TASK.encode(replace(task, made=last))), rows, entered)


async def unmade(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the rows of a table that was not created: as many as a step may, once for each step that stored some."""
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables.get(task.table)
    if task.made == 0 or table is None:
        return Done()
    if record.done.count(METADATA) > 1:
        return tables.some_dropped(env, table, Done())
    return tables.dropped(env, record, task.table)


def _row(task: TableTask) -> TableRow:
    return TableRow(task.table, task.kind, TableState.CREATING, tuple(sorted(task.options.items())))


CREATE_TABLE: Final = tables.kind(
    tables.CREATE,
    (
        Step(tables.LAYOUT, layout),
        Step("metadata", metadata, unmade),
        Step("assign", tables.assign_regions),
        Step("descriptor", tables.enabled),
    ),
    no_return=2,
)
