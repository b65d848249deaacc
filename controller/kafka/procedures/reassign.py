"""The reassign plan: moves replicas in waves, below caps, and takes all of it back where it is aborted.

A wave's topic znodes and the plan's record are one multi: after any crash the record says which partitions the plan
began. Handlers of reassignments do the rest of each move, as for a request of a client.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final

import msgspec

from controller.kafka.path.events import EventKind
from controller.kafka.procedures.environment import KafkaEnv, rewrite_with_record
from controller.kafka.procedures.plan_conflicts import LeftOfPlans, callers_of, overlap
from controller.kafka.procedures.plan_throttles import lift_throttles, set_throttles
from controller.kafka.reassignments.reassignment import go_on
from controller.procedures.kinds import Effect, Kind, Step
from controller.procedures.requests import ProcedureRefused
from controller.procedures.writes import CHANGE_BYTES_MAX
from controller.process.wording import counted
from metadata_store.errors import NotConnected, OutcomeUnknown
from state_machines.admin_rules.throttles import RATE_BYTES_PER_S_MAX
from state_machines.decisions.plan_checks import newly_superseded, noted, shortened
from state_machines.decisions.plan_progress import Progress, ReassignPlan, Status, advance, counts, reverted, stopped
from state_machines.decisions.reassignment import rewrites
from state_machines.decisions.throttling import SET, RateBounds
from state_machines.model.types import TopicPartition
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Outcome, Retry, Wait
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Members

log = logging.getLogger("regent.procedures")

NAME: Final = "reassign"
LOOK_AGAIN_MS: Final = 5_000
"""Time after which a plan looks at its moves again, although no event of a reassignment woke it."""
DECODED_MAX: Final = 4
"""Messages of plans that are kept decoded: each is looked at several times before it changes."""
MESSAGE_BYTES_MAX: Final = CHANGE_BYTES_MAX - 32 * 1024
"""Bytes of a plan's message; the rest of what a step may write is for its result."""
TOGETHER_MS: Final = 250
"""Time for which ISR changes are gathered, before lists of throttled replicas are written anew."""
SIZES_MS: Final = 500
"""Pause while the sizes of other clients' reassignments, or min.insync.replicas, are read."""


class Marks(msgspec.Struct, frozen=True):
    """The marks in the message of a plan, which are decoded without its moves."""

    paused: bool = False
    held: bool = False


_decoder = msgspec.json.Decoder(ReassignPlan)
_marks = msgspec.json.Decoder(Marks)
_encoder = msgspec.json.Encoder()


class PlanCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operator's change of a plan; what is None stays. ``stop``: nothing further begins.

    ``held``: the role is given back; a plan that is resumed is held no more. ``rate_bytes_per_s`` alone is a rate that
    stays; with ``rate_bytes_per_s_max`` both are its bounds.
    """

    paused: bool | None = None
    held: bool | None = None
    moves_max: int | None = None
    broker_moves_max: int | None = None
    bytes_max: int | None = None
    broker_bytes_max: int | None = None
    rate_bytes_per_s: int | None = None
    rate_bytes_per_s_max: int | None = None
    stop: bool = False


def plan_of(record: Record) -> ReassignPlan:
    """Decodes the message of a plan."""
    return _decoded(record.data)


@lru_cache(maxsize=DECODED_MAX)
def _decoded(message: bytes) -> ReassignPlan:
    return _decoder.decode(message)


LEFT: Final = LeftOfPlans(lambda record: plan_of(record).moves)


def is_paused(record: Record) -> bool:
    """Checks whether a plan is paused, or held since the role was given back; one that is taken back goes on."""
    if record.kind != NAME or record.state is State.FAILED:
        return False
    try:
        marks = _marks.decode(record.data)
    except msgspec.DecodeError:
        return False
    return marks.paused or marks.held


def encode_plan(plan: ReassignPlan) -> bytes:
    """Encodes the message of a plan, without most of its words where these make it too long for a record."""
    message = _encoder.encode(plan)
    return message if len(message) <= MESSAGE_BYTES_MAX else _encoder.encode(shortened(plan))


def demand(record: Record) -> Demand:
    """Demands the cluster's reassignments: one plan runs at a time."""
    if record.state.is_final:
        plan_of(record)
    else:
        LEFT.of(record)  # a term that begins decodes each plan here, in no later turn
    return Demand(Resource(Scope.SERVER, "reassignments"), exclusive=True)


