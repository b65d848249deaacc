"""Defines requests and responses of the HTTP surface about drained brokers and brokers in their shutdown."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from controller.http.models import Item, RequestItem
from controller.http.procedure_models import Rate, Words

STAYING_MAX: Final = 100
"""Partitions that the response to a shutdown names; all are counted."""

BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]
BrokerIds = Annotated[list[BrokerId], Field(min_length=1, max_length=1_000)]


class DrainRequest(RequestItem):
    """Brokers to drain. ``nonce``: the same caller's same nonce never starts a second drain."""

    brokers: BrokerIds
    replicas: bool = Field(False, description="move every replica away, too")
    rate_bytes_per_s: Rate = Field(0, description="throttle of the replicas' moves, each broker and direction; 0: none")
    nonce: Words = ""
    reason: Words = ""


class UndrainRequest(RequestItem):
    """Brokers to let lead again. A shutdown by command is undone, too."""

    brokers: BrokerIds


class ShutdownRequest(RequestItem):
    """A broker to shut down as by its own request."""

    broker: BrokerId


class Shutdown(Item):
    """The result of a shutdown by command."""

    broker: int
    may_stop: bool = Field(description="no partition is left on it that another broker could lead")
    leaders_moved: int = 0
    staying_total: int = Field(0, description="partitions that it still leads")
    staying: list[str] = Field([], description=f"the first {STAYING_MAX} of them, each with the reason")
