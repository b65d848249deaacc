"""Routes requests about strays: logs on brokers that no assignment names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Protocol

from fastapi import FastAPI, Query, Response
from pydantic import Field

from controller.http.models import Document, Item
from controller.http.procedures import document

BROKERS_MAX: Final = 500
"""Most brokers that one query names."""

BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Brokers = Annotated[list[BrokerId] | None, Query(alias="broker", max_length=BROKERS_MAX)]


class StrayLog(Item):
    """A log that no assignment names. ``is_future``: it moves between two directories of its broker."""

    broker: int
    topic: str
    partition: int
    directory: str
    size_bytes: int
    is_future: bool = False
    reason: str


class UnreadBroker(Item):
    """A broker whose logs are not known, and why."""

    broker: int
    why: str


class StrayReport(Item):
    """Strays by broker. ``cut``: brokers with more strays than are listed."""

    brokers: list[int]
    strays: list[StrayLog] = []
    unread: list[UnreadBroker] = []
    cut: list[int] = []


class Strays(Protocol):
    """Strays as the surface uses them. The method may raise ``ViewError``."""

    async def listed(self, brokers: Sequence[int]) -> StrayReport:
        """Lists strays on brokers (none given: on all registered ones)."""


def add_stray_routes(app: FastAPI, strays: Strays) -> None:
    """Adds the route to the surface of a daemon."""

    @app.get("/v1/strays", response_model=Document[StrayReport])
    async def listed(brokers: Brokers = None) -> Response:
        return document("StrayReport", [await strays.listed(brokers or ())])
