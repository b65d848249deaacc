"""Defines requests and responses about procedures and locks of any domain, and converts records into them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import Query
from pydantic import Field

from controller.http.models import Item, RequestItem
from controller.process.wording import named
from state_machines.procedures.kernel import is_stuck
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State

END_REASON_MAX: Final = 500
"""Characters of the reason of a cancellation, an abort, a bypass or a removal: each record that ends stores it."""
WAIT_S_MAX: Final = 60.0
"""Longest wait of one request for the end of a procedure."""
WaitS = Annotated[float, Query(ge=0, le=WAIT_S_MAX, alias="waitS")]


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


class EndRequest(RequestItem):
    """A request to end a procedure. The reason is kept with the procedure, and in the journal."""

    reason: Annotated[str, Field(max_length=END_REASON_MAX)] = ""


class Lock(Item):
    """A lock that a procedure holds, or waits for."""

    pid: int
    resource: str
    exclusive: bool
    parts: list[str] = Field(default_factory=list)
    waiting: bool = False
    held_by: list[int] = Field([], description="of a lock that is waited for: the pids that hold the resource")


class PlannedChange(Item):
    """A change that a request would make, of a dry run: nothing was done. Values are in words."""

    entity: str = Field(description="broker ID, topic NAME, or a partition as TOPIC-NUMBER")
    what: str = Field(description="a setting, or mark, leaders, replicas")
    before: str = ""
    after: str = ""
    why: str = Field("", description="what stays as it is, and why")


def reason_of(wanted: EndRequest | None) -> str:
    """Returns the reason of a request; clients may leave its body out."""
    return wanted.reason if wanted is not None else ""


def record_item(
    record: Record,
    step: str,
    detail: str = "",
    results: Sequence[ServerResult] = (),
    unusable: str = "",
    unmet: str = "",
) -> Procedure:
    """Describes a record. ``step``: its name; ``detail``, ``results``, ``unmet``: the kind's own."""
    return Procedure(
        pid=record.pid,
        kind=record.kind,
        state=record.state.name.lower(),
        step=step,
        detail=detail,
        parent=record.parent or None,
        principal=record.caller.principal,
        client=record.caller.client,
        reason=record.caller.reason,
        submitted=time_of(record.submitted_ms),
        updated=time_of(record.updated_ms),
        ended=record.state.is_final,
        attempts=record.attempts,
        stuck=is_stuck(record),
        aborted=record.aborted,
        bypassed=record.bypassed,
        end_requested=record.ending.act,
        end_principal=record.ending.principal,
        end_reason=record.ending.reason,
        end_at=time_of(record.ending.at_ms),
        error=record.error,
        result=record.result.decode("utf-8", "replace") if record.state is State.SUCCESS else "",
        results=list(results),
        unusable=unusable,
        unmet=unmet,
    )


def unreadable_item(pid: int, why: str) -> Procedure:
    """Describes a record of which only the pid is known."""
    return Procedure(pid=pid, kind="unknown", state="unknown", unusable=why)


def ended_item(pid: int, ending: Ending) -> Procedure:
    """Describes a procedure that has ended by a request, and of which nothing is kept."""
    return Procedure(
        pid=pid,
        kind="unknown",
        state="ended",
        ended=True,
        aborted=ending.act == "abort",
        bypassed=ending.act == "bypass",
        end_requested=ending.act,
        end_principal=ending.principal,
        end_reason=ending.reason,
    )


def removed_item(found: Procedure, ending: Ending, family: Sequence[int]) -> Procedure:
    """Describes a record that was removed, as it was before. ``family``: the pids that went together."""
    others = [pid for pid in family if pid != found.pid]
    detail = f"removed with {named(f'pid {pid}' for pid in others)} of its family" if others else "removed"
    return found.model_copy(
        update={
            "state": "removed",
            "ended": True,
            "detail": f"{found.detail}; {detail}" if found.detail else detail,
            "end_requested": ending.act,
            "end_principal": ending.principal,
            "end_reason": ending.reason,
        }
    )


def time_of(ms: int) -> datetime | None:
    """Returns a stored time; None for 0."""
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None
