"""Looks at the locks of procedures (LockExclusivity), and of work on regions (WorkLocksMove)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.regions.procedures import assign, close, region_work
from controller.regions.procedures.messages import REGION_WORK
from controller.regions.term import RegionsTerm
from state_machines.regions.entities import Region, Server
from state_machines.regions.states import ServerState

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


def work_faults(term: RegionsTerm, region: Region, owner: Server) -> Iterator[str]:
    """Yields what is wrong with a region that leaves its owner: work that is awaited there has its lock."""
    if owner.state is not ServerState.ONLINE:
        return
    for record in term.engine.live():
        if record.kind != region_work.NAME or record.bypassed or record.pid == region.pid:
            continue
        is_sent = term.env.dispatcher.expects(record.pid) == owner.key
        if is_sent and REGION_WORK.decode(record.data).region == region.id:
            yield f"{region} leaves {owner} by procedure {region.pid}, work {record.pid} goes on there"