def members(record: Record) -> Members:
    """Returns the topics that the plan moves, and the brokers that lose or get replicas."""
    moves = plan_of(record).moves
    changed = {broker for move in moves for broker in set(move.origin).symmetric_difference(move.target)}
    return Members(tuple(dict.fromkeys(move.topic for move in moves)), tuple(sorted(changed)))


def admit(record: Record, others: Sequence[Record]) -> str | None:
    """Returns why a plan is refused beside the others, of which some were perhaps submitted at the same moment."""
    LEFT.keep({record.pid, *(other.pid for other in others)})
    found = overlap(LEFT.of(record), [(other, LEFT.of(other)) for other in others])
    return None if found is None else f"{found.why}: {found.remedy}"


async def move(env: KafkaEnv, record: Record) -> Outcome | Effect:
    """Begins as many moves as the caps allow, and waits for those under way."""
    return await _looked_at(env, record, plan_of(record))


async def take_back(env: KafkaEnv, record: Record) -> Outcome | Effect:
    """Gives every partition that the plan moved, or moves, its original replicas; other clients' moves stay."""
    return await _looked_at(env, record, reverted(plan_of(record)))


async def _looked_at(env: KafkaEnv, record: Record, plan: ReassignPlan) -> Outcome | Effect:
    """Stores each finding before the next is made; then begins moves, or waits for an event or a while.

    Throttles are in force before the first move begins, and gone before the plan ends.
    """
    stored, c = plan_of(record), env.controller
    plan = env.pacer.paced(c, record.pid, plan, env.now_ms(), env.responses.wake)
    if plan != stored:
        return Wait(env.now_ms(), encode_plan(plan))
    known = env.foreign.are_known(c, plan) and (plan.reverting or env.guard.is_known(c, record.pid, env.responses.wake))
    may_begin = known and c.pauses.in_force is None
    found = advance(
        plan,
        c.cluster,
        c.daemons,
        env.unwritable,
        sizes=env.foreign.known,
        min_isr=c.cluster.min_isr,
        may_begin=may_begin,
    )
    found = _noted(env, plan, found, record.pid)
    expected = found.plan if found.is_over else plan
    if plan == found.plan and _is_recent(env, record) and plan.rate_in_force == plan.rate_bytes_per_s != 0:
        return Wait(record.updated_ms + TOGETHER_MS, record.data, durable=False)
    if found.is_over:
        throttled = await lift_throttles(env, expected)
    else:
        throttled = await set_throttles(env, expected, record.pid, found.begins)
    if isinstance(throttled, Retry):
        return throttled
    if throttled != expected:
        message = encode_plan(throttled)
        return Wait(env.now_ms(), message) if len(message) <= MESSAGE_BYTES_MAX else _too_long(record, message)
    message = encode_plan(found.plan)
    if found.begins:
        return Effect(Wait(env.now_ms(), message), write=partial(_begin, env, found, record.pid))
    if message != record.data:  # as stored: words that are too long for the record differ in memory only
        return Wait(env.now_ms(), message)
    if found.is_over:
        return Done(sentence(plan).encode())
    return Wait(env.now_ms() + (LOOK_AGAIN_MS if known else SIZES_MS), record.data, durable=False)


def _is_recent(env: KafkaEnv, record: Record) -> bool:
    """Checks whether the record was written just now; the wall clock may have been set back since."""
    return 0 <= env.now_ms() - record.updated_ms < TOGETHER_MS


def _too_long(record: Record, message: bytes) -> Retry:
    why = f"the record has {len(message)} bytes with the plan's throttles, at most {MESSAGE_BYTES_MAX} are stored"
    stop = "" if record.state is State.FAILED else f", regent procedures cancel {record.pid} stops the plan"
    return Retry(f"{why}: regent reassign set {record.pid} --throttle 0 goes on without them{stop}")


def _noted(env: KafkaEnv, before: ReassignPlan, found: Progress, pid: int) -> Progress:
    """Notes when moves were superseded, and by which client."""
    places = newly_superseded(before, found.plan)
    if not places:
        return found
    names = [TopicPartition(before.moves[at].topic, before.moves[at].partition) for at in places]
    return found._replace(plan=noted(found.plan, places, env.now_ms(), callers_of(env.known(), names, pid)))


