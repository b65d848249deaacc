"""Defines and routes the marks that operators set on servers and regions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Protocol

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.regions.http.requests import NAME_MAX, Change, Name

MarkName = Literal["cordon", "hold", "pin"]


class RegionMark(Item):
    """A mark. ``subject``: the server of a cordon or a hold, the region of a pin; ``server``: to which it is pinned."""

    kind: str
    subject: str
    server: str | None = None
    until: datetime | None = Field(None, description="of a hold")
    principal: str = ""
    reason: str = ""


class MarkRequest(Change):
    """A mark to set. ``server``: of a pin; ``for_s``: of a hold."""

    kind: MarkName
    subject: Name
    server: Annotated[str, Field(max_length=NAME_MAX)] = ""
    for_s: Annotated[int, Field(ge=0, le=3_600)] = 0


class MarkRemoval(Change):
    """A mark to remove."""

    kind: MarkName
    subject: Name


class RegionMarks(Protocol):
    """The marks as the surface uses them. Any method may raise ``ViewError``."""

    def listed(self) -> list[RegionMark]:
        """Lists marks by kind and subject."""

    async def mark(self, request: MarkRequest, principal: str) -> Procedure:
        """Sets a mark."""

    async def unmark(self, request: MarkRemoval, principal: str) -> Procedure:
        """Removes a mark."""


def add_mark_routes(app: FastAPI, marks: RegionMarks) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/regions/marks", response_model=Document[RegionMark])
    async def listed() -> Response:
        return document("RegionMark", marks.listed())

    @app.post("/v1/regions/marks", response_model=Document[Procedure])
    async def mark(wanted: MarkRequest, request: Request) -> Response:
        return document("Procedure", [await marks.mark(wanted, principal_of(request))])

    @app.post("/v1/regions/marks/remove", response_model=Document[Procedure])
    async def unmark(wanted: MarkRemoval, request: Request) -> Response:
        return document("Procedure", [await marks.unmark(wanted, principal_of(request))])
