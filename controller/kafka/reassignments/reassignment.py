"""Carries reassignments to their end (S4-50..S4-64, S4-69, S4-84; KIP-455).

The topic znode, written before and after everything else, is the only truth of a reassignment. At whichever await a
controller dies, the next one goes on from there. Each step is over all partitions at once. Between the states and the
final rewrite brokers acknowledge that the removed replicas have stopped. Until then the topic znode names them, so that
a controller that dies in between leaves no unknown log behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Final

from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.topic_rewrites import finish_remembering, rewrite_topics
from controller.process.wording import counted
from metadata_store import paths
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.fencing.fenced import WRITES_MAX, confirm
from state_machines.decisions.reassignment import (
    drop_again,
    dropped_on,
    due,
    final_rewrites,
    is_settled,
    leaves,
    reassign,
    waiting_for,
)

log = logging.getLogger("regent.controller")

STOPPED_S_MAX: Final = 30.0
"""Longest wait of a final rewrite until brokers stop replicas; those that did not are remembered by it."""
TURN_ROWS: Final = 5_000
"""Rows in one decision, which is one turn of the loop: some 40 ms."""
AGAIN_S: Final = 5.0
"""Pause before a failed write is tried again."""


async def go_on(c: Controller, rows: Collection[int], why: str, *, again: bool = False) -> None:
    """Writes states of rows: those whose target is in sync are completed, others begin (``again``: once more)."""
    if not rows:
        return
    await _watch_states(c, rows)
    rows, failed = list(rows), False
    with c.channels.more_coming(urgent=False) if len(rows) > WRITES_MAX else nullcontext():
        for at in range(0, len(rows), TURN_ROWS):
            some = rows[at : at + TURN_ROWS]
            decide = partial(reassign, rows=some, again=again)
            report = await c.carry_out(decide, Reason.REASSIGNMENT, why)
            failed = failed or bool(report.failed)
    settled = {i for i in rows if is_settled(c.cluster, i)}
    if settled:
        stops = sum(len(leaves(c.cluster, i)) for i in settled)
        settled_now, stopping = counted(len(settled), "partition"), counted(stops, "replica")
        log.info("reassignment: %s with the final replicas; %s to stop", settled_now, stopping)
    c.reassignment_queue.complete |= settled
    c.reassignment_queue.stopped -= settled
    _finish_later(c)
    _resume_deletions(c, rows)
    if failed:
        c.reassignment_queue.again.update(rows)
        _later(c, EventKind.ADVANCE_REASSIGNMENTS, _look_again)


def _resume_deletions(c: Controller, rows: Iterable[int]) -> None:
    """Resumes deletions that waited for reassignments which ended without a further write of the topic znode."""
    ended = {c.cluster.rows[i].topic for i in rows if not c.cluster.is_moving(i)} & c.cluster.deletions
    if ended:
        c.deletion_queue.resume(ended)
        c.queue.signal(EventKind.DELETION_PROGRESS)


def _look_again(c: Controller) -> None:
    c.reassignment_queue.due |= c.reassignment_queue.again
    c.reassignment_queue.again.clear()


def _later(c: Controller, event: EventKind, prepare: Callable[[Controller], None] = lambda _: None) -> None:
    """Signals an event after a while, once however often it is requested meanwhile."""

    async def signal() -> None:
        await asyncio.sleep(AGAIN_S)
        c.reassignment_queue.timers.discard(event)
        prepare(c)
        c.queue.signal(event)

    if event not in c.reassignment_queue.timers:
        c.reassignment_queue.timers.add(event)
        c.spawn(signal())


def isrs_changed(c: Controller, rows: Iterable[int]) -> None:
    """Has rows with changed ISRs decided on in an event of its own (S4-54); it wakes plans, too."""
    moving = [row for row in rows if row in c.cluster.reassigning]
    if moving:
        c.reassignment_queue.due.update(due(c.cluster, moving))
        c.queue.signal(EventKind.ADVANCE_REASSIGNMENTS)


async def advance_reassignments(c: Controller) -> None:
    """Decides on rows that became due since the last time."""
    rows = due(c.cluster, sorted(c.reassignment_queue.due))
    c.reassignment_queue.due.clear()
    await go_on(c, rows, f"{len(rows)} reassignments are due")


async def brokers_returned(c: Controller, brokers: Collection[int]) -> None:
    """Resumes reassignments to returned brokers (S4-50): requests to an earlier incarnation are sent again."""
    rows = waiting_for(c.cluster, brokers)
    await go_on(c, rows, f"brokers {sorted(brokers)} are back: {len(rows)} reassignments go on", again=True)
    await _drop_again(c, brokers)
    c.strays.returned(brokers)
    if c.reassignment_queue.name_daemons:
        c.queue.signal(EventKind.REPLACE_DAEMONS)


async def _drop_again(c: Controller, brokers: Collection[int]) -> None:
    """Has returned brokers stop removed replicas again before the final rewrite: they may have the logs.

    Logs are deleted and nothing is written, so the claim is confirmed first.
    """
    rows = dropped_on(c.cluster, brokers)
    if not rows:
        return
    r = c.reassignment_queue
    r.to_drop.update(rows)
    r.stopped -= r.to_drop
    r.complete -= r.to_drop
    try:
        await confirm(c.zk, c.fence)
    except (NotConnected, OutcomeUnknown):
        r.returned.update(brokers)
        c.queue.signal(EventKind.DROPPED_REPLICAS)
        return
    c.gate.check()
    why = f"brokers {sorted(brokers)} are back: {len(rows)} replicas that were moved away go there"
    await c.carry_out(partial(drop_again, rows=rows, brokers=brokers), Reason.REASSIGNMENT, why)
    r.to_drop.difference_update(rows)
    r.complete.update(rows)
    _finish_later(c)


async def dropped_replicas(c: Controller) -> None:
    """Repeats :func:`_drop_again` where the connection was lost when a broker with removed replicas returned."""
    await c.connected()
    r = c.reassignment_queue
    brokers = r.returned & c.cluster.brokers.keys()
    r.returned.clear()
    r.complete |= r.to_drop  # a broker that went away again is not waited for
    r.to_drop.clear()
    await _drop_again(c, brokers)
    _finish_later(c)


def _finish_later(c: Controller) -> None:
    """Waits until removed replicas stop, one wait at a time; rows that complete meanwhile are written afterwards."""
    r = c.reassignment_queue
    if r.complete and not r.waiting:
        r.waiting = True
        rows, r.complete = r.complete, set()
        c.spawn(_finish_when_stopped(c, rows))


async def _finish_when_stopped(c: Controller, rows: set[int]) -> None:
    await c.channels.stopped(rows, STOPPED_S_MAX)
    c.reassignment_queue.stopped |= rows - c.reassignment_queue.complete - c.reassignment_queue.to_drop
    c.reassignment_queue.waiting = False
    c.queue.signal(EventKind.FINISH_REASSIGNMENTS)


async def finish(c: Controller) -> None:
    """Finishes rows whose replicas have stopped: topic znodes name the target alone (step 4, S4-60)."""
    r = c.reassignment_queue
    r.stopped = {i for i in r.stopped if is_settled(c.cluster, i)}
    stopped = sorted(r.stopped)  # rows that come meanwhile wait for the next event: nothing is remembered for them yet
    contended = await finish_remembering(c, stopped)
    rows = [i for i in stopped if i not in contended]
    if await rewrite_topics(c, lambda: final_rewrites(c.cluster, rows)) or contended:
        _later(c, EventKind.FINISH_REASSIGNMENTS)
    else:
        r.stopped.difference_update(rows)
    r.left(c.cluster)
    _finish_later(c)


# -- ISRs that leaders write themselves


async def reassigned_state(c: Controller) -> None:
    """Reads changed state znodes again, and decides on the rows that are due."""
    touched = sorted(c.reassignment_queue.touched)
    c.reassignment_queue.touched.clear()
    await _read_states(c, [i for path in touched if (i := _row_of_state(c, path)) is not None])


def _row_of_state(c: Controller, path: str) -> int | None:
    name = paths.partition_of_state(path)
    return None if name is None else c.cluster.find(*name)


async def reassigned_states(c: Controller) -> None:
    """Reads the state znodes of all reassigned partitions again: their watches were gone."""
    await _read_states(c, sorted(c.cluster.reassigning))


async def _read_states(c: Controller, rows: Collection[int]) -> None:
    await _watch_states(c, rows)
    isrs_changed(c, rows)


async def _watch_states(c: Controller, rows: Iterable[int]) -> None:
    """Watches state znodes where ISR notifications are late, below IBP 2.7-IV2 (``PartitionReassignmentIsrChange``).

    It watches, then reads. After a lost connection all are watched again once it is back.
    """
    moving = [i for i in rows if i in c.cluster.reassigning and c.cluster.rows[i].has_leadership]
    if c.ibp.alter_partition or not moving:
        return
    try:
        watched = paths.states(c.cluster.name(i) for i in moving)
        await c.zk.watch(data=watched, since_zxid=c.zk.last_zxid)
    except NotConnected:
        c.gate.check()
    await c.reread(moving)
