"""Converts records of procedures into items of the HTTP surface, with their phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from controller.http.procedures import Procedure, ServerResult, record_item
from controller.kafka.procedures import drain, elect, reassign, restart, throttle
from controller.kafka.procedures.environment import KafkaEnv
from controller.kafka.procedures.throttle import ThrottleOrder, order_of
from controller.kafka.term.procedures import NAMES
from controller.kafka.term.term import Term
from controller.operator.brokers import awaited_by
from controller.procedures.kinds import Kind
from controller.process.wording import counted, in_bytes, in_time, named
from state_machines.admin_rules.throttles import Throttle
from state_machines.decisions import mass_election
from state_machines.decisions.drain import Drain
from state_machines.decisions.mass_election import MassElection
from state_machines.decisions.plan_pace import PlanPace
from state_machines.decisions.plan_progress import STOPPED, Status
from state_machines.decisions.throttling import RateBounds
from state_machines.model.types import TopicPartition
from state_machines.procedures.record import NO_ENDING, Record
from state_machines.procedures.states import State

WAITED_FOR: Final = "it is queried, and has not reported the rate yet"
AGAIN: Final = "it is queried again, and has not reported the rate yet"
NO_CAUSES: Final[Mapping[int, str]] = {}
DOWN: Final = "it is down: it reads the setting from ZooKeeper when it starts"


def procedure_item(
    record: Record, kinds: Mapping[str, Kind[KafkaEnv]], unusable: str = "", causes: Mapping[int, str] = NO_CAUSES
) -> Procedure:
    """Describes a record; its step by name where this daemon has the kind. ``causes``: see :func:`broker_results`."""
    kind = kinds.get(record.kind)
    known = kind is not None and record.step < len(kind.steps)
    step = kind.steps[record.step].name if kind is not None and known else str(record.step)
    if unusable:  # its message may be what cannot be read
        return record_item(record, step, unusable=unusable)
    found = record_item(record, step, detail_of(record), _results(record, causes), unmet=unmet_of(record))
    return found.model_copy(update={"brokers": list(drained)}) if (drained := _drained(record)) else found


def _drained(record: Record) -> tuple[int, ...]:
    try:
        return drain.drain_of(record).brokers if record.kind == drain.NAME else ()
    except msgspec.DecodeError:
        return ()


def unmet_of(record: Record) -> str:
    """Returns a sentence on what a plan that has ended did not move, with the first cause; empty where all is done."""
    if record.state is not State.SUCCESS or record.kind != reassign.NAME:
        return ""
    try:
        moves = reassign.plan_of(record).moves
    except msgspec.DecodeError:
        return ""
    left = [move for move in moves if move.status is not Status.DONE]
    if not left:
        return ""
    first = next((move for move in left if move.why), left[0])
    why = first.why or (STOPPED if first.status is Status.STOPPED else "it had not ended")
    return f"{len(left)} of {len(moves)} moves were not done; {TopicPartition(first.topic, first.partition)}: {why}"


def moved_by(record: Record) -> int:
    """Returns the pid of the plan that moves or moved the replicas of a drain, 0 without one.

    A drain that ended with its plan, by a bypass, has it among the children that were born alone.
    """
    if record.kind != drain.NAME:
        return 0
    try:
        return drain.drain_of(record).moved_by or next(iter(record.born), 0)
    except msgspec.DecodeError:
        return 0


def part_item(parent: Record, pid: int) -> Procedure:
    """Describes the plan of a drain, whose record went at its end: it ended as the drain did, or before it."""
    detail = f"it was the plan of drain {parent.pid}, which has its result: regent procedures show {parent.pid}"
    by = parent.ending if parent.bypassed or parent.aborted else NO_ENDING
    return Procedure(
        pid=pid,
        kind=reassign.NAME,
        state=parent.state.name.lower() if parent.state.is_final else State.SUCCESS.name.lower(),
        parent=parent.pid,
        ended=True,
        bypassed=parent.bypassed,
        principal=parent.caller.principal,
        detail=detail,
        end_requested=by.act,
        end_principal=by.principal,
        end_reason=by.reason,
    )


def with_pace(item: Procedure, found: PlanPace) -> Procedure:
    """Returns the description of a plan with its progress."""
    return item.model_copy(
        update={
            "copied_bytes": found.copied_bytes,
            "size_bytes": found.size_bytes,
            "rate_bytes_per_s": found.rate_bytes_per_s,
            "remaining_s": found.remaining_s,
            "progress": _pace_sentence(found),
        }
    )


def _pace_sentence(found: PlanPace) -> str:
    parts = [f"{in_bytes(found.copied_bytes)} of {in_bytes(found.size_bytes)} copied"]
    if found.rate_bytes_per_s is not None:
        parts.append(f"{in_bytes(found.rate_bytes_per_s)}/s")
    if found.remaining_s:
        parts.append(f"{in_time(found.remaining_s)} to go")
    if found.sizes_unknown:
        parts.append(f"without {counted(found.sizes_unknown, 'move')} of unknown size")
    return ", ".join(parts)


def broker_results(order: ThrottleOrder, causes: Mapping[Any, str] = NO_CAUSES) -> list[ServerResult]:
    """Describes the latest result of each broker; brokers without a response yet are named, too.

    ``causes``: by broker, why the latest query of it had no result.
    """
    known = {one.server: one for one in order.confirming.results}
    missing = dict.fromkeys(order.confirming.servers, WAITED_FOR) | dict.fromkeys(order.down, DOWN)
    missing |= {broker: f"{AGAIN}: {causes[broker]}" for broker in order.confirming.servers if broker in causes}
    return [
        ServerResult(broker=broker, ok=known[broker].ok, text=known[broker].text)
        if broker in known
        else ServerResult(broker=broker, ok=False, text=missing.get(broker, "not queried yet"))
        for broker in order.brokers
    ]


def _results(record: Record, causes: Mapping[int, str]) -> list[ServerResult]:
    if record.kind != throttle.NAME:
        return []
    try:
        return broker_results(order_of(record.data), causes)
    except msgspec.DecodeError:
        return []


def detail_of(record: Record) -> str:
    """Describes what a procedure has done and has left; empty where its message cannot be read."""
    try:
        if record.kind == restart.NAME:
            ended = record.state is State.SUCCESS and not record.bypassed
            return record.result.decode(errors="replace") if ended else restart.restart_of(record).why
        if record.kind == elect.NAME:
            return _of_election(elect.election_of(record))
        if record.kind == throttle.NAME:
            return _of_throttle(record, order_of(record.data))
        if record.kind == drain.NAME:
            return _of_drain(drain.drain_of(record))
        if record.kind != reassign.NAME:
            return ""
        plan = reassign.plan_of(record)
    except msgspec.DecodeError:
        return ""
    over = record.state.is_final
    marks = ["paused"] if (plan.paused or plan.held) and not over else []
    marks += ["taken back" if over else "being taken back"] if plan.reverting else []
    if plan.bounds is not None and not over and not plan.held:
        marks.append(paced(plan.rate_bytes_per_s, plan.bounds))
    if record.bypassed and plan.throttles:
        marks.append(_throttles_left(plan.throttles))
    return "; ".join((reassign.sentence(plan), *marks))


def paced(rate_bytes_per_s: int, bounds: RateBounds) -> str:
    """Describes a throttle between two bounds: its present value and the cause."""
    low, high = in_bytes(bounds.low_bytes_per_s), in_bytes(bounds.high_bytes_per_s)
    return f"throttle {in_bytes(rate_bytes_per_s)}/s, between {low} and {high}: {bounds.why}"


def _of_election(found: MassElection) -> str:
    upto = f", up to {TopicPartition(*found.after)}" if found.after is not None else ""
    return f"{found.kind.name.lower()}{upto}: {mass_election.sentence(found)}"


def _of_throttle(record: Record, order: ThrottleOrder) -> str:
    told = throttle.sentence(order, over=record.state.is_final and not record.bypassed)
    return f"{told}; {_throttles_left(order.throttles)}" if record.bypassed and order.throttles else told


def _throttles_left(throttles: Sequence[Throttle]) -> str:
    """Names the settings that a procedure leaves which ended without lifting its throttles, and how to remove them."""
    places = [f"{one.setting} of {one.entity}" for one in throttles]
    count = counted(len(places), "throttle setting")
    return f"{count} may still stand, regent throttle clear removes them: {named(places)}"


def _of_drain(found: Drain) -> str:
    upto = f", up to {TopicPartition(*found.after)}" if found.after is not None else ""
    replicas = f"; {len(found.plan.moves)} partitions move" if found.plan is not None else ""
    return f"brokers {list(found.brokers)}: {found.led} leaders{upto}{replicas}"


def phase_of(record: Record, term: Term | None) -> str:
    """Returns the phase of a procedure that has not ended; empty for one that has.

    The stored state of a plan that copies is ``waiting_timeout``, for it waits for brokers most of the time.
    """
    if record.state.is_final:
        return ""
    if record.state is State.FAILED or record.aborted:
        return "undoing"
    if reassign.is_paused(record):
        return "paused"
    if record.kind == reassign.NAME:
        if not record.locked:
            return "queued"
        if term is not None and (dead := awaited_by(record, term.cluster)):
            return f"waiting for broker{'s' if len(dead) > 1 else ''} {named(dead)}"
    return "running"


def concerns(record: Record, topic: str | None, broker: int | None) -> bool:
    """Returns whether a procedure locks the topic and the broker, or is about them; None stands for any."""
    locks, members = NAMES.lock_names(record), NAMES.members(record)
    of_topic = (
        topic is None or topic in members.topics or any(lock.split(" ")[:2] == ["topic", topic] for lock in locks)
    )
    return of_topic and (broker is None or broker in members.brokers or f"server broker {broker}" in locks)
