"""Routes requests that drain brokers, shut them down, and undo that."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI, Request, Response

from controller.http.documents import document
from controller.http.drain_models import DrainRequest, UndrainRequest
from controller.http.models import Document
from controller.http.planned_models import PlannedChange
from controller.http.procedure_models import CordonedBroker, Procedure
from controller.http.procedures import principal_of
from controller.http.shutdown_models import Shutdown, ShutdownRequest


class Draining(Protocol):
    """Drains as the surface uses them. Any method may raise ``ViewError``."""

    async def drain(self, request: DrainRequest, principal: str) -> Procedure:
        """Starts a drain."""

    async def planned(self, request: DrainRequest) -> list[PlannedChange]:
        """Lists what a drain would change; changes nothing."""

    async def undrain(self, request: UndrainRequest) -> list[CordonedBroker]:
        """Removes the marks of drains, and undoes shutdowns by command; returns the marks that are left."""

    async def shutdown(self, request: ShutdownRequest) -> Shutdown:
        """Moves a broker's leaders away and stops its followers."""


def add_drain_routes(app: FastAPI, drains: Draining) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.post("/v1/drains", response_model=Document[Procedure])
    async def drain(wanted: DrainRequest, request: Request) -> Response:
        return document("Procedure", [await drains.drain(wanted, principal_of(request))])

    @app.post("/v1/drains/planned", response_model=Document[PlannedChange])
    async def planned(wanted: DrainRequest) -> Response:
        return document("PlannedChange", await drains.planned(wanted))

    @app.post("/v1/drains/remove", response_model=Document[CordonedBroker])
    async def undrain(wanted: UndrainRequest) -> Response:
        return document("CordonedBroker", await drains.undrain(wanted))

    @app.post("/v1/shutdowns", response_model=Document[Shutdown])
    async def shutdown(wanted: ShutdownRequest) -> Response:
        return document("Shutdown", [await drains.shutdown(wanted)])
