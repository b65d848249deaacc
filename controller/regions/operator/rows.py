"""Takes requests to remove a row that cannot be read, and to store the row of a table again."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, Refused, document
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
from state_machines.regions.states import TableKind
from state_machines.regions.unusable import readoption_problem, removal_problem

PLACE_CHARS_MAX: Final = 2_000
"""Characters of the place of a row: in ZooKeeper a path with a quoted name."""
LOSES: Final = {
    RowKind.HEIR: "no region refers by it to others: their data may be discarded",
    RowKind.PARENT: "the data of a region that was split or merged stays at the service",
    RowKind.SNAPSHOT: "the data of a snapshot stays at the service",
    RowKind.SNAPSHOT_PART: "the data of a snapshot stays at the service",
    RowKind.REGION: "the data of a region stays at the service, and another region may get its keys",
    RowKind.SERVER: "no log of that process is read: its regions lack the edits that are in it alone",
    RowKind.BURIED: "a process that was fenced may register again",
    RowKind.MARK: "what it meant holds no longer",
}
"""What is lost with a row, by its kind."""


class RowRemoval(Change):
    """A row that is removed. ``place``: as a report names it."""

    place: Annotated[str, Field(min_length=1, max_length=PLACE_CHARS_MAX)]


class TableAdoption(Change):
    """The row of a table that is stored again. ``enabled``: else it is closed once the daemon has it."""

    kind: Literal["meta", "system", "user"] = "user"
    options: Annotated[dict[Name, OptionValue], Field(max_length=OPTIONS_MAX)] = {}
    enabled: bool = True


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
        _refuse(removal_problem(env.model, damage, request.place, rows.lease_left_s(env)))
        assert damage is not None
        task = rows.RowTask(request.place, str(damage), request.reason)
        return await start(term, rows.REMOVE, rows.ROW_TASK.encode(task), caller, request, _about(damage))

    async def adopt_table(self, table: str, request: TableAdoption, principal: str) -> Procedure:
        """Stores the row of a table again."""
        needs_reason(request)
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, rows.ADOPT, table)) is not None:
            return again
        if (why := name_problem(table)) is not None:
            raise Invalid(why, "'regent regions report' names the rows of regions that have this name by a fault")
        if (why := option_problem(request.options)) is not None:
            raise Invalid(why, "correct it, or leave it out: the settings hold then")
        _refuse(readoption_problem(term.env.model, table))
        kind = TableKind[request.kind.upper()]
        task = TableTask(table, kind, request.options, why=request.reason, enables=request.enabled)
        about = _about_table(term.env.model, task)
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
        raise Refused(*refusal)


def _about(damage: Damage) -> str:
    loses = f"; {LOSES[damage.kind]}" if damage.kind in LOSES else ""
    return f"{damage}{loses}"


def _about_table(model: Regions, task: TableTask) -> str:
    """Returns what a request does, and with which options: those that the table had are not known any more."""
    left_out = counted(model.damages.left_out_of(task.table), "region")
    options = ", ".join(f"{name}={value}" for name, value in sorted(task.options.items())) or "no options"
    state = "" if task.enables else ", and is to be disabled then"
    return f"table {task.table} with {options}{state}: its {left_out} that are left out are its own after a restart"
