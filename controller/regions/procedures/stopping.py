"""Stop and start all tables: each is disabled, or enabled, by its class, and a mark keeps which ones were stopped.

User tables stop first and start last, because they need the others. A table that an operator had disabled before stays
disabled. Regions return to the servers that had them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller.procedures.kinds import Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import tables
from controller.regions.procedures.messages import TABLE_TASK, Codec, Message, TableTask
from controller.regions.procedures.servers import MARKS_MAX
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Failed, Outcome
from state_machines.procedures.record import Record, child
from state_machines.procedures.transition import Members
from state_machines.regions.entities import Table
from state_machines.regions.marks import MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.states import TableKind, TableState

STOP: Final = "stop_tables"
START: Final = "start_tables"
TOGETHER: Final = 100
"""Tables of one class that are stopped or started at a time."""
RUNNING: Final = frozenset({TableState.ENABLED, TableState.ENABLING})


class StopTask(Message, frozen=True):
    """All tables, which are stopped or started. ``done``: how many were, of the classes before."""

    why: str = ""
    done: int = 0


STOP_TASK = Codec(StopTask)


def to_stop(model: Regions) -> list[Table]:
    """Returns the tables that a stop disables, by name."""
    return sorted((one for one in model.tables.values() if one.state in RUNNING), key=lambda one: one.name)


def to_start(model: Regions) -> list[Table]:
    """Returns the tables that a start enables, by name."""
    stopped = (model.tables.get(one.subject) for one in model.marks if one.kind is MarkKind.STOPPED)
    return [one for one in stopped if one is not None and one.state is TableState.DISABLED]


def stop_problem(model: Regions) -> str | None:
    """Returns why not all tables can be stopped at once; None where they can."""
    marks, count = len(model.marks), len(to_stop(model))
    if marks + count <= MARKS_MAX:
        return None
    return f"{count} tables would be marked as stopped beside {marks} marks, at most {MARKS_MAX} are possible"


async def _of_class(
    env: RegionsEnv, record: Record, kind: TableKind, change: str, wanted: Callable[[Regions], list[Table]]
) -> Outcome:
    task: StopTask = STOP_TASK.decode(record.data)
    some = [one for one in wanted(env.model) if one.kind is kind][:TOGETHER]
    if not some:
        return Children((), record.step + 1, record.data)
    why = task.why or ("all tables are stopped" if record.kind == STOP else "all tables are started")
    changes = [child(change, TABLE_TASK.encode(TableTask(one.name, why=why, stops=True))) for one in some]
    data = STOP_TASK.encode(StopTask(task.why, task.done + len(some)))

    def rest(count: int) -> bytes:
        return STOP_TASK.encode(StopTask(task.why, task.done + count))

    return Children(tuple(changes), record.step, data, rest=rest)


def _stops(kind: TableKind) -> Step[RegionsEnv]:
    async def execute(env: RegionsEnv, record: Record) -> Outcome:
        if record.step == 0 and (why := stop_problem(env.model)) is not None:
            return Failed(f"{STOP}: {why}")
        return await _of_class(env, record, kind, tables.DISABLE.name, to_stop)

    return Step(kind.name.lower(), execute)


def _starts(kind: TableKind) -> Step[RegionsEnv]:
    async def execute(env: RegionsEnv, record: Record) -> Outcome:
        return await _of_class(env, record, kind, tables.ENABLE.name, to_start)

    return Step(kind.name.lower(), execute)


async def end(env: RegionsEnv, record: Record) -> Outcome:
    """Ends with the number of tables."""
    return Done(b"%d" % STOP_TASK.decode(record.data).done)


def _demand(record: Record) -> Demand:
    """Demands that tables are neither stopped nor started by another procedure."""
    STOP_TASK.decode(record.data)
    return Demand(Resource(Scope.SERVER, "stop of all tables"), exclusive=True)


def _members(record: Record) -> Members:
    return Members(why=STOP_TASK.decode(record.data).why)


STOP_TABLES: Final[Kind[RegionsEnv]] = Kind(
    STOP,
    (*map(_stops, (TableKind.USER, TableKind.SYSTEM, TableKind.META)), Step("end", end)),
    _demand,
    holds_locks=True,
    members=_members,
)
START_TABLES: Final[Kind[RegionsEnv]] = Kind(
    START,
    (*map(_starts, (TableKind.META, TableKind.SYSTEM, TableKind.USER)), Step("end", end)),
    _demand,
    holds_locks=True,
    members=_members,
)
