"""Routes requests about the history of the controller role."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from fastapi import FastAPI, Response

from controller.http.documents import document
from controller.http.models import Document, Item


class RoleChangeItem(Item):
    """A change of the role flag: the side that got the role, when, by whose request, and why."""

    at: datetime
    holder: str
    principal: str = ""
    reason: str = ""


class RoleHistory(Protocol):
    """The history as the surface uses it. Any method may raise ``ViewError``."""

    async def changes(self) -> list[RoleChangeItem]:
        """Lists the latest changes, the oldest first."""


def add_role_history_route(app: FastAPI, history: RoleHistory) -> None:
    """Adds the route to the surface of a daemon."""

    @app.get("/v1/role/history", response_model=Document[RoleChangeItem])
    async def changes() -> Response:
        return document("RoleChangeItem", await history.changes())
