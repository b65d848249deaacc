"""Defines requests and responses of the HTTP surface about strays: logs on brokers that no assignment names."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from controller.http.models import Item, RequestItem
from controller.http.procedure_models import Words

BROKERS_MAX: Final = 500
"""Most brokers that one query names."""
REMEMBERED_MAX: Final = 1_000
"""Most remembered replicas that are listed; all are counted."""

BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]


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


class RememberedReplica(Item):
    """A replica that was removed and that its broker has still to stop."""

    broker: int
    topic: str
    partition: int
    since: datetime
    registered: bool = Field(description="the broker is there, so that it is being stopped")


class StrayReport(Item):
    """Strays by broker. ``cut``: brokers with more strays than are listed."""

    brokers: list[int]
    strays: list[StrayLog] = []
    unread: list[UnreadBroker] = []
    cut: list[int] = []
    remembered: list[RememberedReplica] = []
    remembered_total: int = 0


class StrayRemovalRequest(RequestItem):
    """Strays to remove: on these brokers (none given: on all registered ones), of one topic or of all."""

    brokers: Annotated[list[BrokerId], Field(max_length=BROKERS_MAX)] = []
    topic: Annotated[str, Field(max_length=249)] = ""
    dry_run: bool = False
    reason: Words = ""


Outcome = Literal["planned", "removed", "kept", "no response"]


class StrayOutcome(Item):
    """A stray that was to be removed. ``why``: the reason where it was not."""

    outcome: Outcome
    broker: int
    topic: str
    partition: int
    directory: str
    size_bytes: int
    why: str = ""


class StrayRemoval(Item):
    """The result of a removal; ``unread`` and ``cut`` as in the report."""

    dry_run: bool
    brokers: list[int]
    strays: list[StrayOutcome] = []
    unread: list[UnreadBroker] = []
    cut: list[int] = []
