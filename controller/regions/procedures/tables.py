"""Changes of tables: enable, disable, delete; one at a time for a table, with its exclusive lock.

Its steps are those of further changes, too: creations, truncations, clones and restores.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.endings import Ending
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import many, messages
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from metadata_store.catalog.rows import (
    DropMark,
    DropRegions,
    DropTable,
    MarkRow,
    PutMark,
    PutTable,
    TableRow,
    Write,
)
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Retry, Wait
from state_machines.procedures.record import Record
from state_machines.regions.changes import change_problem, partly_made
from state_machines.regions.entities import Table
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.references import needed_by
from state_machines.regions.states import IN_TRANSITION, WANTED, RegionState, TableState

LAYOUT: Final = "layout"
"""Name of the step that lays a new table out."""
PAUSE_MS: Final = 500
"""Pause before regions are closed that were not the first time."""
SUPERSEDED: Final = b"superseded by procedure "
"""Begin of the result of a change that a later one of the same table has ended."""
DROPS: Final = 1
CLOSES: Final = 2
"""Steps of a deletion."""
LASTING: Final = {TableState.ENABLING: TableState.ENABLED, TableState.DISABLING: TableState.DISABLED}
"""States that changes end with, by those that they begin with."""
SERVER_OF: Final = attrgetter("server")


def some_dropped(env: RegionsEnv, table: Table, outcome: Outcome) -> Effect:
    """Removes the last regions of a table that no request sees, as many as a step may."""
    some = table.regions[-env.rows_max :]
    return Effect(
        outcome, (DropRegions(tuple(one.id for one in some)),), lambda _: env.model.drop_last(table, len(some))
    )


def dropped(env: RegionsEnv, record: Record, name: str) -> Effect:
    """Removes a table with all of its regions."""

    def entered(_: Change) -> None:
        table = env.model.tables.get(name)
        if table is not None:
            env.journal.table(name, table.state, None, len(table.regions), record.pid)
        env.model.drop_table(name)

    return Effect(Done(), (DropTable(name),), entered)


async def assign_regions(env: RegionsEnv, record: Record) -> Outcome:
    """Has all its regions assigned."""
    return _in_batches(env, record, many.ASSIGN_MANY)


async def close_regions(env: RegionsEnv, record: Record) -> Outcome:
    """Has all its regions closed."""
    return _in_batches(env, record, many.CLOSE_MANY)


def _in_batches(env: RegionsEnv, record: Record, kind: str) -> Outcome:
    """Begins some batches; the step is repeated until all have ended.

    Nothing more is opened of a table that another change is to disable or delete.
    """
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables[task.table]
    if kind == many.ASSIGN_MANY and env.endings.of(table) is not None:
        return Next(record.step + 1, record.data)
    batches, begun = many.batches(kind, table, record.kind, task.begun)
    over = begun >= len(table.regions)
    data = TABLE_TASK.encode(replace(task, begun=0 if over else begun))

    def rest(count: int) -> bytes:
        return TABLE_TASK.encode(replace(task, begun=task.begun + count * many.TOGETHER))

    return Children(batches, record.step + 1 if over else record.step, data, rest=rest)


def stated(env: RegionsEnv, record: Record, state: TableState, outcome: Outcome) -> Effect:
    """Stores another state of a table, and enters it."""
    table = env.model.tables[TABLE_TASK.decode(record.data).table]

    def entered(_: Change) -> None:
        before, table.state = table.state, state
        env.journal.table(table.name, before, state, len(table.regions), record.pid)

    return Effect(outcome, (PutTable(row_of(table, state)),), entered)


def row_of(table: Table, state: TableState) -> TableRow:
    """Returns the row of a table that gets a state."""
    return TableRow(table.name, table.kind, state, tuple(sorted(table.options.items())), table.version)


async def enabled(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Enters that the table is enabled; the result counts regions that could not be opened.

    A table that another change is to disable or delete stays as it is, for that change, which the result names.
    """
    table = env.model.tables[TABLE_TASK.decode(record.data).table]
    closed = b"%d" % (len(table.regions) - table.count(RegionState.OPEN))
    if (ending := env.endings.of(table)) is not None:
        return Done(superseded(ending) if ending.begins is not None else closed)
    return stated(env, record, TableState.ENABLED, Done(closed))


