"""Routes requests about strays: logs on brokers that no assignment names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from fastapi import FastAPI, Query, Request, Response

from controller.http.documents import document
from controller.http.models import Document
from controller.http.procedures import principal_of
from controller.http.stray_models import BROKERS_MAX, BrokerId, StrayRemoval, StrayRemovalRequest, StrayReport

Brokers = Annotated[list[BrokerId] | None, Query(alias="broker", max_length=BROKERS_MAX)]


class Strays(Protocol):
    """Strays as the surface uses them. Any method may raise ``ViewError``."""

    async def listed(self, brokers: Sequence[int]) -> StrayReport:
        """Lists strays on brokers (none given: on all registered ones)."""

    async def removed(self, request: StrayRemovalRequest, principal: str) -> StrayRemoval:
        """Has brokers delete their strays."""


def add_stray_routes(app: FastAPI, strays: Strays) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/strays", response_model=Document[StrayReport])
    async def listed(brokers: Brokers = None) -> Response:
        return document("StrayReport", [await strays.listed(brokers or ())])

    @app.post("/v1/strays/remove", response_model=Document[StrayRemoval])
    async def remove(wanted: StrayRemovalRequest, request: Request) -> Response:
        return document("StrayRemoval", [await strays.removed(wanted, principal_of(request))])
