"""Gauges of procedures: what runs by kind and state, and which plans are paused."""

from __future__ import annotations

import msgspec

from controller.kafka.procedures.reassign import NAME, PlanCommand, is_paused
from controller.operator.gauges import procedures_of
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from tests.kit.kafka.plans import applied, moves, running
from tests.kit.kafka.world import KafkaWorld, in_world


@in_world(1, 2, 3, 4)
async def test_what_runs_is_counted_by_kind_and_state_and_plans_that_are_paused_or_held(w: KafkaWorld) -> None:
    await running(w)
    plans = [ReassignPlan(part, paused=paused) for part, paused in ((moves()[:3], True), (moves()[3:], False))]
    first, second = [await applied(w, plan, Caller(nonce=str(plan.paused))) for plan in plans]
    found = procedures_of(w.term)
    assert (sum(found.by_kind.values()), found.paused_plans, found.stuck, found.unusable) == (2, 1, 0, 0)
    assert {kind for kind, _ in found.by_kind} == {"reassign"}
    assert {state for _, state in found.by_kind} <= {"runnable", "waiting_timeout"}
    engine = w.term.procedures.engine
    await engine.command(second, msgspec.json.encode(PlanCommand(held=True)))
    assert procedures_of(w.term).paused_plans == 2
    await engine.abort(first)
    await w.settle()
    assert procedures_of(w.term).paused_plans == 1


def test_a_plan_that_is_taken_back_and_a_message_that_cannot_be_read_are_not_paused() -> None:
    def plan(state: State, data: bytes, kind: str = NAME) -> Record:
        return Record(1, kind, state, 0, 0, 0, data=data)

    paused = b'{"moves":[["t",0,[1],[2]]],"paused":true}'
    assert is_paused(plan(State.WAITING_TIMEOUT, paused))
    assert not is_paused(plan(State.FAILED, paused))
    assert not is_paused(plan(State.RUNNABLE, paused, "drain"))
    assert not is_paused(plan(State.RUNNABLE, b"{"))
    assert not is_paused(plan(State.RUNNABLE, b'{"moves":[]}'))
