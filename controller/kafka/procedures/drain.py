"""The drain: marks brokers as cordoned and drained, and moves their leaders to others in waves.

Each wave is durable before the next begins, and the next waits while brokers are far behind. A wave that a crash
repeats finds its leaders moved. Replicas move by a reassign plan, a child with its caps and throttle. Undone, the
drain removes the marks that it set: replicas come back by the plan's undoing, leaders by the balance. Once the plan has
ended, nothing is undone any more: ``undrain`` removes the marks, and another plan moves replicas back.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.kafka.brokers.marks import change_marks
from controller.kafka.journal.report import Reason
from controller.kafka.procedures import reassign
from controller.kafka.procedures.environment import LOOK_AGAIN_MS, KafkaEnv, brokers_are_behind
from controller.procedures.kinds import Kind, Step
from metadata_store.nodes.cordon_node import DrainMark, drained, undrained
from state_machines.decisions.drain import (
    WAVE_MAX,
    Drain,
    advanced,
    followed,
    hosted,
    leading,
    led,
    move_leaders,
    replicas_sentence,
    sentence,
    staying,
    wave,
)
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Next, Outcome, Retry, Wait
from state_machines.procedures.record import Record, child
from state_machines.procedures.transition import Members

log = logging.getLogger("regent.procedures")

NAME: Final = "drain"

_decoder = msgspec.json.Decoder(Drain)
_encoder = msgspec.json.Encoder()


def drain_of(record: Record) -> Drain:
    """Decodes the message of a drain."""
    return _decoder.decode(record.data)


def encode_drain(drain: Drain) -> bytes:
    """Encodes the message of a drain."""
    return _encoder.encode(drain)


def demand(record: Record) -> Demand:
    """Demands each of the brokers: a broker is drained by one procedure at a time."""
    first, *others = (
        Demand(Resource(Scope.SERVER, f"broker {broker}"), exclusive=True)
        for broker in sorted(set(drain_of(record).brokers))
    )
    return first._replace(also=tuple(others))


def members(record: Record) -> Members:
    """Returns the brokers."""
    return Members(brokers=drain_of(record).brokers)


async def mark(env: KafkaEnv, record: Record) -> Outcome:
    """Marks the brokers; marks of earlier drains stay as they are."""
    drain, caller = drain_of(record), record.caller
    new = DrainMark(caller.reason, caller.principal, record.submitted_ms, record.pid)
    why_not = await change_marks(env.controller, partial(drained, brokers=drain.brokers, mark=new))
    if why_not is not None:
        return Retry(why_not)
    return Next(1, encode_drain(replace(drain, led=len(led(env.controller.cluster, drain.brokers)))))


async def unmark(env: KafkaEnv, record: Record) -> Outcome:
    """Removes the marks that this drain set."""
    env.leading.pop(record.pid, None)
    drain = drain_of(record)
    why_not = await change_marks(env.controller, partial(undrained, brokers=drain.brokers, pid=record.pid))
    return Done() if why_not is None else Retry(why_not)


async def move(env: KafkaEnv, record: Record) -> Outcome:
    """Moves the leaders of one wave, or ends once each partition has had its turn."""
    c, drain = env.controller, drain_of(record)
    if c.pauses.in_force is not None or brokers_are_behind(env, WAVE_MAX):
        return Wait(env.now_ms() + LOOK_AGAIN_MS, record.data, durable=False)
    rows = wave(c.cluster, drain)
    if not rows:
        env.leading.pop(record.pid, None)
        return _leaders_moved(env, drain)
    why = f"drain of brokers {list(drain.brokers)}, pid={record.pid}"
    known = env.leading.get(record.pid) or leading(c.cluster)
    await c.carry_out(partial(move_leaders, rows=rows, known=known), Reason.DRAIN, why)
    env.leading[record.pid] = followed(known, c.cluster, rows)
    after = advanced(c.cluster, drain, rows)
    log.info("%s: a wave of %d leaders has moved or stays, up to %s", why, len(rows), after.after)
    return Wait(env.now_ms(), encode_drain(after))


def _leaders_moved(env: KafkaEnv, drain: Drain) -> Outcome:
    """Ends the drain, or lets its plan move the replicas."""
    cluster, plan = env.controller.cluster, drain.plan
    if plan is None:
        return Done(sentence(drain, staying(cluster, drain.brokers)).encode())
    data = encode_drain(replace(drain, hosted=len(hosted(cluster, drain.brokers))))
    if not plan.moves:
        return Next(2, data)
    return Children((child(reassign.NAME, reassign.encode_plan(plan)),), 2, data)


async def end(env: KafkaEnv, record: Record) -> Outcome:
    """Ends a drain whose plan has ended; the pid of that child, whose record is gone, is stored before."""
    drain, cluster = drain_of(record), env.controller.cluster
    if record.born and not drain.moved_by:
        return Wait(env.now_ms(), encode_drain(replace(drain, moved_by=record.born[0])))
    leaders = sentence(drain, staying(cluster, drain.brokers))
    return Done(f"{leaders}; {replicas_sentence(drain, hosted(cluster, drain.brokers))}".encode())


DRAIN: Final[Kind[KafkaEnv]] = Kind(
    NAME,
    (Step("mark brokers", mark, unmark), Step("move leaders", move), Step("move replicas", end)),
    demand,
    no_return=2,
    holds_locks=True,
    members=members,
)
