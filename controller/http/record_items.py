"""Converts the record of a procedure of any domain into an item of the HTTP surface."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from controller.http.procedure_models import Procedure, ServerResult
from controller.process.wording import named
from state_machines.procedures.kernel import is_stuck
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State


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