def superseded(ending: Ending) -> bytes:
    """Returns the result of a change that a later one of the same table has ended."""
    return b"%s%d (%s)" % (SUPERSEDED, ending.pid, ending.kind.encode())


async def disabled(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Enters that the table is disabled, once no server has a region of it."""
    table = env.model.tables[TABLE_TASK.decode(record.data).table]
    return _closes_again(env, record, table) or stated(env, record, TableState.DISABLED, Done())


def _closes_again(env: RegionsEnv, record: Record, table: Table) -> Outcome | None:
    """Goes back to the closing of regions that a server has, or that are on their way; None where there are none."""
    if not _has_owners(env.model, table):
        return None
    again_ms = record.updated_ms + PAUSE_MS
    if env.wall_ms() < again_ms <= env.wall_ms() + PAUSE_MS:
        return Wait(again_ms, record.data, durable=False)
    return Next(record.step - 1, record.data)


def _has_owners(model: Regions, table: Table) -> bool:
    if table.transit or any(table.count(one) for one in IN_TRANSITION):
        return True
    return any(map(SERVER_OF, table.regions))


async def begin_enabling(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Enters that the table is about to be enabled; the mark of one that was stopped goes."""
    return begun(env, record, TableState.ENABLING, record.step + 1)


async def begin_disabling(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Enters that the table is about to be disabled: a crash opens no region of it any more."""
    return begun(env, record, TableState.DISABLING)


async def begin_deleting(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Enters that the table is about to be deleted; regions of one that was being created are closed first."""
    table = env.model.tables.get(TABLE_TASK.decode(record.data).table)
    owned = table is not None and _has_owners(env.model, table)
    return begun(env, record, TableState.DELETING, CLOSES if owned else DROPS)


async def closed_for_deletion(env: RegionsEnv, record: Record) -> Outcome:
    """Goes on with the deletion once no server has a region of the table."""
    table = env.model.tables[TABLE_TASK.decode(record.data).table]
    return _closes_again(env, record, table) or Next(DROPS, record.data)


def begun(env: RegionsEnv, record: Record, state: TableState, then: int = 1) -> Outcome | Effect:
    """Enters the state with which a change begins, where the table permits that."""
    task: TableTask = TABLE_TASK.decode(record.data)
    name = task.table
    table = env.model.tables.get(name)
    if table is not None and (needless := _needless(env, table, state)) is not None:
        return _not_started(env, task, needless) if task.stops else Done(needless.encode())
    why = change_problem(name, None if table is None else table.state, state)
    if why is None and state is TableState.ENABLING and table is not None:
        why = partly_made(table)
    if why is None and state is not TableState.DISABLING and table is not None:
        why = needed_by(env.model, table)
    if why is not None and task.stops:
        return _not_started(env, task, why)
    if why is not None:
        return Failed(f"{record.kind}: {why}")
    return _marked(env, task, stated(env, record, state, Next(then, record.data)))


def _needless(env: RegionsEnv, table: Table, state: TableState) -> str | None:
    """Returns why a change has nothing to do: an earlier one has done it, or a later one deletes the table next."""
    if table.state is LASTING.get(state):
        return f"it is {table.state.name.lower()} already"
    ending = env.endings.of(table) if state is TableState.ENABLING else None
    return superseded(ending).decode() if ending is not None and ending.begins is not None else None


def _not_started(env: RegionsEnv, task: TableTask, why: str) -> Effect:
    """Leaves a table as it is that cannot be stopped or started with the others; it is no stopped one any more."""
    drop = DropMark(MarkKind.STOPPED, task.table)
    return Effect(Done(why.encode()), (drop,), lambda _: env.model.marks.drop(MarkKind.STOPPED, task.table))


def _marked(env: RegionsEnv, task: TableTask, begun: Effect) -> Effect:
    """Has the begin of a change of a table mark it as one of those that are stopped together, or as such no more."""
    marks, entered = env.model.marks, begun.entered
    stopping = task.stops and env.model.tables[task.table].state in WANTED
    if not stopping and marks.get(MarkKind.STOPPED, task.table) is None:
        return begun
    assert entered is not None
    row = MarkRow(MarkKind.STOPPED, task.table, reason=task.why)

    def with_mark(change: Change) -> None:
        entered(change)
        if stopping:
            marks.put(Mark(MarkKind.STOPPED, task.table, reason=task.why))
        else:
            marks.drop(MarkKind.STOPPED, task.table)

    mark: Write = PutMark(row) if stopping else DropMark(MarkKind.STOPPED, task.table)
    return Effect(begun.outcome, (*begun.rows, mark), with_mark)


def ending_of(record: Record) -> Ending | None:
    """Returns what a live procedure ends of a table's assigns; None where it ends none.

    A change that takes the table from its servers ends them before it has the table's lock: their parents hold that.
    So does a change that opens regions and that an operator has ended: all of its parts end.
    """
    begins = ENDS.get(record.kind)
    if begins is None and not record.bypassed:
        return None
    task: TableTask = TABLE_TASK.decode(record.data)
    return Ending(record.pid, record.kind, task.table, begins)


async def delete(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the table and its regions from catalog and memory; many of them in several steps."""
    name = TABLE_TASK.decode(record.data).table
    if why := env.model.damages.of_rows(name):
        return Retry(f"table {name} cannot be deleted whole ({why}): stop the daemon, restore its rows, then start it")
    table = env.model.tables.get(name)
    if table is not None and len(table.regions) > env.rows_max:
        return some_dropped(env, table, Next(record.step, record.data))
    return dropped(env, record, name)


def _of_a_table(step: Step[RegionsEnv]) -> Step[RegionsEnv]:
    """Has a step wait while its table is left out: its row is damaged, and the change has begun before."""

    async def execute(env: RegionsEnv, record: Record) -> Outcome | Effect:
        name = TABLE_TASK.decode(record.data).table
        if name not in env.model.tables and (why := env.model.damages.of_table(name)):
            return Retry(f"table {name} is left out ({why}): stop the daemon, restore its row, then start it")
        return await step.execute(env, record)

    return step._replace(execute=execute)


def demand(record: Record) -> Demand:
    """Demands the table, for the change alone."""
    return messages.lock_of_table(TABLE_TASK.decode(record.data).table)


def kind(
    name: str,
    steps: tuple[Step[RegionsEnv], ...],
    no_return: int,
    demand: Callable[[Record], Demand] = demand,
) -> Kind[RegionsEnv]:
    """Declares a change of a table that has its exclusive lock; its first step is named layout where it makes one."""
    return Kind(
        name,
        tuple(one if one.name == LAYOUT else _of_a_table(one) for one in steps),
        demand,
        no_return=no_return,
        holds_locks=True,
        members=messages.of_table,
    )


ENABLE: Final = kind(
    "enable_table",
    (Step("begin", begin_enabling), Step("assign", assign_regions), Step("end", enabled)),
    no_return=1,
)
DISABLE: Final = kind(
    "disable_table",
    (Step("begin", begin_disabling), Step("close", close_regions), Step("end", disabled)),
    no_return=1,
)
DELETE: Final = kind(
    "delete_table",
    (
        Step("begin", begin_deleting),
        Step("delete", delete),
        Step("close", close_regions),
        Step("closed", closed_for_deletion),
    ),
    no_return=1,
)
ENDS: Final = {DISABLE.name: TableState.DISABLING, DELETE.name: TableState.DELETING}
"""Kinds that end the assigns of a table, and the states that they begin with."""
CREATE: Final = "create_table"
TRUNCATE: Final = "truncate_table"
CLONE: Final = "clone_table"
RESTORE: Final = "restore_snapshot"
NAMES: Final = frozenset({CREATE, ENABLE.name, DISABLE.name, DELETE.name, TRUNCATE, CLONE, RESTORE})
"""Kinds that change the state of a table."""
OPENS: Final = frozenset({CREATE, ENABLE.name, TRUNCATE, CLONE, RESTORE})
"""Kinds that open the regions of a table, and that a change of the table ends."""
