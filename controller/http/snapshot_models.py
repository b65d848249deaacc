"""Defines requests and responses of the HTTP surface about snapshots."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from controller.http.models import Item, RequestItem
from controller.http.procedure_models import Words


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
