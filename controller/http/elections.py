"""Routes requests for elections of many partitions."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI, Request, Response

from controller.http.documents import document
from controller.http.election_models import ElectionRequest
from controller.http.models import Document
from controller.http.procedure_models import Procedure
from controller.http.procedures import principal_of


class Electing(Protocol):
    """Elections as the surface uses them. Any method may raise ``ViewError``."""

    async def elect(self, request: ElectionRequest, principal: str) -> Procedure:
        """Starts an election, or judges it in a dry run."""


def add_election_routes(app: FastAPI, elections: Electing) -> None:
    """Adds the route to the surface of a daemon."""

    @app.post("/v1/elections", response_model=Document[Procedure])
    async def elect(wanted: ElectionRequest, request: Request) -> Response:
        return document("Procedure", [await elections.elect(wanted, principal_of(request))])
