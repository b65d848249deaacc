"""Routes requests for rolling restarts."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI, Request, Response

from controller.http.documents import document
from controller.http.models import Document
from controller.http.procedure_models import Procedure
from controller.http.procedures import principal_of
from controller.http.restart_models import RestartRequest


class Restarting(Protocol):
    """Rolling restarts as the surface uses them. Any method may raise ``ViewError``."""

    async def begin(self, request: RestartRequest, principal: str) -> Procedure:
        """Begins a rolling restart."""


def add_restart_routes(app: FastAPI, restarts: Restarting) -> None:
    """Adds the route to the surface of a daemon."""

    @app.post("/v1/restarts", response_model=Document[Procedure])
    async def begin(wanted: RestartRequest, request: Request) -> Response:
        return document("Procedure", [await restarts.begin(wanted, principal_of(request))])
