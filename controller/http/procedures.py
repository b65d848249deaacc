"""Routes requests about procedures, reassign plans and locks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Protocol

from fastapi import FastAPI, Query, Request, Response

from controller.http.documents import document
from controller.http.models import Document
from controller.http.peers import uid_of
from controller.http.procedure_models import (
    CordonedBroker,
    CordonRequest,
    EndRequest,
    Lock,
    Move,
    Procedure,
    ReassignCommand,
    Reassignment,
    ReassignRequest,
)

WAIT_S_MAX: Final = 60.0
"""Longest wait of one request for the end of a procedure."""

WaitS = Annotated[float, Query(ge=0, le=WAIT_S_MAX, alias="waitS")]


class Procedures(Protocol):
    """The daemon's procedures as the surface uses them. Any method may raise ``ViewError``."""

    async def list_all(self, topic: str | None = None, broker: int | None = None) -> list[Procedure]:
        """Lists procedures and kept results; those that lock, or are about, a topic and a broker."""

    async def one(self, pid: int, wait_s: float) -> Procedure:
        """Describes one; waits at most ``wait_s`` for its end."""

    async def moves(self, pid: int) -> list[Move]:
        """Lists the moves of a reassign plan."""

    async def way_back(self, pid: int) -> list[Move]:
        """Plans the moves that take back a plan, or a drain, that has ended."""

    def locks(self) -> list[Lock]:
        """Lists locks."""

    def reassignments(self) -> list[Reassignment]:
        """Lists reassignments under way."""

    async def apply(self, request: ReassignRequest, principal: str) -> Procedure:
        """Starts a reassign plan."""

    async def command(self, pid: int, command: ReassignCommand, principal: str) -> Procedure:
        """Changes a reassign plan that runs."""

    async def abort(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        """Undoes a procedure."""

    async def cancel(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        """Ends a procedure by the gentle stop of its kind, or undoes it."""

    async def bypass(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        """Ends a procedure as it is."""

    async def remove(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        """Removes a record that cannot be used."""


class Cordoning(Protocol):
    """The marks of brokers as the surface uses them. Any method may raise ``ViewError``."""

    async def listed(self) -> list[CordonedBroker]:
        """Lists cordoned brokers."""

    async def cordon(self, request: CordonRequest, principal: str) -> list[CordonedBroker]:
        """Marks brokers."""

    async def uncordon(self, brokers: Collection[int]) -> list[CordonedBroker]:
        """Removes marks."""


def add_cordon_routes(app: FastAPI, cordons: Cordoning) -> None:
    """Adds the routes about cordoned brokers."""

    @app.get("/v1/cordons", response_model=Document[CordonedBroker])
    async def cordoned() -> Response:
        return document("CordonedBroker", await cordons.listed())

    @app.post("/v1/cordons", response_model=Document[CordonedBroker])
    async def cordon(wanted: CordonRequest, request: Request) -> Response:
        return document("CordonedBroker", await cordons.cordon(wanted, principal_of(request)))

    @app.post("/v1/cordons/remove", response_model=Document[CordonedBroker])
    async def uncordon(wanted: CordonRequest) -> Response:
        return document("CordonedBroker", await cordons.uncordon(wanted.brokers))


def principal_of(request: Request) -> str:
    """Returns the caller of a request, as procedures and marks name it."""
    return f"uid {uid_of(request.scope.get('client'))}"


def reason_of(wanted: EndRequest | None) -> str:
    """Returns the reason of a request; clients may leave its body out."""
    return wanted.reason if wanted is not None else ""


def add_routes(app: FastAPI, procedures: Procedures) -> None:
    """Adds the routes to the surface of a daemon."""
    _reads(app, procedures)
    _changes(app, procedures)


def _reads(app: FastAPI, procedures: Procedures) -> None:
    @app.get("/v1/procedures", response_model=Document[Procedure])
    async def listed(topic: str | None = None, broker: int | None = None) -> Response:
        return document("Procedure", await procedures.list_all(topic, broker))

    @app.get("/v1/procedures/{pid}", response_model=Document[Procedure])
    async def one(pid: int, wait_s: WaitS = 0) -> Response:
        return document("Procedure", [await procedures.one(pid, wait_s)])

    @app.get("/v1/procedures/{pid}/moves", response_model=Document[Move])
    async def moves(pid: int) -> Response:
        return document("Move", await procedures.moves(pid))

    @app.get("/v1/procedures/{pid}/way-back", response_model=Document[Move])
    async def way_back(pid: int) -> Response:
        return document("Move", await procedures.way_back(pid))

    @app.get("/v1/locks", response_model=Document[Lock])
    async def locks() -> Response:
        return document("Lock", procedures.locks())

    @app.get("/v1/reassignments", response_model=Document[Reassignment])
    async def reassignments() -> Response:
        return document("Reassignment", procedures.reassignments())


def _changes(app: FastAPI, procedures: Procedures) -> None:
    @app.post("/v1/reassignments", response_model=Document[Procedure])
    async def apply(plan: ReassignRequest, request: Request) -> Response:
        return document("Procedure", [await procedures.apply(plan, principal_of(request))])

    @app.post("/v1/reassignments/{pid}", response_model=Document[Procedure])
    async def command(pid: int, change: ReassignCommand, request: Request) -> Response:
        return document("Procedure", [await procedures.command(pid, change, principal_of(request))])

    @app.post("/v1/procedures/{pid}/abort", response_model=Document[Procedure])
    async def abort(pid: int, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.abort(pid, principal_of(request), reason_of(wanted))])

    @app.post("/v1/procedures/{pid}/cancel", response_model=Document[Procedure])
    async def cancel(pid: int, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.cancel(pid, principal_of(request), reason_of(wanted))])

    @app.post("/v1/procedures/{pid}/bypass", response_model=Document[Procedure])
    async def bypass(pid: int, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.bypass(pid, principal_of(request), reason_of(wanted))])

    @app.post("/v1/procedures/{pid}/remove", response_model=Document[Procedure])
    async def remove(pid: int, request: Request, wanted: EndRequest | None = None) -> Response:
        return document("Procedure", [await procedures.remove(pid, principal_of(request), reason_of(wanted))])
