"""The reassign plan: moves replicas in waves, below caps, and takes all of it back where it is aborted.

A wave's topic znodes and the plan's record are one multi: after any crash the record says which partitions the plan
began. Handlers of reassignments do the rest of each move, as for a request of a client.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import msgspec

from controller.engine.event_kinds import EventKind
from controller.handlers.reassignment import go_on
from controller.kinds.environment import KafkaEnv, rewrite_with_record
from controller.procedures.kinds import Effect, Kind, Step
from controller.procedures.requests import Refused
from controller.process.wording import counted
from metadata_store.errors import NotConnected, OutcomeUnknown
from state_machines.decisions.plan_progress import Progress, ReassignPlan, Status, advance, counts, reverted, stopped
from state_machines.decisions.reassignment import rewrites
from state_machines.procedures.demand import Demand, Resource, Scope
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Done, Outcome, Wait
from state_machines.procedures.record import Record

log = logging.getLogger("regent.procedures")

NAME: Final = "reassign"
LOOK_AGAIN_MS: Final = 5_000
"""Time after which a plan looks at its moves again, although no event of a reassignment woke it."""

_decoder = msgspec.json.Decoder(ReassignPlan)
_encoder = msgspec.json.Encoder()


class PlanCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator's change of a plan; what is None stays. ``stop``: nothing further begins."""

    paused: bool | None = None
    moves_max: int | None = None
    broker_moves_max: int | None = None
    stop: bool = False


def plan_of(record: Record) -> ReassignPlan:
    """Decodes the message of a plan."""
    return _decoder.decode(record.data)


def encode_plan(plan: ReassignPlan) -> bytes:
    """Encodes the message of a plan."""
    return _encoder.encode(plan)


def demand(record: Record) -> Demand:
    """Demands the cluster's reassignments: one plan runs at a time."""
    plan_of(record)
    return Demand(Resource(Scope.SERVER, "reassignments"), exclusive=True)


async def move(env: KafkaEnv, record: Record) -> Outcome | Effect:
    """Begins as many moves as the caps allow, and waits for those under way."""
    c, plan = env.controller, plan_of(record)
    found = advance(plan, c.cluster, c.daemons)
    return _outcome(env, plan, found, record.pid)


async def take_back(env: KafkaEnv, record: Record) -> Outcome | Effect:
    """Gives every partition that the plan moved, or moves, its original replicas; other clients' moves stay."""
    c, plan = env.controller, plan_of(record)
    found = advance(reverted(plan), c.cluster, c.daemons)
    return _outcome(env, plan, found, record.pid)


def _outcome(env: KafkaEnv, plan: ReassignPlan, found: Progress, pid: int) -> Outcome | Effect:
    """Stores what was found, with the moves that begin, and looks again: at once, or after an event or a while."""
    data = encode_plan(found.plan)
    if found.begins:
        return Effect(Wait(env.now_ms(), data), partial(_begin, env, found, pid))
    if found.plan != plan:
        return Wait(env.now_ms(), data)
    if found.is_over:
        return Done(sentence(plan).encode())
    return Wait(env.now_ms() + LOOK_AGAIN_MS, data, durable=False)


async def _begin(env: KafkaEnv, found: Progress, pid: int, change: Change) -> bool:
    c = env.controller
    changes = rewrites(c.cluster, found.begins)
    if not await rewrite_with_record(env, changes, change):
        return False
    why = f"pid={pid} reassign: {counted(len(found.begins), 'partition')} begun"
    log.info("%s; %s", why, sentence(found.plan))
    try:
        await go_on(c, sorted(found.begins), why, again=True)
    except (NotConnected, OutcomeUnknown):  # the plan is written: the moves go on once the connection is back
        c.queue.signal(EventKind.RESUME_REASSIGNMENTS)
    return True


def sentence(plan: ReassignPlan) -> str:
    """Returns how many moves are in which state."""
    found = counts(plan)
    return ", ".join(f"{found[status]} {status.name.lower()}" for status in Status if found[status])


def command(record: Record, data: bytes) -> bytes:
    """Returns the message after an operator's command; raises :class:`Refused`."""
    try:
        wanted = msgspec.json.decode(data, type=PlanCommand)
    except msgspec.DecodeError as error:
        raise Refused(f"the command cannot be read: {error}") from error
    plan = plan_of(record)
    given = {
        "paused": wanted.paused,
        "moves_max": wanted.moves_max,
        "broker_moves_max": wanted.broker_moves_max,
    }
    for name in ("moves_max", "broker_moves_max"):
        value = getattr(wanted, name)
        if value is not None and value < 1:
            raise Refused(f"{name} is {value}, it must be at least 1: pause the plan where nothing further shall begin")
    changed = msgspec.structs.replace(plan, **{name: value for name, value in given.items() if value is not None})
    return encode_plan(stopped(changed) if wanted.stop else changed)


REASSIGN: Final[Kind[KafkaEnv]] = Kind(
    NAME, (Step("move replicas", move, take_back),), demand, holds_locks=True, command=command
)
