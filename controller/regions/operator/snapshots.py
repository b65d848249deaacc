"""Shows snapshots of tables, and takes requests that make, delete, clone and restore them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, NotFound, ViewRefused, document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure, time_of
from controller.process.wording import counted
from controller.regions.domain import RegionsDomain
from controller.regions.operator.requests import (
    NAME_MAX,
    Change,
    Name,
    acting_term,
    active_term,
    caller_of,
    known,
    refuse,
    start,
    table_of,
)
from controller.regions.operator.table_checks import check_creation, met_by, opening_remedy, table_remedy
from controller.regions.operator.tables import OptionValue
from controller.regions.procedures import clones, snapshots, tables
from controller.regions.procedures.messages import (
    SNAPSHOT_TASK,
    TABLE_TASK,
    SnapshotTask,
    TableTask,
)
from controller.regions.term import RegionsTerm
from state_machines.regions.changes import OPTIONS_MAX, change_problem
from state_machines.regions.entities import Table
from state_machines.regions.growth import option_problem
from state_machines.regions.layout import name_problem
from state_machines.regions.model import Regions
from state_machines.regions.references import needed_by, needed_snapshots, snapshot_needed_by
from state_machines.regions.shapes import Snapshot
from state_machines.regions.states import TableKind, TableState

NO_MORE: Final = ""
"""Remedy of a problem whose sentence has it."""
Optional = Annotated[str, Field(max_length=NAME_MAX)]


class TableSnapshot(Item):
    """A snapshot of a table. ``needed_by``: regions whose data begins as that of the snapshot.

    ``identity``: what servers know it by.
    """

    name: str
    table: str
    kind: str
    regions: int
    made: datetime | None
    needed_by: int
    options: dict[str, str] = {}
    identity: str = ""


class SnapshotCreation(Change):
    """A snapshot to make of a table."""

    name: Name
    table: Name


class Clone(Change):
    """A table to make as a copy, of the table ``source`` or of a snapshot, with further options."""

    source: Optional = ""
    snapshot: Optional = ""
    options: Annotated[dict[Name, OptionValue], Field(max_length=OPTIONS_MAX)] = {}


class Restore(Change):
    """A snapshot that a disabled table gets back. ``enable``: its new regions are opened."""

    snapshot: Name
    enable: bool = True


class SnapshotView:
    """Shows the snapshots of the active term, and starts procedures on them."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def list_snapshots(self) -> list[TableSnapshot]:
        """Lists snapshots by name."""
        model = active_term(self._domain).env.model
        needed = needed_snapshots(model)
        return [self._item(model.snapshots[name], needed[name]) for name in sorted(model.snapshots)]

    def describe_snapshot(self, name: str) -> TableSnapshot:
        """Describes one snapshot."""
        model = active_term(self._domain).env.model
        return self._item(snapshot_of(model, name), needed_snapshots(model)[name])

    def _item(self, snapshot: Snapshot, needed: int) -> TableSnapshot:
        env, row = active_term(self._domain).env, snapshot.row
        return TableSnapshot(
            name=row.name,
            table=row.table,
            kind=TableKind(row.kind).name.lower(),
            regions=row.regions,
            made=time_of(env.shown_ms(row.made_ms)),
            needed_by=needed,
            options=dict(row.options),
            identity=snapshot.identity,
        )

    async def make(self, request: SnapshotCreation, principal: str) -> Procedure:
        """Makes a snapshot of a table."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, snapshots.MAKE, request.name)) is not None:
            return again
        if ":" in request.name or name_problem(request.name) is not None:
            raise Invalid(f"name {request.name[:80]!r} is no name of a snapshot", "use letters, digits, '_', '-', '.'")
        table = table_of(term.env.model, request.table)
        refuse(snapshots.problem_of(term.env, request.name, table.name), _making_remedy(term, table))
        data = SNAPSHOT_TASK.encode(SnapshotTask(request.name, table.name, request.reason))
        about = f"snapshot {request.name} of table {table.name} with {counted(len(table.regions), 'region')}"
        return await start(term, snapshots.MAKE, data, caller, request, about)

    async def delete(self, name: str, request: Change, principal: str) -> Procedure:
        """Deletes a snapshot, also one of which some rows are left out."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, snapshots.DELETE, name)) is not None:
            return again
        model = term.env.model
        if name not in model.drafts and not model.damages.of_snapshot(name):
            snapshot_of(model, name)
        if (needed := snapshot_needed_by(model, name)) is not None:
            raise ViewRefused(*needed)
        data = SNAPSHOT_TASK.encode(SnapshotTask(name, why=request.reason))
        return await start(term, snapshots.DELETE, data, caller, request, f"snapshot {name}: delete")

    async def clone(self, table: str, request: Clone, principal: str) -> Procedure:
        """Makes a table whose data begins as that of another one, or of a snapshot."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, tables.CLONE, table)) is not None:
            return again
        if bool(request.source) is bool(request.snapshot):
            raise Invalid("a clone is one of a table or of a snapshot", "give source or snapshot, one of them")
        if (problem := name_problem(table)) is not None:
            raise Invalid(problem, "give another name")
        if (problem := option_problem(request.options)) is not None:
            raise Invalid(problem, "correct it, or leave it out")
        options = dict(sorted(request.options.items()))
        task = TableTask(table, why=request.reason, options=options, source=request.source, snapshot=request.snapshot)
        check_creation(term.env.model, table)
        remedy = _source_remedy(term.env.model, task)
        refuse(clones.clone_problem(term.env, task), remedy)
        about = f"table {table} with {counted(clones.count_of(term.env, task), 'region')}"
        return await start(term, tables.CLONE, TABLE_TASK.encode(task), caller, request, about)

    async def restore(self, table: str, request: Restore, principal: str) -> Procedure:
        """Replaces the regions of a disabled table by those of a snapshot."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, tables.RESTORE, table)) is not None:
            return again
        found = table_of(term.env.model, table)
        snapshot_of(term.env.model, request.snapshot)
        task = TableTask(table, why=request.reason, snapshot=request.snapshot, enables=request.enable)
        why = change_problem(table, found.state, TableState.TRUNCATING)
        if why is not None:
            raise ViewRefused(why, f"regent tables disable {table} --wait")
        refuse(clones.restore_problem(term.env, task) or needed_by(term.env.model, found), NO_MORE)
        about = f"table {table} as snapshot {request.snapshot} has it"
        return await start(term, tables.RESTORE, TABLE_TASK.encode(task), caller, request, about)


