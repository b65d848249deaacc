"""Routes requests about the pause of automatic moves."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI, Request, Response

from controller.http.documents import document
from controller.http.models import Document
from controller.http.pause_models import PauseItem, PauseRequest
from controller.http.procedures import principal_of


class Pausing(Protocol):
    """The pause as the surface uses it. Any method may raise ``ViewError``."""

    async def shown(self) -> PauseItem:
        """Returns the pause."""

    async def pause(self, request: PauseRequest, principal: str) -> PauseItem:
        """Pauses automatic moves; a pause that holds is replaced."""

    async def resume(self) -> PauseItem:
        """Ends the pause."""


def add_pause_routes(app: FastAPI, pauses: Pausing) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/pause", response_model=Document[PauseItem])
    async def shown() -> Response:
        return document("PauseItem", [await pauses.shown()])

    @app.post("/v1/pause", response_model=Document[PauseItem])
    async def pause(wanted: PauseRequest, request: Request) -> Response:
        return document("PauseItem", [await pauses.pause(wanted, principal_of(request))])

    @app.post("/v1/pause/remove", response_model=Document[PauseItem])
    async def resume() -> Response:
        return document("PauseItem", [await pauses.resume()])
