"""Takes requests that replace the regions of a table or open them again: checks them, and starts their procedures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, ViewRefused, document
from controller.http.models import Document
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.process.wording import counted
from controller.regions.damaged import REMEDY
from controller.regions.domain import RegionsDomain
from controller.regions.operator.requests import (
    Change,
    Name,
    acting_term,
    caller_of,
    known,
    needs_reason,
    refuse,
    start,
    table_of,
)
from controller.regions.operator.tables import OptionValue
from controller.regions.procedures import fixing, modification, stopping, tables
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from state_machines.regions.changes import (
    OPTIONS_MAX,
    PROCESS_MEND,
    SETTLED,
    change_problem,
    is_outdated,
    keys_problem,
    modification_problem,
    options_after,
    too_many,
    truncation_problem,
)
from state_machines.regions.entities import Table as ModelTable
from state_machines.regions.growth import option_problem
from state_machines.regions.layout import key_text
from state_machines.regions.left_out import in_the_way
from state_machines.regions.model import Regions
from state_machines.regions.references import needed_by
from state_machines.regions.states import TableState

AllAct = Literal["stop", "start"]
ALL_KINDS: Final[Mapping[AllAct, str]] = {"stop": stopping.STOP, "start": stopping.START}


class Truncation(Change):
    """A table whose regions are replaced by empty ones. ``drop_splits``: by one with all keys.

    ``enable``: its new regions are opened.
    """

    drop_splits: bool = False
    enable: bool = True


class Modification(Change):
    """Options that a table gets, and those that it loses. ``together``: regions that are opened again at a time."""

    options: Annotated[dict[Name, OptionValue], Field(max_length=OPTIONS_MAX)] = {}
    remove: Annotated[list[Name], Field(max_length=OPTIONS_MAX)] = []
    together: Annotated[int, Field(ge=1, le=modification.TOGETHER_MAX)] = modification.TOGETHER


class TableChanges:
    """Starts these changes on the active daemon."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    async def truncate(self, table: str, request: Truncation, principal: str) -> Procedure:
        """Replaces the regions of a table by empty ones."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, tables.TRUNCATE, table)) is not None:
            return again
        model, found = term.env.model, table_of(term.env.model, table)
        refuse(truncation_refusal(model, found, drops_splits=request.drop_splits), truncation_remedy(model, found))
        task = TableTask(table, why=request.reason, enables=request.enable, drops_splits=request.drop_splits)
        about = f"table {table} with {counted(len(found.regions), 'region')}: truncate"
        return await start(term, tables.TRUNCATE, TABLE_TASK.encode(task), caller, request, about)

    async def modify(self, table: str, request: Modification, principal: str) -> Procedure:
        """Changes the options of a table, and has its regions opened again with them."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, modification.NAME, table)) is not None:
            return again
        found = table_of(term.env.model, table)
        if not (request.options or request.remove):
            raise Invalid("options and remove are empty: there is nothing to change", "give one of them")
        refuse(modification_problem(found), f"see 'regent tables describe {table}'")
        if (why := options_problem(found, request)) is not None:
            raise Invalid(why, f"'regent tables describe {table}' has its options")
        task = TableTask(
            table,
            why=request.reason,
            options=request.options,
            removed=tuple(request.remove),
            together=request.together,
        )
        about = f"table {table} with {counted(len(found.regions), 'region')}: modify"
        return await start(term, modification.NAME, TABLE_TASK.encode(task), caller, request, about)

    async def fix_keys(self, table: str, request: Change, principal: str) -> Procedure:
        """Gives the keys of a table that no region has to empty regions."""
        needs_reason(request)
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, fixing.NAME, table)) is not None:
            return again
        found = table_of(term.env.model, table)
        refuse(keys_problem(term.env.model, found), keys_remedy(term.env.model, found))
        holes = await fixing.to_fill(term.env, found)
        if not holes:
            raise ViewRefused(
                f"each key of table {table!r} has a region", f"see 'regent regions report --table {table}'"
            )
        task = TableTask(table, why=request.reason)
        first, last = holes[0]
        keys = f"the first from {key_text(first) or 'the first key'} to {key_text(last) or 'the last one'}"
        about = f"table {table}: {counted(len(holes), 'empty region')} for keys that have none, {keys}"
        return await start(term, fixing.NAME, TABLE_TASK.encode(task), caller, request, about)

    async def stop_or_start(self, act: AllAct, request: Change, principal: str) -> Procedure:
        """Disables all tables that are enabled, or enables those that were disabled so."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, ALL_KINDS[act], "")) is not None:
            return again
        model, stops = term.env.model, act == "stop"
        if stops:
            refuse(stopping.stop_problem(model), "'regent regions marks' lists the marks: remove some")
        wanted = stopping.to_stop(model) if stops else stopping.to_start(model)
        if not wanted:
            raise ViewRefused(f"there is no table to {act}", "see 'regent tables list'")
        regions = sum(len(one.regions) for one in wanted)
        about = f"{counted(len(wanted), 'table')} with {counted(regions, 'region')}: {act}"
        data = stopping.STOP_TASK.encode(stopping.StopTask(request.reason))
        return await start(term, ALL_KINDS[act], data, caller, request, about)


def add_table_change_routes(app: FastAPI, changes: TableChanges) -> None:
    """Adds the routes to the surface of a daemon; those of the other changes of tables come after them."""

    @app.post("/v1/regions/tables/{table:path}/truncate", response_model=Document[Procedure])
    async def truncate(table: str, wanted: Truncation, request: Request) -> Response:
        return document("Procedure", [await changes.truncate(table, wanted, principal_of(request))])

    @app.post("/v1/regions/tables/{table:path}/modify", response_model=Document[Procedure])
    async def modify(table: str, wanted: Modification, request: Request) -> Response:
        return document("Procedure", [await changes.modify(table, wanted, principal_of(request))])

    @app.post("/v1/regions/tables/{table:path}/fix-keys", response_model=Document[Procedure])
    async def fix_keys(table: str, wanted: Change, request: Request) -> Response:
        return document("Procedure", [await changes.fix_keys(table, wanted, principal_of(request))])

    @app.post("/v1/regions/all/{act}", response_model=Document[Procedure])
    async def stop_or_start(act: AllAct, wanted: Change, request: Request) -> Response:
        return document("Procedure", [await changes.stop_or_start(act, wanted, principal_of(request))])


# -- checks


def truncation_refusal(model: Regions, table: ModelTable, *, drops_splits: bool) -> str | None:
    """Returns why a table cannot be truncated now; None where it can."""
    if left_out := model.damages.of_rows(table.name):
        return f"table {table.name!r} cannot be truncated whole: {left_out}"
    why = change_problem(table.name, table.state, TableState.TRUNCATING)
    return why or truncation_problem(table, drops_splits=drops_splits) or needed_by(model, table)


def truncation_remedy(model: Regions, table: ModelTable) -> str:
    """Returns what lets the truncation of a table begin."""
    name = table.name
    if model.damages.of_rows(name):
        return REMEDY
    match table.state:
        case TableState.TRUNCATING:
            return f"'regent tables truncate {name} --drop-splits' goes on with that, or 'regent tables delete {name}'"
        case TableState.DISABLED:
            return f"'regent tables delete {name}' removes what there is"
        case TableState.ENABLED | TableState.ENABLING | TableState.DISABLING:
            return f"regent tables disable {name} --wait"
        case _:
            return f"'regent tables delete {name} --wait' ends that; then create it"


def keys_remedy(model: Regions, table: ModelTable) -> str:
    """Returns what lets keys of a table that no region has get one."""
    if table.state not in SETTLED:
        return f"see 'regent tables describe {table.name}'"
    return REMEDY if in_the_way(model, table) else PROCESS_MEND


def options_problem(table: ModelTable, request: Modification) -> str | None:
    """Returns why the options of a table cannot be changed as wanted; None where they can."""
    if both := sorted(set(request.options) & set(request.remove)):
        return f"option {both[0]!r} is to be set and to be removed"
    if missing := sorted(set(request.remove) - table.options.keys()):
        return f"table {table.name!r} has no option {missing[0]!r} to remove"
    if why := option_problem(request.options):
        return why
    after = options_after(table.options, request.options, request.remove)
    if (why := too_many(table.name, after)) is not None:
        return why
    if after != table.options or any(map(is_outdated, table.regions)):
        return None
    return f"table {table.name!r} has these options already"
