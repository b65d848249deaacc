"""Repairs of rows that cannot be read: one that no id names is removed, and that of a table is stored again.

Each is one write. A row that a restart reads as what it is has no other path into the model: the next term enters it.
"""

from __future__ import annotations

from typing import Final

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages, servers, tables
from controller.regions.procedures.messages import TABLE_TASK, Codec, Message, TableTask
from metadata_store.catalog.rows import DropUnusable, PutTable, TableRow
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Failed, Outcome
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members
from state_machines.regions.states import TableKind, TableState
from state_machines.regions.table_rows import AdoptedRow
from state_machines.regions.unusable import readoption_problem, removal_problem

REMOVE: Final = "remove_row"
ADOPT: Final = "adopt_table"


class RowTask(Message, frozen=True):
    """A row that goes. ``place``: where it is; ``fault``: the sentence of its damage, as the operator has read it.

    ``is_ended``: the operator says that the process has ended which the row is about.
    """

    place: str
    fault: str = ""
    why: str = ""
    is_ended: bool = False


ROW_TASK = Codec(RowTask)


def lease_left_s(env: RegionsEnv) -> float | None:
    """Returns the time until no process serves that has not come to this daemon since the term began.

    None where a server goes on without a lease, because it is fenced in another way.
    """
    return env.restored_ends_s - env.clock() if env.former.fence == "lease" else None


async def remove(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the row, where it is the one that was left out."""
    task: RowTask = ROW_TASK.decode(record.data)
    damage = env.model.damages.at(task.place)
    if damage is None:
        return Done(b"it is gone already")
    if str(damage) != task.fault:
        return Failed(f"{REMOVE}: another row is there by now ({damage}): begin it again")
    if (
        refusal := removal_problem(env.model, damage, task.place, lease_left_s(env), is_ended=task.is_ended)
    ) is not None:
        return Failed(f"{REMOVE}: {refusal}")

    def entered(_: Change) -> None:
        env.model.damages.drop_row(damage)

    return Effect(Done(b"it is removed"), (DropUnusable(task.place),), entered)


async def adopt(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores the row of a table whose regions are left out without it.

    With other options than before its version is the pid, which is above those of all changes of the table: regions
    that were opened with these show as outdated, and a change of the options opens them anew.
    """
    task: TableTask = TABLE_TASK.decode(record.data)
    wanted = adopted_row(task)
    if (refusal := readoption_problem(env.model, task.table, wanted)) is not None:
        return Failed(f"{ADOPT}: {refusal}")
    stored = env.model.damages.stored
    if (before := stored.table(task.table)) is not None:
        return Done(stored_by(before[0]).encode())
    version = record.pid if wanted.version is None else wanted.version
    row = TableRow(task.table, wanted.kind, wanted.state, wanted.options, version)
    return Effect(Done(servers.RECOVERED), (PutTable(row),), lambda _: stored.put_table(task.table, record.pid, wanted))


def adopted_row(task: TableTask) -> AdoptedRow:
    """Returns the row that a task stores again; a task of an earlier release has ``enables`` alone for its state."""
    state = TableState.ENABLED if task.enables else TableState.DISABLING
    state = state if task.state is None else TableState(task.state)
    return AdoptedRow(TableKind(task.kind), state, tuple(sorted(task.options.items())), task.version)


def stored_by(pid: int) -> str:
    """Says that the row of a table has these values already."""
    return f"its row is stored by procedure {pid}: restart the daemon, which has its regions then"


REMOVE_ROW: Final[Kind[RegionsEnv]] = Kind(
    REMOVE,
    (Step("remove", remove),),
    lambda record: Demand(Resource(Scope.TABLE, f"(row {ROW_TASK.decode(record.data).place})"), exclusive=True),
    members=lambda record: Members(why=(task := ROW_TASK.decode(record.data)).why, what=task.place),
)
ADOPT_TABLE: Final[Kind[RegionsEnv]] = Kind(ADOPT, (Step("store", adopt),), tables.demand, members=messages.of_table)
