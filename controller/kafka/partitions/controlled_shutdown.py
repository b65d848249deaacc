"""Handles ControlledShutdown (S4-72..S4-74), of a broker or in its place: responds once the new leaders are durable."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from brokers.wire.errors import Error
from brokers.wire.replies import ControlledShutdownReply
from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller, carry_out_portions
from controller.kafka.requests.calls import PendingShutdown, PendingUndo
from state_machines.decisions.alter_partition import IsrRequest
from state_machines.decisions.broker_change import (
    keep_out,
    move_leaders,
    proposed,
    remaining,
    shutdown_undone,
    stop_followers,
)
from state_machines.model.facts import ShutdownEnded, ShutdownRequested, ShutdownUndone
from state_machines.portions import portions

TURN_ROWS: Final = 15_000
"""Rows of a decision, in one turn of the loop: some 50 ms."""
TOLD_S_MAX = 2.0
"""Longest wait of the response for the new leaders; the broker itself waits for 30 s."""

log = logging.getLogger("regent.controller")


async def controlled_shutdown_call(c: Controller, pending: PendingShutdown) -> None:
    """Moves leaders away. Refuses earlier incarnations (77) and unknown brokers (8); a repeated call is harmless."""
    call = pending.call
    broker = c.cluster.brokers.get(call.broker_id)
    if broker is None:
        pending.answer(ControlledShutdownReply(Error.BROKER_NOT_AVAILABLE))
        return
    if call.broker_epoch < broker.epoch:
        pending.answer(ControlledShutdownReply(Error.STALE_BROKER_EPOCH))
        return
    try:
        may_be_undone = _note_caller(c, pending)
        c.enter(ShutdownRequested(broker))
        hosted = c.cluster.hosted(call.broker_id)
        led = [i for i in hosted if c.cluster.rows[i].leader == call.broker_id]
        moves = partial(move_leaders, broker=call.broker_id)
        reason = Reason.CONTROLLED_SHUTDOWN
        await carry_out_portions(c, moves, led, reason, _why(pending), rows_max=TURN_ROWS)
        stops = partial(stop_followers, broker=call.broker_id, moved=frozenset(led), may_be_undone=may_be_undone)
        why = f"broker {call.broker_id} follows no more"
        await carry_out_portions(c, stops, hosted, reason, why, rows_max=TURN_ROWS)
        moved = [i for i in led if c.cluster.rows[i].leader != call.broker_id]
        left = [c.cluster.name(i) for i in remaining(c.cluster, call.broker_id)]
        if left:
            log.warning(
                "broker %d still leads %d partitions, the first is %s: no other replica is in sync; %s",
                call.broker_id,
                len(left),
                left[0],
                "repeat 'regent shutdown' later" if pending.by_operator else "it will try again",
            )
        else:
            log.info("broker %d is free to stop: every partition that others can lead has moved away", call.broker_id)
            c.enter(ShutdownEnded(broker))
    except BaseException:
        pending.refuse()
        raise
    told = _answer_when_told(c, pending, moved or hosted, ControlledShutdownReply(Error.NONE, left))
    c.spawn(told, pending.refuse)


async def keep_out_of_isrs(c: Controller, refused: Iterable[IsrRequest]) -> None:
    """Stops followers on brokers in their shutdown once a leader was refused to have them in the ISR."""
    for broker, fetching in proposed(c.cluster, refused).items():
        why = f"broker {broker} shuts down and stays out of ISRs"
        for some in portions(list(fetching.items()), TURN_ROWS):
            decide = partial(keep_out, broker=broker, fetching=dict(some))
            await c.carry_out(decide, Reason.CONTROLLED_SHUTDOWN, why)


async def undo_shutdown_call(c: Controller, pending: PendingUndo) -> None:
    """Lets a broker lead and follow again that an operator had shut down, unless it has requested its shutdown itself.

    A repeated call does again what an interrupted one left.
    """
    broker = c.cluster.brokers.get(pending.call)
    if broker is None or c.shut_by_operator.get(broker.id) != broker.epoch:
        pending.answer(False)
        return
    try:
        c.enter(ShutdownUndone(broker))
        undone = partial(shutdown_undone, broker=broker.id, unclean=c.unclean)
        why = f"the shutdown of broker {broker.id} is undone"
        rows = sorted(c.cluster.leaderless.union(c.cluster.hosted(broker.id)))
        for some in portions(rows, TURN_ROWS):
            await c.carry_out(undone, Reason.BROKER_RETURN, why, only=some)
    except BaseException:
        pending.refuse()
        raise
    del c.shut_by_operator[broker.id]
    log.info("broker %d leads and follows again: an operator undid its shutdown", broker.id)
    pending.answer(True)


def _note_caller(c: Controller, pending: PendingShutdown) -> bool:
    """Notes shutdowns by command: only these can be undone, because the other brokers are about to stop.

    Returns whether this one can be. It cannot where the broker has requested its shutdown before.
    """
    broker = c.cluster.brokers[pending.call.broker_id]
    if not pending.by_operator:
        c.shut_by_operator.pop(broker.id, None)
        return False
    log.info("an operator shuts broker %d down in its place", broker.id)
    if broker.id in c.cluster.shutting_down and c.shut_by_operator.get(broker.id) != broker.epoch:
        return False
    c.shut_by_operator[broker.id] = broker.epoch
    return True


def _why(pending: PendingShutdown) -> str:
    broker = pending.call.broker_id
    return (
        f"an operator shuts broker {broker} down in its place"
        if pending.by_operator
        else f"broker {broker} requests its shutdown"
    )


async def _answer_when_told(
    c: Controller,
    pending: PendingShutdown,
    rows: Sequence[int],
    reply: ControlledShutdownReply,
) -> None:
    """Responds once the new leaders serve: the broker stops as soon as it has the response.

    The response does not wait for leaders that only lose a follower. Where nothing moved, the broker may have sent an
    earlier call: partitions that it moved are among those hosted, and may still be under way.
    """
    await c.channels.leaders_acknowledged(rows, TOLD_S_MAX)
    pending.answer(reply)
