"""Routes requests about throttles."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI, Request, Response

from controller.http.documents import document
from controller.http.models import Document
from controller.http.planned_models import PlannedChange
from controller.http.procedure_models import Procedure
from controller.http.procedures import principal_of
from controller.http.throttle_models import (
    ClearRequest,
    LiftRequest,
    ThrottleItem,
    ThrottleRequest,
    ThrottleSetting,
)


class Throttling(Protocol):
    """Throttles as the surface uses them. Any method may raise ``ViewError``."""

    async def listed(self) -> list[ThrottleItem]:
        """Lists the throttles of operators and of plans, and settings that no procedure owns."""

    async def set_rates(self, request: ThrottleRequest, principal: str) -> Procedure:
        """Starts a throttle."""

    async def planned(self, request: ThrottleRequest) -> list[PlannedChange]:
        """Lists what a throttle would change; changes nothing."""

    async def lift(self, request: LiftRequest, principal: str) -> list[Procedure]:
        """Lifts throttles of operators."""

    async def clear(self, request: ClearRequest, principal: str) -> list[ThrottleSetting]:
        """Removes settings that no procedure owns."""


def add_throttle_routes(app: FastAPI, throttles: Throttling) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/throttles", response_model=Document[ThrottleItem])
    async def listed() -> Response:
        return document("Throttle", await throttles.listed())

    @app.post("/v1/throttles", response_model=Document[Procedure])
    async def set_rates(wanted: ThrottleRequest, request: Request) -> Response:
        return document("Procedure", [await throttles.set_rates(wanted, principal_of(request))])

    @app.post("/v1/throttles/planned", response_model=Document[PlannedChange])
    async def planned(wanted: ThrottleRequest) -> Response:
        return document("PlannedChange", await throttles.planned(wanted))

    @app.post("/v1/throttles/lift", response_model=Document[Procedure])
    async def lift(wanted: LiftRequest, request: Request) -> Response:
        return document("Procedure", await throttles.lift(wanted, principal_of(request)))

    @app.post("/v1/throttles/clear", response_model=Document[ThrottleSetting])
    async def clear(wanted: ClearRequest, request: Request) -> Response:
        return document("ThrottleSetting", await throttles.clear(wanted, principal_of(request)))
