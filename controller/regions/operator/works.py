"""Takes requests for work on a region, or on all regions of a table: checks them, and starts their procedures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, document
from controller.http.models import Document
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.process.wording import named
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator.requests import (
    Change,
    Name,
    acting_term,
    caller_of,
    known,
    refuse,
    region_of,
    start,
    table_of,
)
from controller.regions.operator.table_checks import met_by, opening_remedy
from controller.regions.procedures import region_work, table_work
from controller.regions.procedures.messages import REGION_WORK, TABLE_WORK, RegionWork, TableWork
from controller.regions.term import RegionsTerm
from regent_agent.protocol import COMMIT, DATA_BYTES_MAX, DISCARD, STAGE, UNSTAGE
from state_machines.regions.entities import Region, Table
from state_machines.regions.states import WANTED, RegionState

TRIES_MOST: Final = 1_000
TIMEOUT_MS_MAX: Final = 7 * 86_400_000


PROCEDURES: Final[Mapping[str, str]] = {
    DISCARD: "it removes data: the daemon sends it once nothing needs that",
    STAGE: "'regent tables snapshot' has all regions of a table do it",
    UNSTAGE: "the daemon sends it where a snapshot ends early",
    COMMIT: "'regent published put' has all servers do it",
}
"""Work that procedures send alone, because other rows go with it, and the remedy."""


class WorkRequest(Change):
    """Work that servers do. ``work``: its name; ``data``: text that they get.

    ``tries``: failures after which it fails, 0: never. ``timeout_ms``: time after which it fails, 0: never.
    """

    work: Name
    data: Annotated[str, Field(max_length=DATA_BYTES_MAX)] = ""
    tries: Annotated[int, Field(ge=0, le=TRIES_MOST)] = region_work.TRIES_MAX
    timeout_ms: Annotated[int, Field(ge=0, le=TIMEOUT_MS_MAX)] = 0


class Works:
    """Starts work on the active daemon."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    async def work_on_region(self, region: int, request: WorkRequest, principal: str) -> Procedure:
        """Has work done on a region."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, region_work.NAME, str(region))) is not None:
            return again
        _check(request)
        found, data = region_of(term.env.model, region), _data(request)
        _check_table(term, found.table)
        refuse(region_problem(found), f"'regent regions assign {region}' opens it")
        refuse(lacking_problem(term.env, request.work), "start versions of them that name it among their features")
        task = RegionWork(region, found.table.name, request.work, data, request.reason, request.tries)
        about = f"region {found}: work {request.work!r}"
        expires_ms = term.env.wall_ms() + request.timeout_ms if request.timeout_ms else 0
        return await start(term, region_work.NAME, REGION_WORK.encode(task), caller, request, about, expires_ms)

    async def work_on_table(self, table: str, request: WorkRequest, principal: str) -> Procedure:
        """Has work done on all open regions of a table."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, table_work.NAME, table)) is not None:
            return again
        _check(request)
        found, data = table_of(term.env.model, table), _data(request)
        _check_table(term, found)
        refuse(lacking_problem(term.env, request.work), "start versions of them that name it among their features")
        task = TableWork(table, request.work, data, request.reason, request.tries)
        about = f"table {table}: work {request.work!r} on {found.count(RegionState.OPEN)} regions"
        expires_ms = term.env.wall_ms() + request.timeout_ms if request.timeout_ms else 0
        return await start(term, table_work.NAME, TABLE_WORK.encode(task), caller, request, about, expires_ms)


def region_problem(region: Region) -> str | None:
    """Returns why no work can be done on a region now; None where it can."""
    if region.state in (RegionState.CLOSED, RegionState.FAILED_OPEN):
        return f"region {region} is {region.state.name}: work needs an open region"
    return None


def lacking_problem(env: RegionsEnv, feature: str) -> str | None:
    """Returns why servers cannot do a work, naming those that lack it; None where all can."""
    lacking = sorted(map(str, env.lacking(feature)))
    if not lacking:
        return None
    return f"work {feature!r} is not done by {named(lacking)}"


def _check(request: WorkRequest) -> None:
    if (remedy := PROCEDURES.get(request.work)) is not None:
        raise Invalid(f"work {request.work!r} is sent by procedures of the daemon alone", remedy)


def _check_table(term: RegionsTerm, table: Table) -> None:
    if table.state not in WANTED:
        problem = f"table {table.name} is {table.state.name.lower()}: no server has its regions"
        refuse(problem, opening_remedy(term.env.model, table, met_by(table, "enable", term.engine)))


def _data(request: WorkRequest) -> bytes:
    data = request.data.encode()
    if len(data) > DATA_BYTES_MAX:
        raise Invalid(f"data has {len(data)} bytes, at most {DATA_BYTES_MAX} are sent", "put it where servers read it")
    return data


def add_work_routes(app: FastAPI, works: Works) -> None:
    """Adds the routes to the surface of a daemon; those of the other changes come after them."""

    @app.post("/v1/regions/{region:int}/work", response_model=Document[Procedure])
    async def work_on_region(region: int, wanted: WorkRequest, request: Request) -> Response:
        return document("Procedure", [await works.work_on_region(region, wanted, principal_of(request))])

    @app.post("/v1/regions/tables/{table:path}/work", response_model=Document[Procedure])
    async def work_on_table(table: str, wanted: WorkRequest, request: Request) -> Response:
        return document("Procedure", [await works.work_on_table(table, wanted, principal_of(request))])
