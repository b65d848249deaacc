"""Handles calls about reassignments (KIP-455): begins, overrides, cancels and lists them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from controller.kafka.path.controller import Controller
from controller.kafka.reassignments.reassignment import (
    Refused,
    Targets,
    go_on,
    judge_targets,
    log_request,
    write_targets,
)
from controller.kafka.reassignments.reassignment_znode import withdraw
from controller.kafka.requests.calls import PendingListing, PendingReassignment, call_result, refusals
from controller.kafka.requests.values import AlterReassignmentsReply, ListReassignmentsReply
from controller.procedures.recorder import CallKind
from controller.process.wording import counted
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.fencing.rider import Rider
from state_machines.decisions.reassignment import (
    NotReassigned,
    ReassignError,
    current_assignment,
    in_progress,
    is_complete,
)
from state_machines.model.types import TopicPartition

RidingWith = Callable[[Refused], Awaitable[Rider | None]]


async def alter_reassignments(c: Controller, pending: PendingReassignment) -> None:
    """Handles a call: the response follows once it and its states are durable; repeating it is harmless."""
    call = pending.call
    record = c.recorder.call(CallKind.ALTER_REASSIGNMENTS, call.caller, again=call.again)
    wrote = False

    async def riding(refused: Refused) -> Rider | None:
        nonlocal wrote
        wrote = True
        return await record.rider(_result(call.targets, refused) or "")

    try:
        refused = await begin(c, call.targets, f"requested by {call.principal}", riding)
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


def _result(targets: Targets, refused: Refused) -> str | None:
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


async def begin(c: Controller, targets: Targets, why: str, riding: RidingWith | None = None) -> Refused:
    """Begins, overrides and cancels reassignments; returns the refused ones.

    ``riding``: returns what goes along with a write, where these are refused.
    """
    wanted, refused = await judge_targets(c, targets, live_only=True)
    if wanted:
        await withdraw(c, {c.cluster.name(i) for i in wanted})
        refused |= await write_targets(c, wanted, None if riding is None else partial(riding, refused))
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
