"""Looks at the locks of procedures (LockExclusivity)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.regions.procedures import assign, close
from controller.regions.term import RegionsTerm

BORN_LOCKED: Final = frozenset({assign.NAME, close.NAME})
"""Kinds that may get their locks with their first step, although their records have them."""


def lock_faults(term: RegionsTerm) -> Iterator[str]:
    """Yields what is wrong: locks that exclude each other, and records without the lock that they are to have."""
    scheduler, records = term.engine._running.scheduler, term.engine.records
    for queue in scheduler.queues:
        for pid in queue.shared:
            record = records.get(pid)
            if queue.owner and record is not None and queue.owner not in (pid, *record.ancestors):
                yield f"{queue.resource} is locked by {queue.owner}, and shared by {pid}"
    for record in records.values():
        if record.kind in BORN_LOCKED or not record.locked or record.state.is_final:
            continue
        if not scheduler.holds(record.pid):
            yield f"pid {record.pid} {record.kind} is to have its lock, and has none"
