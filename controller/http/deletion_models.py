"""Defines requests and responses of the HTTP surface about deletions of topics that wait."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from controller.http.models import Item, RequestItem
from controller.http.procedure_models import Words
from controller.http.stray_models import BROKERS_MAX, BrokerId


class Deletion(Item):
    """A topic that is being deleted. ``waits_for``: brokers that are gone, or refused to delete their logs."""

    topic: str
    partitions: int
    state: Literal["queued", "under way", "waiting"]
    since: datetime | None = Field(None, description="when its deletion was requested")
    waits_for: list[int] = []
    why: str = Field("", description="what it waits for, and what ends the wait")


class GiveUpRequest(RequestItem):
    """Ends the wait of a topic's deletion for brokers that never return."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    brokers: Annotated[list[BrokerId], Field(min_length=1, max_length=BROKERS_MAX)]
    reason: Words = ""