async def _begin(env: KafkaEnv, found: Progress, pid: int, change: Change) -> str | None:
    c = env.controller
    changes = rewrites(c.cluster, found.begins)
    if (why_not := await rewrite_with_record(env, changes, change)) is not None:
        return why_not
    why = f"pid={pid} reassign: {counted(len(found.begins), 'partition')} begun"
    log.info("%s; %s", why, sentence(found.plan))
    try:
        await go_on(c, sorted(found.begins), why, again=True)
    except (NotConnected, OutcomeUnknown):  # the plan is written: the moves go on once the connection is back
        c.queue.signal(EventKind.RESUME_REASSIGNMENTS)
    return None


def sentence(plan: ReassignPlan) -> str:
    """Returns how many moves are in which state."""
    found = counts(plan)
    return ", ".join(f"{found[status]} {status.name.lower()}" for status in Status if found[status])


def command(record: Record, data: bytes) -> bytes:
    """Returns the message after an operator's command; raises :class:`ProcedureRefused`."""
    try:
        wanted = msgspec.json.decode(data, type=PlanCommand)
    except msgspec.DecodeError as error:
        raise ProcedureRefused(f"the command cannot be read: {error}") from error
    if record.state is State.FAILED and (wanted.stop or wanted.paused or wanted.held):
        raise ProcedureRefused(
            f"pid {record.pid} is being taken back: give it caps or a rate, nothing else can be changed"
        )
    _refuse_out_of_bounds(wanted)
    given = {
        "paused": wanted.paused,
        "held": False if wanted.paused is False else wanted.held,
        "moves_max": wanted.moves_max,
        "broker_moves_max": wanted.broker_moves_max,
        "bytes_max": wanted.bytes_max,
        "broker_bytes_max": wanted.broker_bytes_max,
        "rate_bytes_per_s": wanted.rate_bytes_per_s,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    changed = _paced(msgspec.structs.replace(plan_of(record), **changes), plan_of(record), wanted)
    return encode_plan(stopped(changed) if wanted.stop else changed)


def _paced(changed: ReassignPlan, before: ReassignPlan, wanted: PlanCommand) -> ReassignPlan:
    """Returns a plan with the bounds of its rate that a command brings; the present rate stays as far as they allow."""
    low, high = wanted.rate_bytes_per_s, wanted.rate_bytes_per_s_max
    if low is None:
        return changed
    if not high:
        return msgspec.structs.replace(changed, bounds=None)
    rate = min(max(before.rate_bytes_per_s, low), high)
    return msgspec.structs.replace(changed, rate_bytes_per_s=rate, bounds=RateBounds(low, high, why=SET))


def why_no_bounds(low: int | None, high: int | None) -> str | None:
    """Returns what is wrong with the bounds of a rate; None where nothing is, or where there is no upper one."""
    if not high:
        return None
    if not low:
        return f"rate_bytes_per_s_max is {high} without rate_bytes_per_s: give the lower bound, too, at least 1"
    if not low <= high <= RATE_BYTES_PER_S_MAX:
        return f"rate_bytes_per_s_max is {high}: give {low} or more, at most {RATE_BYTES_PER_S_MAX}"
    return None


def _refuse_out_of_bounds(wanted: PlanCommand) -> None:
    for name in ("moves_max", "broker_moves_max"):
        value = getattr(wanted, name)
        if value is not None and value < 1:
            raise ProcedureRefused(
                f"{name} is {value}, it must be at least 1: pause the plan where nothing further shall begin"
            )
    for name in ("bytes_max", "broker_bytes_max"):
        value = getattr(wanted, name)
        if value is not None and value < 0:
            raise ProcedureRefused(f"{name} is {value}: give 0 for no cap, or a number of bytes")
    if (wrong := why_no_bounds(wanted.rate_bytes_per_s, wanted.rate_bytes_per_s_max)) is not None:
        raise ProcedureRefused(wrong)
    if wanted.rate_bytes_per_s is not None and not 0 <= wanted.rate_bytes_per_s <= RATE_BYTES_PER_S_MAX:
        raise ProcedureRefused(
            f"rate_bytes_per_s is {wanted.rate_bytes_per_s}: give 0 for none, or at most {RATE_BYTES_PER_S_MAX}"
        )


REASSIGN: Final[Kind[KafkaEnv]] = Kind(
    NAME,
    (Step("move replicas", move, take_back),),
    demand,
    holds_locks=True,
    command=command,
    members=members,
    changes_while_undone=True,
    admit=admit,
)
