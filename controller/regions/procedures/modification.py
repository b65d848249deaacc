"""Modify a table: its options change in one write, then its regions are opened again with them, some at a time.

The version of the table grows with the options, and each open stores the version that it was sent with. So what is left
to open again only shrinks, whatever moves meanwhile; no place in the table is remembered as done. Regions go on moving;
only which regions there are stays as it is.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages, tables
from controller.regions.procedures.messages import MOVE, TABLE_TASK, Move, TableTask
from controller.regions.procedures.move import NAME as MOVE_NAME
from metadata_store.catalog.rows import PutTable
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record, child
from state_machines.regions.changes import (
    is_outdated,
    may_be_outdated,
    modification_problem,
    options_after,
    to_reopen,
    too_many,
)
from state_machines.regions.states import ServerState, TableState

NAME: Final = "modify_table"
TOGETHER: Final = 50
"""Regions that are opened again at a time, unless a request says another number."""
TOGETHER_MAX: Final = 1_000
PAUSE_MS: Final = 500
"""Pause until a look at regions that other procedures move."""


async def commit(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores the options with a higher version: regions that open from now on have them."""
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables.get(task.table)
    if table is None:
        return Failed(f"{NAME}: table {task.table!r} does not exist")
    if (why := modification_problem(table)) is not None:
        return Failed(f"{NAME}: {why}")
    options, version = options_after(table.options, task.options, task.removed), table.version + 1
    if (why := too_many(table.name, options)) is not None:
        return Failed(f"{NAME}: {why}: remove some")  # another change has come first
    row = tables.row_of(table, table.state)._replace(options=tuple(sorted(options.items())), version=version)

    def entered(_: Change) -> None:
        table.options, table.version = options, version

    return Effect(Next(record.step + 1, record.data), (PutTable(row),), entered)


async def reopen(env: RegionsEnv, record: Record) -> Outcome:
    """Has some regions opened again; the step is repeated until none is open with former options."""
    task: TableTask = TABLE_TASK.decode(record.data)
    table = env.model.tables[task.table]
    if (ending := env.endings.of(table)) is not None:
        return Done(tables.superseded(ending))
    if table.state is not TableState.ENABLED:
        return Done()
    of_server = env.options.reopen_per_server
    online = sum(one.state is ServerState.ONLINE for one in env.model.servers.values())
    together = min(task.together or TOGETHER, of_server * online)
    some, behind = to_reopen(table.regions, task.begun, together, of_server)
    if not some and task.begun:
        some, behind = to_reopen(table.regions, 0, together, of_server)
    if not some:
        if not any(map(is_outdated, table.regions)) and not any(map(may_be_outdated, table.transit.values())):
            return Done()
        return Wait(env.wall_ms() + PAUSE_MS, record.data, durable=False)
    why = f"options of {task.table} changed"
    moves = tuple(child(MOVE_NAME, MOVE.encode(Move(one.id, task.table, "", why, reopens=True))) for one in some)
    data = TABLE_TASK.encode(replace(task, begun=behind if behind < len(table.regions) else 0))
    return Children(moves, record.step, data, rest=lambda _: record.data)


MODIFY_TABLE: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("commit", commit), Step("reopen", reopen)),
    lambda record: messages.lock_of_keys(TABLE_TASK.decode(record.data).table),
    no_return=1,
    holds_locks=True,
    members=messages.of_table,
)
