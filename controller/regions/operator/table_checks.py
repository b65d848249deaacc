"""Judges requests that create, enable, disable or delete a table: why they cannot begin, and what lets them begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from controller.http.documents import NotFound, ViewRefused
from controller.procedures.engine import Engine
from controller.regions.damaged import REMEDY
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import tables
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from state_machines.procedures.record import Record
from state_machines.regions.changes import change_problem, partly_made
from state_machines.regions.entities import Table, namespace_of
from state_machines.regions.model import Regions
from state_machines.regions.references import needed_by
from state_machines.regions.states import TableState

TableAct = Literal["enable", "disable", "delete"]
ENDS: Final[Mapping[TableAct, TableState]] = {"enable": TableState.ENABLED, "disable": TableState.DISABLED}
BEGINS: Final[Mapping[TableAct, TableState]] = {
    "enable": TableState.ENABLING,
    "disable": TableState.DISABLING,
    "delete": TableState.DELETING,
}
CLOSES: Final = frozenset({tables.DISABLE.name})
ENABLES_AT_WILL: Final = frozenset({tables.TRUNCATE, tables.RESTORE})
"""Kinds that open the regions of their table only where the request said so."""


# -- creations


def check_creation(model: Regions, table: str) -> None:
    """Checks that a table can be created; raises ``NotFound`` without its namespace, else ``ViewRefused``."""
    namespace = namespace_of(table)
    if (found := model.tables.get(table)) is not None:
        raise ViewRefused(f"table {table!r} exists already", _beside(found))
    if why := model.damages.of_table(table):
        raise ViewRefused(f"table {table!r} is stored already, and left out ({why})", REMEDY)
    if namespace not in model.namespaces:
        raise NotFound(f"namespace {namespace!r} does not exist", f"'regent namespaces create {namespace}' creates it")


def _beside(found: Table) -> str:
    """Returns what there is to do where a table has the name already."""
    name = found.name
    if found.state is TableState.CREATING:
        return f"'regent tables enable {name}' goes on with its creation, 'regent tables delete {name}' takes it back"
    return f"give another name; 'regent tables describe {name}' has what is there"


# -- changes


def met_by(table: Table, act: TableAct, engine: Engine[RegionsEnv]) -> Record | None:
    """Returns the change that goes on, or waits, and from which a request follows no more; None without one.

    An enabled table has one that is to disable it. Any other table has one that opens its regions.
    """
    if act == "delete":
        return None
    closes = table.state is TableState.ENABLED
    for record in engine.live():
        if record.bypassed or record.aborted or record.kind not in (CLOSES if closes else tables.OPENS):
            continue
        task: TableTask = TABLE_TASK.decode(record.data)
        if task.table == table.name and (closes or task.enables or record.kind not in ENABLES_AT_WILL):
            return record
    return None


def table_problem(model: Regions, table: Table, act: TableAct, met: Record | None = None) -> str | None:
    """Returns why a table cannot be changed; None where it can. ``met``: the change that the request meets."""
    if act == "delete" and (left_out := model.damages.of_rows(table.name)):
        return f"table {table.name!r} cannot be deleted whole: {left_out}"
    if table.state is ENDS.get(act):
        return f"table {table.name!r} is {table.state.name.lower()} already"
    if act == "enable" and met is not None:
        return f"table {table.name!r} is {table.state.name.lower()}: procedure {met.pid} opens its regions"
    why = change_problem(table.name, table.state, BEGINS[act])
    if why is None and act != "disable":
        why = needed_by(model, table)
    return partly_made(table) if why is None and act == "enable" else why


def table_remedy(model: Regions, table: Table, act: TableAct, met: Record | None = None) -> str:
    """Returns what lets the change of a table begin: where it is on its way to another state, it goes there first."""
    name = table.name
    if act == "delete" and model.damages.of_rows(name):
        return REMEDY
    if met is not None and table.state in (TableState.ENABLED, TableState.DISABLED):
        return _end_of(met)
    match table.state:
        case TableState.CREATING | TableState.ENABLING if act == "enable":
            delete = f" or 'regent tables delete {name}'" if table.state is TableState.CREATING else ""
            return f"wait for its end; 'regent tables disable {name}'{delete} ends it before"
        case TableState.DELETING:
            return f"'regent tables delete {name} --wait' goes on with that"
        case TableState.TRUNCATING:
            goes_on = f"'regent tables truncate {name} --wait' goes on with that; then repeat this"
            return f"{goes_on}, or 'regent tables delete {name}'"
        case TableState.DISABLING if act != "disable":
            return f"'regent tables disable {name} --wait' goes on with that; then repeat this"
        case TableState.ENABLED | TableState.ENABLING if act == "delete":
            return f"regent tables disable {name} --wait"
        case TableState.DISABLED if act == "enable":
            then = "then " if needed_by(model, table) else ""
            return f"{then}'regent tables enable {name}' opens its regions"
        case _:
            return f"see 'regent tables describe {name}'"


def opening_remedy(model: Regions, table: Table, met: Record | None = None) -> str:
    """Returns what lets a region of a table that is not enabled be opened."""
    needed = needed_by(model, table) if table.state is TableState.DISABLED and met is None else None
    remedy = table_remedy(model, table, "enable", met)
    return f"{needed}; {remedy}" if needed else remedy


def _end_of(met: Record) -> str:
    """Returns what ends a change, so that the request may be repeated."""
    act, does = ("bypass", "ends it as it is") if met.step else ("abort", "takes it back")
    ends = f"'regent regions procedures {act} {met.pid}' {does}"
    return f"wait for the end of procedure {met.pid} ({met.kind}), or {ends}"
