"""Shows namespaces, and takes requests to create and delete them."""

from __future__ import annotations

from collections import Counter

from fastapi import FastAPI, Request, Response

from controller.http.documents import Invalid, NotFound, ViewRefused, document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.regions.damaged import REMEDY
from controller.regions.domain import RegionsDomain
from controller.regions.operator.requests import Change, Name, acting_term, active_term, caller_of, known, refuse, start
from controller.regions.procedures import namespaces
from controller.regions.procedures.namespaces import NAMESPACE_TASK, NamespaceTask
from state_machines.regions.layout import name_problem


class Namespace(Item):
    """A namespace, and the number of its tables."""

    name: str
    tables: int


class NamespaceCreation(Change):
    """A namespace to create."""

    name: Name


class NamespaceView:
    """Shows the namespaces of the active term, and starts changes of them."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def list_namespaces(self) -> list[Namespace]:
        """Lists namespaces by name."""
        model = active_term(self._domain).env.model
        tables = Counter(one.namespace for one in model.tables.values())
        return [Namespace(name=name, tables=tables[name]) for name in sorted(model.namespaces)]

    async def create_namespace(self, request: NamespaceCreation, principal: str) -> Procedure:
        """Creates a namespace."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, namespaces.CREATE_NAMESPACE, request.name)) is not None:
            return again
        if ":" in request.name or name_problem(request.name) is not None:
            raise Invalid(f"name {request.name[:80]!r} is no name of a namespace", "use letters, digits, '_', '-', '.'")
        if request.name in term.env.model.namespaces:
            raise ViewRefused(f"namespace {request.name!r} exists already", "see 'regent namespaces list'")
        if request.name in term.env.model.damages.namespaces:
            raise ViewRefused(f"namespace {request.name!r} is stored already, and left out: it is damaged", REMEDY)
        data = NAMESPACE_TASK.encode(NamespaceTask(request.name, request.reason))
        about = f"namespace {request.name}"
        return await start(term, namespaces.CREATE_NAMESPACE, data, caller, request, about)

    async def delete_namespace(self, name: str, request: Change, principal: str) -> Procedure:
        """Deletes a namespace."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, namespaces.DELETE_NAMESPACE, name)) is not None:
            return again
        if name not in term.env.model.namespaces:
            raise NotFound(f"namespace {name!r} does not exist", "see 'regent namespaces list'")
        refuse(namespaces.undeletable(term.env.model, name), "see 'regent tables list'")
        data = NAMESPACE_TASK.encode(NamespaceTask(name, request.reason))
        return await start(term, namespaces.DELETE_NAMESPACE, data, caller, request, f"namespace {name}")


def add_namespace_routes(app: FastAPI, view: NamespaceView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/regions/namespaces", response_model=Document[Namespace])
    async def namespaces() -> Response:
        return document("Namespace", view.list_namespaces())

    @app.post("/v1/regions/namespaces", response_model=Document[Procedure])
    async def create_namespace(wanted: NamespaceCreation, request: Request) -> Response:
        return document("Procedure", [await view.create_namespace(wanted, principal_of(request))])

    @app.post("/v1/regions/namespaces/{name:path}/delete", response_model=Document[Procedure])
    async def delete_namespace(name: str, wanted: Change, request: Request) -> Response:
        return document("Procedure", [await view.delete_namespace(name, wanted, principal_of(request))])
