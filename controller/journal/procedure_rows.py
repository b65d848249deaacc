"""Makes rows and log lines of durable changes of procedures, both on the journal's thread."""

from __future__ import annotations

import logging
from typing import Final

from state_machines.journal.events import Kind
from state_machines.procedures.progress import Progress, cut, result_of, sentence
from state_machines.procedures.states import State

log = logging.getLogger("regent.procedures")

WARNINGS: Final = frozenset({State.FAILED, State.ROLLEDBACK})


def procedure_fields(progress: Progress) -> dict[str, object]:
    """Returns the fields of the row of a change."""
    before, after = progress.before, progress.after
    caller = after.caller
    return {
        "kind": Kind.PROC_STATE,
        "from_state": before.state.name if before is not None else None,
        "to_state": after.state.name,
        "proc": after.pid,
        "parent_proc": after.parent or None,
        "root_proc": after.root,
        "operation": after.kind,
        "step": progress.step or None,
        "committed": True if progress.committed else None,
        "locks": progress.locks or None,
        "principal": caller.principal or None,
        "client": caller.client or None,
        "why": cut(caller.reason) or None,
        "err": cut(after.error) or None,
        "result": result_of(after) or None,
    }


def log_line(progress: Progress, epoch: int, at_us: int) -> None:
    """Logs the line of a change, with the time at which it was durable."""
    level = logging.WARNING if progress.after.state in WARNINGS else logging.INFO
    if not log.isEnabledFor(level):
        return
    worker = {"worker": f"kafka-{epoch}"}
    line = log.makeRecord(log.name, level, __file__, 0, sentence(progress), (), None, extra=worker)
    line.created = at_us / 1e6
    log.handle(line)
