"""Shows snapshots to operators, and requests them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import NotFound, document
from controller.http.models import Document, Item, RequestItem, Words
from controller.http.peers import principal_of
from controller.kafka.snapshots.keeper import Attempt, SnapshotKeeper
from controller.kafka.term.term import Term


class SnapshotRequest(RequestItem):
    """Requests a snapshot of all partitions and brokers. ``reason``: kept in the journal."""

    reason: Words = ""


class SnapshotItem(Item):
    """A snapshot, from its request to its end. ``number`` counts those of the daemon's process."""

    number: int
    state: Literal["waiting", "running", "done", "failed"]
    cause: Literal["election", "schedule", "command"]
    reason: str = ""
    principal: str = ""
    since: datetime
    file: str = Field("", description="its path on the daemon's machine, once it is done")
    partitions: int | None = None
    brokers: int | None = None
    file_bytes: int | None = None
    took_ms: int | None = None
    seq_first: int | None = Field(None, description="number of the journal's last row before it was begun")
    seq_last: int | None = Field(None, description="number of the journal's last row before it was complete")
    error: str = ""


class SnapshotView:
    """The last snapshots of this process as operators see them. ``active``: raises where the daemon is not active."""

    def __init__(self, keeper: SnapshotKeeper, active: Callable[[], Term]) -> None:
        self._keeper = keeper
        self._active = active

    def listed(self) -> list[SnapshotItem]:
        """Lists the last snapshots, oldest first."""
        return [self._item(attempt) for attempt in self._keeper.attempts]

    def described(self, number: int) -> SnapshotItem:
        """Describes one; raises :class:`NotFound`."""
        for attempt in self._keeper.attempts:
            if attempt.number == number:
                return self._item(attempt)
        raise NotFound(
            f"snapshot {number} is none of the last ones of this process",
            "see 'regent list snapshots', or take another",
        )

    def requested(self, request: SnapshotRequest, principal: str) -> SnapshotItem:
        """Requests one of the active term; returns the one that waits already where there is one."""
        self._active()
        return self._item(self._keeper.request(request.reason, principal))

    def _item(self, attempt: Attempt) -> SnapshotItem:
        taken = attempt.taken
        found = SnapshotItem(
            number=attempt.number,
            state=attempt.state.value,
            cause=attempt.cause.value,
            reason=attempt.reason,
            principal=attempt.principal,
            since=datetime.fromtimestamp(attempt.began_s, UTC),
            took_ms=attempt.took_ms,
            error=attempt.err,
        )
        if taken is None:
            return found
        written = taken.written
        end = {
            "file": str(self._keeper.folder / written.name),
            "partitions": written.partitions,
            "brokers": written.brokers,
            "file_bytes": written.file_bytes,
            "seq_first": taken.seq_first,
            "seq_last": taken.seq_last,
        }
        return found.model_copy(update=end)


def add_snapshot_routes(app: FastAPI, snapshots: SnapshotView) -> None:
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
