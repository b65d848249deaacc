"""Routes requests about snapshots."""

from __future__ import annotations

from typing import Protocol

from fastapi import FastAPI, Request, Response

from controller.http.documents import document
from controller.http.models import Document
from controller.http.procedures import principal_of
from controller.http.snapshot_models import SnapshotItem, SnapshotRequest


class Snapshots(Protocol):
    """Snapshots as the surface uses them. Any method may raise ``ViewError``."""

    def listed(self) -> list[SnapshotItem]:
        """Lists the last snapshots of this process, oldest first."""

    def described(self, number: int) -> SnapshotItem:
        """Describes one of them."""

    def requested(self, request: SnapshotRequest, principal: str) -> SnapshotItem:
        """Requests one; returns the one that waits already where there is one."""


def add_snapshot_routes(app: FastAPI, snapshots: Snapshots) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/snapshots", response_model=Document[SnapshotItem])
    async def all_of_them() -> Response:
        return document("Snapshot", snapshots.listed())

    @app.get("/v1/snapshots/{number}", response_model=Document[SnapshotItem])
    async def one(number: int) -> Response:
        return document("Snapshot", [snapshots.described(number)])

    @app.post("/v1/snapshots", response_model=Document[SnapshotItem])
    async def take(wanted: SnapshotRequest, request: Request) -> Response:
        return document("Snapshot", [snapshots.requested(wanted, principal_of(request))])
