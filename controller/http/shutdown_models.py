"""Defines requests and responses of the HTTP surface about brokers that are shut down in their place."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from controller.http.drain_models import BrokerId
from controller.http.models import Item, RequestItem
from controller.http.restart_models import Hindrance
from state_machines.decisions.hindrances import StopCause

STAYING_MAX: Final = 100
"""Partitions that the response to a shutdown names; all are counted."""


class ShutdownRequest(RequestItem):
    """A broker to shut down as by its own request."""

    broker: BrokerId
    accept: list[StopCause] = Field([], max_length=len(StopCause), description="causes that hinder no stop")


class Shutdown(Item):
    """The result of a shutdown by command."""

    broker: int
    may_stop: bool = Field(description="nothing hinders its stop, as can-stop judges it")
    leaders_moved: int = 0
    staying_total: int = Field(0, description="partitions that it still leads")
    staying: list[str] = Field([], description=f"the first {STAYING_MAX} of them, each with the reason")
    hindrances: list[Hindrance] = Field([], description="what hinders its stop")
