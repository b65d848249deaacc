"""A reassign plan with throttles, forward and taken back, whose daemon is killed before and after each write."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from brokers.listener.controller_listener import NotController
from controller.kafka.procedures.reassign import NAME, REASSIGN, encode_plan, plan_of
from controller.procedures.requests import ProcedureRefused
from controller.role import own_znodes as own
from metadata_store.port import Kill
from state_machines.decisions.plan_progress import ReassignPlan, Status
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.kills.tally import RecordProperty, tally
from tests.kills.terms import twice
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.plans import OPS, moves, placed, running, throttled
from tests.kit.kafka.reassignments import join, propagated
from tests.kit.kafka.world import KafkaWorld, world

WAVE = 4
PLAN = ReassignPlan(moves(), moves_max=WAVE, rate_bytes_per_s=5_000)
FIRST = [(move.topic, move.partition) for move in PLAN.moves[:WAVE]]
"""Moves whose replicas join before the abort: whenever that comes, the plan has not ended."""
ROUNDS_MAX = 40
BEYOND = 10_000


class End(NamedTuple):
    """What is left: the procedure's state, the replicas, entities with a throttle, and the number of records."""

    state: State
    placed: list[tuple[int, ...]]
    throttled: set[str]
    records: int


async def turned(w: KafkaWorld, *, abort: bool) -> Record | None:
    """Repeats the client's call, plays brokers for a while; returns the record once the plan has ended."""
    engine = w.term.procedures.engine
    pid = await engine.submit(NAME, encode_plan(PLAN), OPS)
    await w.settle()
    record = engine.records[pid]
    if record.state.is_final:
        return record
    if abort and any(move.status is Status.DONE for move in plan_of(record).moves) and not record.aborted:
        await engine.abort(pid)
        await w.settle()
    await join(w, *(FIRST if abort and not engine.records[pid].aborted else ()))
    await propagated(w)
    await asyncio.sleep(6)
    await w.settle()
    return None


async def left(w: KafkaWorld, record: Record) -> End:
    return End(record.state, placed(w), throttled(w), len(w.children(own.PROCEDURES)))


async def ended(number: int, when: str, *, abort: bool) -> tuple[End, int]:
    """Plays a plan to its end with a death at a write; returns the end, and the writes of the first daemon."""
    async with world(1, 2, 3, 4) as w:
        await running(w)
        first = w.active
        first.script.kill_at(number, when)
        for _ in range(ROUNDS_MAX):
            if first is w.active and (first.running is None or first.running.done() or w.term.gate.ended):
                await first.crash()
                await w.begin_term()
            try:
                record = await turned(w, abort=abort)
            except (Kill, NotController, ProcedureRefused):
                continue
            if record is not None:
                return await left(w, record), len(first.script.writes)
        raise AssertionError(f"killed {when} write {number}: the plan does not end")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("abort", [False, True], ids=["forward", "taken back"])
@in_exact_time
async def test_a_plan_whose_daemon_is_killed_at_any_write_ends_as_the_clean_run(
    abort: bool, when: str, record_property: RecordProperty
) -> None:
    clean, writes = await ended(BEYOND, "before", abort=abort)
    assert clean == (
        End(State.ROLLEDBACK, [(1, 2)] * 6, set(), 1) if abort else End(State.SUCCESS, [(3, 4)] * 6, set(), 1)
    )
    assert writes > 10
    for number in range(1, writes + 1):
        found, _ = await ended(number, when, abort=abort)
        assert found == clean, f"killed {when} write {number}"
    tally(record_property, "reassign", "zookeeper", writes)


@pytest.mark.seed("S2-22", "S2-23")
@pytest.mark.parametrize("abort", [False, True], ids=["forward", "taken back"])
@in_exact_time
async def test_a_plan_whose_steps_each_run_twice_ends_as_the_clean_run(
    abort: bool, record_property: RecordProperty
) -> None:
    clean, _ = await ended(BEYOND, "before", abort=abort)
    with twice(REASSIGN):
        found, _ = await ended(BEYOND, "before", abort=abort)
    assert found == clean
    tally(record_property, "reassign", "zookeeper", 0, doubled=1)