def snapshot_of(model: Regions, name: str) -> Snapshot:
    """Returns a snapshot by its name."""
    found = model.snapshots.get(name)
    if found is None and (why := model.damages.of_snapshot(name)):
        raise NotFound(f"snapshot {name} is left out: {why}", f"'regent snapshots delete {name}' removes it")
    if found is None:
        raise NotFound(f"snapshot {name!r} does not exist", "see 'regent snapshots list'")
    return found


def _making_remedy(term: RegionsTerm, table: Table) -> str:
    """Returns what lets a snapshot of a table begin."""
    if table.state is TableState.ENABLED:
        return NO_MORE
    return opening_remedy(term.env.model, table, met_by(table, "enable", term.engine))


def _source_remedy(model: Regions, task: TableTask) -> str:
    """Returns what lets a clone begin; raises ``NotFound`` where there is nothing of which it is to be one."""
    if task.snapshot:
        snapshot_of(model, task.snapshot)
        return NO_MORE
    source = table_of(model, task.source)
    match source.state:
        case TableState.DISABLED:
            return NO_MORE
        case TableState.ENABLED:
            makes = f"'regent tables snapshot {source.name} NAME', then"
            return (
                f"{makes} 'regent tables clone {task.table} --snapshot NAME'; or first 'regent tables disable "
                f"{source.name} --wait'"
            )
        case _:
            return table_remedy(model, source, "disable")


def add_snapshot_routes(app: FastAPI, view: SnapshotView) -> None:
    """Adds the routes to the surface of a daemon; those of the other changes of tables come after them."""

    @app.get("/v1/regions/snapshots", response_model=Document[TableSnapshot])
    async def listed() -> Response:
        return document("TableSnapshot", view.list_snapshots())

    @app.get("/v1/regions/snapshots/{name}", response_model=Document[TableSnapshot])
    async def described(name: str) -> Response:
        return document("TableSnapshot", [view.describe_snapshot(name)])

    @app.post("/v1/regions/snapshots", response_model=Document[Procedure])
    async def make(wanted: SnapshotCreation, request: Request) -> Response:
        return document("Procedure", [await view.make(wanted, principal_of(request))])

    @app.post("/v1/regions/snapshots/{name}/delete", response_model=Document[Procedure])
    async def delete(name: str, wanted: Change, request: Request) -> Response:
        return document("Procedure", [await view.delete(name, wanted, principal_of(request))])

    @app.post("/v1/regions/tables/{table:path}/clone", response_model=Document[Procedure])
    async def clone(table: str, wanted: Clone, request: Request) -> Response:
        return document("Procedure", [await view.clone(table, wanted, principal_of(request))])

    @app.post("/v1/regions/tables/{table:path}/restore", response_model=Document[Procedure])
    async def restore(table: str, wanted: Restore, request: Request) -> Response:
        return document("Procedure", [await view.restore(table, wanted, principal_of(request))])
