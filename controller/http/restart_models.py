"""Defines the responses about brokers that are to stop, to be removed or to be restarted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from controller.http.drain_models import BrokerId
from controller.http.models import Item, RequestItem
from controller.http.procedure_models import Words
from state_machines.decisions.hindrances import StopCause
from state_machines.decisions.restarts import BATCH_MAX


class Hindrance(Item):
    """A cause of a no, with its remedy. ``accept`` of the query takes ``cause``, where the query has it."""

    cause: str
    count: int = Field(description="partitions; brokers where the cause concerns no partition")
    meaning: str
    remedy: str
    examples: list[str] = Field([], description="the first partitions, as TOPIC-PARTITION")
    waits_for: list[int] = Field([], description="brokers whose replicas have to come into sync, the first ones")


class SetOfBrokers(Item):
    """A yes or no about brokers together. The last three lists name brokers of the query that are not live."""

    allowed: bool
    brokers: list[int]
    partitions: int = Field(description="partitions on these brokers that were judged")
    hindrances: list[Hindrance] = []
    unregistered: list[int] = Field([], description="host replicas and are not registered: they are down")
    shutting_down: list[int] = Field([], description="have requested their controlled shutdown")
    unknown: list[int] = Field([], description="neither registered nor assigned to any replica")


class RestartRequest(RequestItem):
    """A rolling restart to begin. ``nonce``: the same caller's same nonce never begins a second one."""

    brokers: list[BrokerId] = Field([], max_length=500, description="none: every registered broker")
    batch_max: Annotated[int, Field(ge=1, le=BATCH_MAX)] = Field(BATCH_MAX, description="most brokers of one batch")
    accept: list[StopCause] = Field([], max_length=len(StopCause), description="causes that hinder nothing")
    nonce: Words = ""
    reason: Words = ""


class RestartNext(Item):
    """Brokers that a rolling restart takes next, or why it has to wait."""

    state: Literal["restart", "wait", "done", "ended"] = Field(
        description="done: the restart of the query is complete; ended: the last one has ended, and none was named"
    )
    pid: int | None = Field(None, description="the rolling restart whose start counts, of a query without since")
    why: str
    batch: list[int] = Field([], description="restart these now, together")
    rack: str | None = None
    pending: list[int] = Field([], description="have to be restarted, the batch among them")
    restarted: list[int] = []
    down: list[int] = Field([], description="stopped or shutting down, and not back yet")
    nearest: int | None = Field(None, description="the pending broker that fewest partitions hinder")
    hindrances: list[Hindrance] = Field([], description="what hinders the nearest broker")
