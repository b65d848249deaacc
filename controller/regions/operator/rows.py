"""Takes requests to remove a row that cannot be read, and to store the row of a table again."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, ViewRefused, document
from controller.http.models import Document
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.process.wording import counted
from controller.regions.domain import RegionsDomain
from controller.regions.operator.requests import Change, Name, acting_term, caller_of, known, needs_reason, start
from controller.regions.operator.tables import OptionValue
from controller.regions.procedures import rows
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from state_machines.regions.changes import OPTIONS_MAX
from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.findings import Refusal
from state_machines.regions.growth import option_problem
from state_machines.regions.layout import name_problem
from state_machines.regions.model import Regions
from state_machines.regions.states import TableKind, TableState
from state_machines.regions.table_rows import AdoptedRow, Given, adopted, readable_text
from state_machines.regions.unusable import readoption_problem, removal_problem

PLACE_CHARS_MAX: Final = 2_000
"""Characters of the place of a row: in ZooKeeper a path with a quoted name."""
LOSES: Final = {
    RowKind.NAMESPACE: "its tables stay, and none is made in it until 'regent namespaces create NAME' makes it again",
    RowKind.TABLE: "the regions of its table stay left out until 'regent tables adopt TABLE' stores a row of it again",
    RowKind.HEIR: "no region refers by it to others: their data may be discarded",
    RowKind.PARENT: "the data of a region that was split or merged stays at the service",
    RowKind.SNAPSHOT: "the data of a snapshot stays at the service",
    RowKind.SNAPSHOT_PART: "the data of a snapshot stays at the service",
    RowKind.REGION: "the data of a region stays at the service, and another region may get its keys",
    RowKind.SERVER: "no log of that process is read: its regions lack the edits that are in it alone",
    RowKind.BURIED: "a process that was fenced may register again",
    RowKind.MARK: "what it meant holds no longer",
    RowKind.PUBLISHED: "servers have no value of its name until 'regent published put NAME VALUE' stores one",
}
"""Consequence of the removal of a row, by its kind."""


class RowRemoval(Change):
    """A row that is removed. ``place``: as a report names it. ``ended``: the process has ended that it is about."""

    place: Annotated[str, Field(min_length=1, max_length=PLACE_CHARS_MAX)]
    ended: bool = False


class TableAdoption(Change):
    """The row of a table to store again. An absent field has the value of the damaged row, where that can be read.

    ``enabled``: False has the table closed once the daemon has it.
    """

    kind: Literal["meta", "system", "user"] | None = None
    options: Annotated[dict[Name, OptionValue], Field(max_length=OPTIONS_MAX)] | None = None
    enabled: bool | None = None

    def given(self) -> Given:
        """Returns what the operator gives."""
        return Given(None if self.kind is None else TableKind[self.kind.upper()], self.enabled, self.options)


class Rows:
    """Starts these repairs on the active daemon."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    async def remove(self, request: RowRemoval, principal: str) -> Procedure:
        """Removes a row that cannot be read."""
        needs_reason(request)
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, rows.REMOVE, request.place)) is not None:
            return again
        env = term.env
        damage = env.model.damages.at(request.place)
        _refuse(removal_problem(env.model, damage, request.place, rows.lease_left_s(env), is_ended=request.ended))
        assert damage is not None
        task = rows.RowTask(request.place, str(damage), request.reason, request.ended)
        return await start(term, rows.REMOVE, rows.ROW_TASK.encode(task), caller, request, _about(damage))

    async def adopt_table(self, table: str, request: TableAdoption, principal: str) -> Procedure:
        """Stores the row of a table again."""
        needs_reason(request)
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, rows.ADOPT, table)) is not None:
            return again
        if (why := name_problem(table)) is not None:
            raise Invalid(why, "'regent regions report' names the rows of regions that have this name by a fault")
        if (why := option_problem(request.options or {})) is not None:
            raise Invalid(why, "correct it, or leave it out: the settings hold then")
        model = term.env.model
        row = adopted(model.damages.parts_of_table(table), request.given())
        _refuse(readoption_problem(model, table, row))
        task = TableTask(
            table,
            int(row.kind),
            dict(row.options),
            why=request.reason,
            enables=row.state is TableState.ENABLED,
            state=int(row.state),
            version=row.version,
        )
        about = _about_table(model, table, row)
        return await start(term, rows.ADOPT, TABLE_TASK.encode(task), caller, request, about)


def add_row_routes(app: FastAPI, view: Rows) -> None:
    """Adds the routes to the surface of a daemon; those of the other changes of tables come after them."""

    @app.post("/v1/regions/rows/remove", response_model=Document[Procedure])
    async def remove(wanted: RowRemoval, request: Request) -> Response:
        return document("Procedure", [await view.remove(wanted, principal_of(request))])

    @app.post("/v1/regions/tables/{table:path}/adopt", response_model=Document[Procedure])
    async def adopt_table(table: str, wanted: TableAdoption, request: Request) -> Response:
        return document("Procedure", [await view.adopt_table(table, wanted, principal_of(request))])


def _refuse(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise ViewRefused(*refusal)


def _about(damage: Damage) -> str:
    readable = f"; {readable_text(damage.parts)}" if damage.kind is RowKind.TABLE else ""
    return f"{damage}; {LOSES[damage.kind]}{readable}"


def _about_table(model: Regions, table: str, row: AdoptedRow) -> str:
    """Returns what a request stores, and what of that its damaged row has: nothing else knows what that had."""
    damages = model.damages
    if (stored := damages.stored.table(table)) is not None:
        return f"table {table}: {rows.stored_by(stored[0])}"
    left_out = counted(damages.left_out_of(table), "region")
    readable = readable_text(damages.parts_of_table(table), row)
    return f"table {table} with {row}: its {left_out} that are left out are its own after a restart; {readable}"
