"""Defines requests and responses of the HTTP surface about procedures and locks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from controller.http.models import Item, RequestItem

REASON_MAX: Final = 1_000
"""Characters of a reason, a nonce or a client's name."""
END_REASON_MAX: Final = 500
"""Characters of the reason of a cancellation, an abort, a bypass or a removal: each record that ends stores it."""
MOVES_MAX: Final = 10_000
"""Moves of one plan."""

Words = Annotated[str, Field(max_length=REASON_MAX)]
Rate = Annotated[int, Field(ge=0, le=2**63 - 1)]
Cap = Annotated[int, Field(ge=1, le=1_000_000)]


class ServerResult(Item):
    """The result of one broker."""

    broker: int
    ok: bool
    text: str = ""


class Procedure(Item):
    """A procedure. ``result`` and ``error`` are sentences; ``detail`` is the kind's own summary of its progress."""

    pid: int
    kind: str
    state: str
    phase: str = Field("", description="running, queued, waiting for dead brokers, paused, undoing; until its end")
    step: str = ""
    detail: str = ""
    brokers: list[int] = Field([], description="of a drain: those that it frees")
    parent: int | None = None
    principal: str = ""
    client: str = ""
    reason: str = ""
    submitted: datetime | None = None
    updated: datetime | None = None
    ended: bool = False
    attempts: int = Field(0, description="of the present step, or of parts, in vain")
    stuck: bool = Field(False, description="one step was tried in vain so often that an operator should look")
    aborted: bool = False
    bypassed: bool = False
    end_requested: str = Field("", description="the latest request to end it: cancel, abort, bypass or remove")
    end_principal: str = ""
    end_reason: str = ""
    end_at: datetime | None = None
    error: str = ""
    result: str = ""
    unmet: str = Field("", description="what a procedure that has ended well did not bring about")
    ends_by: str = Field(
        "", description="the command that ends a procedure of regions which fails or hangs, and its cost"
    )
    progress: str = Field("", description="of a reassign plan, by the reports of brokers that receive replicas")
    copied_bytes: int | None = None
    size_bytes: int | None = Field(None, description="to copy in all, without moves of unknown size")
    rate_bytes_per_s: int | None = None
    remaining_s: int | None = None
    results: list[ServerResult] = Field([], description="of each broker that the procedure has sent a request to")
    unusable: str = Field("", description="why this daemon cannot go on with it; the record stays as it is")
    parked: str = Field("", description="why this daemon does not run it: its steps ended term after term")


class Move(Item):
    """A move of a reassign plan. Without ``origin`` it is taken from the cluster when the plan is applied."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    partition: Annotated[int, Field(ge=0)]
    origin: tuple[int, ...] | None = None
    target: tuple[int, ...]
    size_bytes: int = Field(0, ge=0)
    status: str = "queued"
    copied_bytes: int | None = Field(
        None, description="by the brokers that receive replicas; absent where not measured"
    )
    rate_bytes_per_s: int | None = None
    remaining_s: int | None = None
    records_behind: int | None = None
    why: str = ""
    found: datetime | None = Field(None, description="when it was found superseded")
    by: str = Field("", description="the client that superseded it, as far as a recorded call names it")


class ReassignRequest(RequestItem):
    """A plan to apply. ``nonce``: the same caller's same nonce never starts a second plan."""

    moves: Annotated[list[Move], Field(min_length=1, max_length=MOVES_MAX)]
    cluster_id: Words = Field("", description="of the cluster that the plan was made for; another one refuses it")
    moves_max: Cap = 100
    broker_moves_max: Cap = 10
    bytes_max: Rate = Field(0, description="bytes of the moves under way in the cluster, 0 without a cap")
    broker_bytes_max: Rate = Field(0, description="bytes of the replicas that one broker receives at a time, 0 without")
    rate_bytes_per_s: Rate = Field(0, description="throttle of each broker and direction, 0 without")
    rate_bytes_per_s_max: Rate = Field(
        0, description="upper bound of a throttle that follows the cluster's health from rateBytesPerS on; 0: it stays"
    )
    paused: bool = False
    adopts: bool = Field(False, description="moves that another client has begun to these targets are the plan's own")
    nonce: Words = ""
    reason: Words = ""
    dry_run: bool = False


class ReassignCommand(RequestItem):
    """A change of a plan that runs; absent fields change nothing. ``stop``: no further move begins, for ``reason``."""

    paused: bool | None = None
    moves_max: Cap | None = None
    broker_moves_max: Cap | None = None
    bytes_max: Rate | None = None
    broker_bytes_max: Rate | None = None
    rate_bytes_per_s: Rate | None = Field(None, description="alone: a throttle that stays")
    rate_bytes_per_s_max: Rate | None = Field(None, description="with rateBytesPerS: its upper bound")
    stop: bool = False
    reason: Words = ""


class Reassignment(Item):
    """A reassignment under way. ``pid`` is the plan that began or adopted it; absent: another client did."""

    topic: str
    partition: int
    origin: tuple[int, ...]
    target: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    pid: int | None = None
    by: str = Field(description="the principal that began it, as far as known")
    since: datetime | None = Field(None, description="when the plan was submitted")


class EndRequest(RequestItem):
    """A request to end a procedure. The reason is kept with the procedure, and in the journal."""

    reason: Annotated[str, Field(max_length=END_REASON_MAX)] = ""


class CordonRequest(RequestItem):
    """Brokers to mark: no further replica is placed on them."""

    brokers: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=1_000)]
    reason: Words = ""


class CordonedBroker(Item):
    """A cordoned broker. ``drained`` ones lead last; ``drain_pid`` is the procedure that marked it."""

    broker: int
    reason: str = ""
    principal: str = ""
    since: datetime | None = None
    drained: bool = False
    drain_reason: str = ""
    drain_pid: int | None = None


class Lock(Item):
    """A lock that a procedure holds, or waits for."""

    pid: int
    resource: str
    exclusive: bool
    parts: list[str] = Field(default_factory=list)
    waiting: bool = False
    held_by: list[int] = Field([], description="of a lock that is waited for: the pids that hold the resource")
