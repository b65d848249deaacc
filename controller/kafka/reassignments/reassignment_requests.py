"""Handles requests for reassignments, by call (KIP-455) and by ``/admin/reassign_partitions``, the znode of old tools.

A call begins, overrides, cancels or lists them. The writer of the znode may take a partition for done, or refused, once
the znode no longer names it (S4-61).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Mapping
from functools import partial
from typing import Final

from controller.kafka.path.controller import ConflictRounds, Controller
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.reassignment import finish, go_on
from controller.kafka.reassignments.topic_rewrites import GONE, NextCompanion, rewrite_topics
from controller.kafka.requests.calls import PendingListing, PendingReassignment, call_result, refusals
from controller.kafka.requests.values import AlterReassignmentsReply, ListReassignmentsReply
from controller.procedures.recorder import CallKind
from controller.process.wording import counted
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.fencing.companion import Companion
from metadata_store.nodes.reassignment_node import Request, read_reassignments, write_reassignments
from state_machines.decisions.reassignment import (
    LAST_IN_SYNC,
    UNKNOWN,
    NotReassigned,
    ReassignError,
    ReassignmentRequest,
    current_assignment,
    in_progress,
    is_complete,
    judge,
    rewrites,
    unfinished,
)
from state_machines.model.types import Assignment, TopicPartition

log = logging.getLogger("regent.controller")

JUDGED_MAX: Final = 4_000
"""Targets that are judged in one turn of the loop: some 40 ms."""
ROUNDS_MAX: Final = 10
"""Rewrites of the znode against other writers."""
CONTENDED: Final = "/admin/reassign_partitions could not be rewritten: check its ACL, and look for another writer"

Targets = Mapping[TopicPartition, tuple[int, ...] | None]
Refusals = dict[TopicPartition, NotReassigned]
NextCompanionWith = Callable[[Refusals], Awaitable[Companion | None]]


# -- any request


async def judge_targets(c: Controller, targets: Targets, *, live_only: bool) -> tuple[dict[int, Assignment], Refusals]:
    """Returns assignments by row, and refusals; it reads states again before it refuses for an ISR."""
    judged = await _judged(c, targets, live_only=live_only)
    behind = [c.cluster.find(*name) for name, found in judged[1].items() if found.why == LAST_IN_SYNC]
    if not behind or c.ibp.alter_partition:
        return judged
    await c.reread_isrs([row for row in behind if row is not None])
    return await _judged(c, targets, live_only=live_only)


async def _judged(c: Controller, targets: Targets, *, live_only: bool) -> tuple[dict[int, Assignment], Refusals]:
    """Judges targets; a partition that only waits for its final rewrite is at its target already."""
    wanted: dict[int, Assignment] = {}
    refused: Refusals = {}
    for at, (name, target) in enumerate(targets.items(), 1):
        if at % JUDGED_MAX == 0:
            await asyncio.sleep(0)
        row = c.cluster.find(*name)
        found = judge(c.cluster, ReassignmentRequest(row, target), c.daemons, live_only=live_only)
        if isinstance(found, NotReassigned):
            refused[name] = found
        elif row is not None and not (is_complete(c.cluster, row) and found.kept == c.cluster.rows[row].assignment):
            wanted[row] = found
    return wanted, refused


async def write_targets(
    c: Controller, wanted: Mapping[int, Assignment], next_companion: NextCompanion | None = None
) -> Refusals:
    """Writes the topic znodes: step 1, U (S4-51); returns the partitions of those that cannot be written."""
    failed = await rewrite_topics(c, lambda: rewrites(c.cluster, wanted), next_companion=next_companion)
    c.reassignment_queue.retargeted(wanted)
    names = [c.cluster.name(i) for i in wanted] if failed else []
    return {name: _not_written(failed[name.topic]) for name in names if name.topic in failed}


def _not_written(why: str) -> NotReassigned:
    if why == GONE:
        return NotReassigned(ReassignError.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
    return NotReassigned(ReassignError.UNKNOWN_SERVER_ERROR, why)


def log_request(what: str, refused: Refusals) -> None:
    """Logs one sentence for each request."""
    reasons = ", ".join(f"{n} x {why}" for why, n in Counter(r.why for r in refused.values()).most_common(4))
    log.info("reassignment: %s%s", what, f"; refused: {reasons}" if reasons else "")


# -- calls


async def alter_reassignments(c: Controller, pending: PendingReassignment) -> None:
    """Handles a call: the response follows once it and its states are durable; repeating it is harmless."""
    call = pending.call
    record = c.recorder.call(CallKind.ALTER_REASSIGNMENTS, call.caller, again=call.again)
    wrote = False

    async def next_companion(refused: Refusals) -> Companion | None:
        nonlocal wrote
        wrote = True
        return await record.companion(_result(call.targets, refused) or "")

    try:
        refused = await begin(c, call.targets, f"requested by {call.principal}", next_companion)
        if call.again:
            refused = {name: why for name, why in refused.items() if not _done(c, name, call.targets[name], why)}
        await record.close(_result(call.targets, refused), changed=wrote)
        pending.answer(AlterReassignmentsReply(refused))
    except (NotConnected, OutcomeUnknown):
        pending.refuse()
        await record.close()
        raise
    finally:
        pending.refuse()


def _result(targets: Targets, refused: Refusals) -> str | None:
    """Returns a sentence on the begun and cancelled reassignments; None without any."""
    done = [name for name in targets if name not in refused]
    cancelled = [name for name in done if targets[name] is None]
    begun = [f"{name} to {list(target)}" for name in done if (target := targets[name]) is not None]
    parts = [
        call_result(what, names, "partition") for what, names in (("cancelled", cancelled), ("begun", begun)) if names
    ]
    errors = refusals(why.error for why in refused.values())
    return "; ".join([*parts, *errors]) if parts else None


def _done(c: Controller, name: TopicPartition, target: tuple[int, ...] | None, why: NotReassigned) -> bool:
    """Checks whether an earlier attempt of the call may have applied a target that is refused now."""
    if target is None:
        return why.error is ReassignError.NO_REASSIGNMENT_IN_PROGRESS
    row = c.cluster.find(*name)
    written = None if row is None else current_assignment(c.cluster, row)
    return written is not None and written.target == target


async def begin(c: Controller, targets: Targets, why: str, next_companion: NextCompanionWith | None = None) -> Refusals:
    """Begins, overrides and cancels reassignments; returns the refused ones.

    ``next_companion``: returns what goes along with a write, where these are refused.
    """
    wanted, refused = await judge_targets(c, targets, live_only=True)
    if wanted:
        await withdraw(c, {c.cluster.name(i) for i in wanted})
        refused |= await write_targets(c, wanted, None if next_companion is None else partial(next_companion, refused))
        began = [i for i in wanted if c.cluster.name(i) not in refused]
        log_request(f"{_counted(targets)}, {why}", refused)
        begun = {name: targets[name] for name in map(c.cluster.name, began)}
        await go_on(c, began, f"reassignment {_counted(begun)}, {why}", again=True)
    return refused


async def list_reassignments(c: Controller, pending: PendingListing) -> None:
    """Handles a call: lists reassignments of the topic znodes, without those that only wait for the final rewrite."""
    try:
        call = pending.call
        wanted = None if call.partitions is None else frozenset(call.partitions)
        found = {c.cluster.name(i): a for i, a in in_progress(c.cluster).items() if not is_complete(c.cluster, i)}
        under_way = {name: a for name, a in found.items() if wanted is None or name in wanted}
        pending.answer(ListReassignmentsReply(under_way))
    finally:
        pending.refuse()


def _counted(targets: Targets) -> str:
    cancels = sum(target is None for target in targets.values())
    parts = (("begun", len(targets) - cancels), ("cancelled", cancels))
    return " and ".join(f"{what} for {counted(count, 'partition')}" for what, count in parts if count)


# -- the znode


async def reassign_partitions(c: Controller) -> None:
    """Begins the new targets of ``/admin/reassign_partitions``; refused ones are removed from it."""
    if rows := await _requested(c):
        await go_on(c, rows, f"reassignment of {counted(len(rows), 'partition')} requested by znode")
    await shrink_request(c)


async def _requested(c: Controller) -> list[int]:
    """Reads the znode, and writes its targets to the topic znodes; returns the rows that have them."""
    request = await read_request(c)
    if request is None:
        c.reassignment_queue.request = None
        return []
    if request == c.reassignment_queue.request:
        return []
    if request.unusable:
        log.error("%s: %s and are removed; the others are carried out", paths.REASSIGN_PARTITIONS, request.unusable)
    wanted, refused = await judge_targets(c, request.targets, live_only=False)
    if refused or rewrites(c.cluster, wanted):
        refused |= await write_targets(c, wanted)
        log_request(f"{counted(len(request.targets), 'partition')} in {paths.REASSIGN_PARTITIONS}", refused)
    c.reassignment_queue.request = request
    return [i for i in wanted if c.cluster.name(i) not in refused]


async def resume_reassignments(c: Controller) -> None:
    """Resumes reassignments when a term begins (S4-69): those of the znode first, then all of the topic znodes."""
    await _requested(c)
    rows = sorted(c.cluster.reassigning)
    await go_on(c, rows, f"{len(rows)} reassignments of an earlier term go on", again=True)
    await shrink_request(c)


async def finish_reassignments(c: Controller) -> None:
    """Finishes rows whose replicas have stopped; then the znode of requests drops them."""
    await finish(c)
    await shrink_request(c)


async def read_request(c: Controller) -> Request | None:
    """Reads the znode, and watches it; a malformed one is reported and requests nothing."""
    path, since = paths.REASSIGN_PARTITIONS, c.zk.last_zxid
    found = await read_reassignments(c.zk)
    if found is None:
        await c.zk.watch(exists=[path], since_zxid=since)
    else:
        await c.zk.watch(data=[path], since_zxid=since)
    c.gate.check()
    if isinstance(found, MalformedNode):
        c.malformed(found)
        return None
    return found


async def withdraw(c: Controller, names: Container[TopicPartition]) -> None:
    """Removes targets that a later request by API replaces, before anything of that request is written.

    Otherwise the successor of a controller that dies in between would begin the znode's targets again. If another
    client writes the znode at the same time, that is the later request, and its own event will judge it.
    """
    request = c.reassignment_queue.request
    for _ in ConflictRounds(ROUNDS_MAX):
        if request is None or not any(name in names for name in request.targets):
            return
        left = {name: target for name, target in request.targets.items() if name not in names}
        if await _write(c, request, left):
            return
        request = await read_request(c)
    _contended(c)


async def shrink_request(c: Controller) -> None:
    """Removes done, refused, superseded and unusable targets; deletes the znode with the last of them."""
    request = c.reassignment_queue.request
    if request is None:
        return
    left = unfinished(c.cluster, request.targets)
    if left and len(left) == len(request.targets) and not request.unusable:
        return
    if await _write(c, request, left):
        return
    found = await read_request(c)
    if found is not None and found.version == request.version:
        _contended(c)
    else:
        c.queue.signal(EventKind.REASSIGN_PARTITIONS)


async def _write(c: Controller, request: Request, left: dict[TopicPartition, tuple[int, ...]]) -> bool:
    """Writes the remaining targets; a znode that another client wrote meanwhile has yet to be judged."""
    written = await write_reassignments(c.zk, request._replace(targets=left), c.fence)
    c.gate.check()
    judged = written and request is c.reassignment_queue.request
    after = Request(left, request.unknown, request.version + 1)
    c.reassignment_queue.request = after if judged and left else None
    return written


def _contended(c: Controller) -> None:
    c.counters.failures[CONTENDED] += 1
    log.error("%s", CONTENDED)
