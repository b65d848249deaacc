"""Words what a procedure does at the moment: it runs, waits in a queue or for brokers, is paused, or is undone."""

from __future__ import annotations

from controller.kafka.kinds import reassign
from controller.kafka.term.term import Term
from controller.operator.dead_brokers import awaited_by
from controller.process.wording import named
from state_machines.procedures.record import Record
from state_machines.procedures.states import State


def phase_of(record: Record, term: Term | None) -> str:
    """Returns the phase of a procedure that has not ended; empty for one that has.

    The stored state of a plan that copies is ``waiting_timeout``, for it waits for brokers most of the time.
    """
    if record.state.is_final:
        return ""
    if record.state is State.FAILED or record.aborted:
        return "undoing"
    if reassign.is_paused(record):
        return "paused"
    if record.kind == reassign.NAME:
        if not record.locked:
            return "queued"
        if term is not None and (dead := awaited_by(record, term.cluster)):
            return f"waiting for broker{'s' if len(dead) > 1 else ''} {named(dead)}"
    return "running"
