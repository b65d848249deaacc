"""Routes requests about deletions of topics that wait."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI, Request, Response

from controller.http.deletion_models import Deletion, GiveUpRequest
from controller.http.documents import document
from controller.http.models import Document
from controller.http.procedures import principal_of


class Deletions(Protocol):
    """Deletions as the surface uses them. Any method may raise ``ViewError``."""

    def listed(self) -> list[Deletion]:
        """Lists topics that are being deleted, those that wait first."""

    async def given_up(self, request: GiveUpRequest, principal: str) -> list[Deletion]:
        """Ends waits for brokers that never return; returns what is left of the topic's deletion."""


def add_deletion_routes(app: FastAPI, deletions: Deletions) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/deletions", response_model=Document[Deletion])
    async def listed() -> Response:
        return document("Deletion", deletions.listed())

    @app.post("/v1/deletions/give-up", response_model=Document[Deletion])
    async def give_up(wanted: GiveUpRequest, request: Request) -> Response:
        return document("Deletion", await deletions.given_up(wanted, principal_of(request)))
