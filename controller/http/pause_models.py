"""Defines requests and responses of the HTTP surface about the pause of automatic moves."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from controller.http.models import Item, RequestItem
from controller.http.procedure_models import Words

PAUSE_S_MAX: Final = 366 * 86_400
"""Longest pause with an end, in seconds."""


class PauseRequest(RequestItem):
    """Pauses automatic moves. ``for_s``: seconds until they go on by themselves, absent: once they are resumed."""

    for_s: Annotated[int, Field(ge=1, le=PAUSE_S_MAX)] | None = None
    reason: Words = ""


class PauseItem(Item):
    """Whether automatic moves are paused, and by what request."""

    paused: bool
    reason: str = ""
    principal: str = ""
    since: datetime | None = None
    until: datetime | None = None
