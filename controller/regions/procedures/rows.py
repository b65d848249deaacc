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
from state_machines.regions.states import TableState
from state_machines.regions.unusable import readoption_problem, removal_problem

REMOVE: Final = "remove_row"
ADOPT: Final = "adopt_table"


class RowTask(Message, frozen=True):
    """A row that goes. ``place``: where it is; ``fault``: the sentence of its damage, as the operator has read it."""

    place: str
    fault: str = ""
    why: str = ""


ROW_TASK = Codec(RowTask)


def lease_left_s(env: RegionsEnv) -> float:
    """Returns the time until no process serves that has not come to this daemon since the term began."""
    return env.restored_ends_s - env.clock()


async def remove(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the row, where it is the one that was left out."""
    task: RowTask = ROW_TASK.decode(record.data)
    damage = env.model.damages.at(task.place)
    if damage is None:
        return Done(b"it is gone already")
    if str(damage) != task.fault:
        return Failed(f"{REMOVE}: another row is there by now ({damage}): begin it again")
    if (refusal := removal_problem(env.model, damage, task.place, lease_left_s(env))) is not None:
        return Failed(f"{REMOVE}: {refusal}")

    def entered(_: Change) -> None:
        env.model.damages.drop_row(damage)

    return Effect(Done(b"it is removed"), (DropUnusable(task.place),), entered)


async def adopt(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores the row of a table whose regions are left out without it.

    Its version is the pid, which is above those of all changes of the table: regions that were opened with other
    options show as outdated, and a change of the options opens them anew.
    """
    task: TableTask = TABLE_TASK.decode(record.data)
    if (refusal := readoption_problem(env.model, task.table)) is not None:
        return Failed(f"{ADOPT}: {refusal}")
    state = TableState.ENABLED if task.enables else TableState.DISABLING
    row = TableRow(task.table, task.kind, state, tuple(sorted(task.options.items())), record.pid)
    return Effect(Done(servers.RECOVERED), (PutTable(row),))


REMOVE_ROW: Final[Kind[RegionsEnv]] = Kind(
    REMOVE,
    (Step("remove", remove),),
    lambda record: Demand(Resource(Scope.TABLE, f"(row {ROW_TASK.decode(record.data).place})"), exclusive=True),
    members=lambda record: Members(why=(task := ROW_TASK.decode(record.data)).why, what=task.place),
)
ADOPT_TABLE: Final[Kind[RegionsEnv]] = Kind(ADOPT, (Step("store", adopt),), tables.demand, members=messages.of_table)
