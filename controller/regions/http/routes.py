"""Routes requests about regions, their tables, namespaces and servers."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import FastAPI, Query, Request, Response

from controller.http.documents import document
from controller.http.models import Document
from controller.http.peers import principal_of
from controller.http.procedures import EndRequest, Lock, Procedure, WaitS, reason_of
from controller.regions.http.marks import add_mark_routes
from controller.regions.http.models import (
    Namespace,
    Region,
    RegionExplanation,
    RegionServer,
    RegionsStatus,
    RegionTransition,
    Table,
)
from controller.regions.http.ports import (
    EndAct,
    ProcedureQuery,
    RegionAct,
    RegionChanges,
    RegionProcedures,
    RegionQuery,
    RegionReading,
    RegionsView,
    ServerAct,
    TableAct,
)
from controller.regions.http.requests import Change, NamespaceCreation, RegionChange, ServerChange, TableCreation

PAGE_DEFAULT: Final = 500
PAGE_MAX: Final = 5_000
NAME_MAX: Final = 300

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
After = Annotated[str | None, Query(max_length=NAME_MAX)]
Name = Annotated[str | None, Query(max_length=NAME_MAX)]
AfterPid = Annotated[int, Query(ge=0)]
InTransition = Annotated[bool, Query(alias="inTransition")]


def add_region_routes(app: FastAPI, regions: RegionsView) -> None:
    """Adds the routes to the surface of a daemon."""
    _reading_regions(app, regions.reading)
    _reading_others(app, regions.reading)
    _procedures(app, regions.procedures)
    _changing_regions(app, regions.changes)
    _changing_tables(app, regions.changes)
    _changing_servers(app, regions.changes)
    add_mark_routes(app, regions.marks)


def _reading_regions(app: FastAPI, reading: RegionReading) -> None:
    @app.get("/v1/regions", response_model=Document[RegionsStatus])
    async def status() -> Response:
        return document("RegionsStatus", [reading.status()])

    @app.get("/v1/regions/list", response_model=Document[Region])
    async def listed(
        table: Name = None,
        server: Name = None,
        state: Name = None,
        in_transition: InTransition = False,
        stranded: bool = False,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Response:
        page = reading.list_regions(RegionQuery(limit, after, table, server, state, in_transition, stranded))
        return document("Region", page.items, page.next)

    @app.get("/v1/regions/transitions", response_model=Document[RegionTransition])
    async def transitions(limit: Limit = PAGE_DEFAULT) -> Response:
        return document("RegionTransition", await reading.list_transitions(limit))

    @app.get("/v1/regions/{region:int}", response_model=Document[Region])
    async def described(region: int) -> Response:
        return document("Region", [reading.describe_region(region)])

    @app.get("/v1/regions/{region:int}/explanation", response_model=Document[RegionExplanation])
    async def explained(region: int) -> Response:
        return document("RegionExplanation", [reading.explain(region)])


def _reading_others(app: FastAPI, reading: RegionReading) -> None:
    @app.get("/v1/regions/tables", response_model=Document[Table])
    async def tables(limit: Limit = PAGE_DEFAULT, after: After = None) -> Response:
        page = reading.list_tables(limit, after)
        return document("Table", page.items, page.next)

    @app.get("/v1/regions/tables/{table:path}", response_model=Document[Table])
    async def table(table: str) -> Response:
        return document("Table", [reading.describe_table(table)])

    @app.get("/v1/regions/namespaces", response_model=Document[Namespace])
    async def namespaces() -> Response:
        return document("Namespace", reading.list_namespaces())

    @app.get("/v1/regions/servers", response_model=Document[RegionServer])
    async def servers() -> Response:
        return document("RegionServer", reading.list_servers())

    @app.get("/v1/regions/servers/{server:path}", response_model=Document[RegionServer])
    async def server(server: str) -> Response:
        return document("RegionServer", [reading.describe_server(server)])


def _procedures(app: FastAPI, procedures: RegionProcedures) -> None:
    @app.get("/v1/regions/procedures", response_model=Document[Procedure])
    async def listed(
        kind: Name = None, live: bool = False, parts: bool = False, limit: Limit = PAGE_DEFAULT, after: AfterPid = 0
    ) -> Response:
        page = procedures.list_procedures(ProcedureQuery(limit, after, kind, live, parts))
        return document("Procedure", page.items, page.next)

    @app.get("/v1/regions/procedures/{pid:int}", response_model=Document[Procedure])
    async def one(pid: int, wait_s: WaitS = 0) -> Response:
        return document("Procedure", [await procedures.one(pid, wait_s)])

    @app.get("/v1/regions/locks", response_model=Document[Lock])
    async def locks() -> Response:
        return document("Lock", procedures.locks())

    @app.post("/v1/regions/procedures/{pid:int}/{act}", response_model=Document[Procedure])
    async def end(pid: int, act: EndAct, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.end(act, pid, principal_of(request), reason_of(wanted))])


def _changing_regions(app: FastAPI, changes: RegionChanges) -> None:
    @app.post("/v1/regions/{region:int}/{act}", response_model=Document[Procedure])
    async def change(region: int, act: RegionAct, wanted: RegionChange, request: Request) -> Response:
        return document("Procedure", [await changes.change_region(act, region, wanted, principal_of(request))])


def _changing_tables(app: FastAPI, changes: RegionChanges) -> None:
    @app.post("/v1/regions/tables", response_model=Document[Procedure])
    async def create(wanted: TableCreation, request: Request) -> Response:
        return document("Procedure", [await changes.create_table(wanted, principal_of(request))])

    @app.post("/v1/regions/tables/{table:path}/{act}", response_model=Document[Procedure])
    async def change(table: str, act: TableAct, wanted: Change, request: Request) -> Response:
        return document("Procedure", [await changes.change_table(act, table, wanted, principal_of(request))])

    @app.post("/v1/regions/namespaces", response_model=Document[Procedure])
    async def create_namespace(wanted: NamespaceCreation, request: Request) -> Response:
        return document("Procedure", [await changes.create_namespace(wanted, principal_of(request))])

    @app.post("/v1/regions/namespaces/{name:path}/delete", response_model=Document[Procedure])
    async def delete_namespace(name: str, wanted: Change, request: Request) -> Response:
        return document("Procedure", [await changes.delete_namespace(name, wanted, principal_of(request))])


def _changing_servers(app: FastAPI, changes: RegionChanges) -> None:
    @app.post("/v1/regions/servers/{server:path}/{act}", response_model=Document[Procedure])
    async def change(server: str, act: ServerAct, wanted: ServerChange, request: Request) -> Response:
        return document("Procedure", [await changes.change_server(act, server, wanted, principal_of(request))])
