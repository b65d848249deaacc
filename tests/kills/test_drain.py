"""A drain, forward and taken back, whose daemon is killed before and after each write, and whose steps run twice."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from unittest import mock

import pytest

from brokers.listener.controller_listener import NotController
from controller.kafka.procedures import drain as kind
from controller.kafka.procedures.environment import KafkaEnv
from controller.procedures.requests import ProcedureRefused
from metadata_store.nodes.cordon_node import Cordons, read_cordons
from metadata_store.port import Kill
from state_machines.decisions import drain as decision
from state_machines.decisions.drain import Drain
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.machines.selectors import ONLY_REPLICA
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from tests.kills.tally import RecordProperty, tally
from tests.kills.terms import twice
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.reassignments import join, propagated, written
from tests.kit.kafka.world import KafkaWorld, world

OPS = Caller(principal="User:ops", nonce="one")
PARTITIONS = 4
LEADERS = Drain((1,))
REPLICAS = Drain((1,), plan=ReassignPlan(tuple(PlannedMove("t", n, (1, 2), (3, 2)) for n in range(PARTITIONS))))
ROUNDS_MAX = 40
BEYOND = 10_000


class End(NamedTuple):
    """What is left: the state and the result, marks by broker, leaders, replicas."""

    state: State
    result: bytes
    marks: dict[int, bool]
    leaders: list[int]
    replicas: set[tuple[int, ...]]


async def turned(w: KafkaWorld, drain: Drain, *, abort: bool) -> Record | None:
    """Repeats the client's call, plays brokers for a while; returns the record once the drain has ended."""
    engine = w.term.procedures.engine
    pid = await engine.submit(kind.NAME, kind.encode_drain(drain), OPS)
    await w.settle()
    record = engine.records[pid]
    if record.state.is_final:
        return record
    if abort and not record.aborted and (drain.plan is not None or led(w).count(2) >= 2):
        await engine.abort(pid)
        await w.settle()
    if drain.plan is not None:
        await join(w)
        await propagated(w)
    await asyncio.sleep(6)
    await w.settle()
    return None


def led(w: KafkaWorld) -> list[int]:
    return [state.leader for (topic, _), state in sorted(w.states.items()) if topic == "t"]


async def ended(number: int, when: str, drain: Drain, *, abort: bool) -> tuple[End, int]:
    """Plays a drain to its end with a death at a write; returns the end, and the writes of the first daemon."""
    async with world(1, 2, 3, auto_leader_rebalance_enable=False) as w:
        await w.topic("t", *[(1, 2)] * PARTITIONS, leaders=True)
        await w.topic("u", (1,), leaders=True)
        await w.begin_term()
        await propagated(w)
        first = w.active
        first.script.writes.clear()
        first.script.kill_at(number, when)
        for _ in range(ROUNDS_MAX):
            if first is w.active and (first.running is None or first.running.done() or w.term.gate.ended):
                await first.crash()
                await w.begin_term()
            try:
                record = await turned(w, drain, abort=abort)
            except (Kill, NotController, ProcedureRefused):
                continue
            if record is not None:
                return await left(w, record), len(first.script.writes)
        raise AssertionError(f"killed {when} write {number}: the drain does not end")


async def left(w: KafkaWorld, record: Record) -> End:
    await w.settle()
    marks = await read_cordons(w.operator)
    assert isinstance(marks, Cordons)
    assert w.term.cluster.drained == marks.drained
    w.agreed()
    replicas = {written(w, *name).replicas for name in w.states if name[0] == "t"}
    drained = {broker: mark.drain is not None for broker, mark in marks.brokers.items()}
    return End(record.state, record.result, drained, led(w), replicas)


STAYS = f"1 stay (u-0): {ONLY_REPLICA}"
CLEAN = {
    "leaders": (LEADERS, f"4 of 5 leaders moved; {STAYS}", [2] * 4, {(1, 2)}),
    "replicas": (REPLICAS, f"4 of 5 leaders moved; {STAYS}; 4 of 5 replicas moved; ", [2] * 4, {(3, 2)}),
}


@pytest.mark.parametrize("what", CLEAN)
@in_exact_time
async def test_a_drain_whose_daemon_is_killed_at_any_write_ends_as_the_clean_run(
    what: str, record_property: RecordProperty
) -> None:
    drain, result, leaders, replicas = CLEAN[what]
    with mock.patch.object(decision, "WAVE_MAX", 3):
        clean, writes = await ended(BEYOND, "before", drain, abort=False)
        assert clean[0] is State.SUCCESS
        assert clean.result.decode().startswith(result)
        assert (clean.marks, clean.leaders, clean.replicas) == ({1: True}, leaders, replicas)
        assert writes > 5
        for number in range(1, writes + 1):
            for when in ("before", "after"):
                found, _ = await ended(number, when, drain, abort=False)
                assert found == clean, f"killed {when} write {number}"
    tally(record_property, f"drain of {what}", "zookeeper", 2 * writes)


@pytest.mark.parametrize("what", CLEAN)
@in_exact_time
async def test_a_drain_that_is_aborted_and_killed_at_any_write_leaves_no_mark_and_all_replicas(what: str) -> None:
    drain = CLEAN[what][0]
    waits = mock.patch.object(kind, "brokers_are_behind", lambda env, _: drain.plan is None and moved(env) >= 2)
    with mock.patch.object(decision, "WAVE_MAX", 1), waits:
        clean, writes = await ended(BEYOND, "before", drain, abort=True)
        assert clean == End(State.ROLLEDBACK, b"", {}, [2] * 4 if drain.plan else [2, 2, 1, 1], {(1, 2)})
        for number in range(1, writes + 1):
            for when in ("before", "after"):
                found, _ = await ended(number, when, drain, abort=True)
                assert found == clean, f"killed {when} write {number}"


def moved(env: KafkaEnv) -> int:
    cluster = env.controller.cluster
    return sum(cluster.rows[i].leader == 2 for i in cluster.hosted(2))


@pytest.mark.parametrize("abort", [False, True], ids=["forward", "taken back"])
@pytest.mark.parametrize("what", CLEAN)
@in_exact_time
async def test_a_drain_whose_steps_each_run_twice_ends_as_the_clean_run(
    what: str, abort: bool, record_property: RecordProperty
) -> None:
    tally(record_property, f"drain of {what}", "zookeeper", 0, doubled=1)
    drain = CLEAN[what][0]
    waits = mock.patch.object(
        kind, "brokers_are_behind", lambda env, _: abort and drain.plan is None and moved(env) >= 2
    )
    with mock.patch.object(decision, "WAVE_MAX", 1), waits:
        clean, _ = await ended(BEYOND, "before", drain, abort=abort)
        with twice(kind.DRAIN):
            found, _ = await ended(BEYOND, "before", drain, abort=abort)
    if abort and drain.plan is None:  # a wave that runs twice is two waves
        assert found._replace(leaders=[]) == clean._replace(leaders=[])
    else:
        assert found == clean
