"""How long procedures make no progress: waits for dead brokers count, an operator's wishes and queues apart."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from controller.kafka.procedures import drain, elect, restart, throttle
from controller.kafka.procedures.throttle import ThrottleOrder
from controller.operator.health import live_procedures
from controller.operator.pauses import PauseRequest, PauseView
from controller.operator.progress import LOOK_S, OPERATOR, OTHER, QUEUE, VAIN, Idle, ProgressWatch, cause_of
from state_machines.decisions.drain import Drain
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.mass_election import MassElection
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.decisions.restarts import RollingRestart
from state_machines.model.types import TopicPartition
from state_machines.procedures.kernel import STUCK_ATTEMPTS, Procedures
from state_machines.procedures.outcome import Retry, Wait
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.kit.kafka.plans import OPS, applied, commanded, moves, record, running
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.operator.test_view_procedures import measured_by


def idle(w: KafkaWorld, pid: int, after_ms: int = 0, watch: ProgressWatch | None = None) -> Idle | None:
    """Returns how long a procedure makes no progress, ``after_ms`` after its last change."""
    now_ms = record(w, pid).updated_ms + after_ms
    return next((one for one in (watch or ProgressWatch()).idle(w.term, now_ms) if one.pid == pid), None)


@in_world(1, 2, 3, 4)
async def test_a_plan_that_waits_for_a_dead_broker_makes_no_progress_and_tries_nothing(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves((1, 4)), paused=True))
    assert idle(w, pid, 70_000) == Idle(pid, "reassign", OPERATOR, 70_000)
    w.die(4)
    await w.settle()
    await commanded(w, pid, paused=False)
    await asyncio.sleep(20)
    await w.settle()
    assert record(w, pid).attempts == 0
    found = idle(w, pid, 960_000)
    assert found == Idle(pid, "reassign", OTHER, 960_000)
    [told] = live_procedures(w.term, record(w, pid).submitted_ms + 960_000, [found])
    assert told.startswith(f"reassign {pid}, for 16 min, no progress for 16 min: 6 queued")
    [told] = live_procedures(w.term, record(w, pid).submitted_ms + 960_000, [found._replace(cause=OPERATOR)])
    assert "no progress" not in told


@in_world(1, 2, 3, 4)
async def test_the_wait_goes_on_in_the_next_term(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves((1, 4)), paused=True))
    w.die(4)
    await w.settle()
    await commanded(w, pid, paused=False)
    await asyncio.sleep(20)
    before = idle(w, pid)
    last_ms = record(w, pid).progress_ms
    await w.begin_term()
    await w.settle()
    assert (before is not None, record(w, pid).progress_ms) == (True, last_ms)


@in_world(1, 2, 3, 4)
async def test_a_plan_that_copies_makes_progress_by_its_bytes_alone(w: KafkaWorld) -> None:
    await running(w)
    name = TopicPartition("a", 0)
    logs = {3: {name: 1_000}}
    measured_by(w, logs)
    watch, pid = ProgressWatch(), await applied(w, ReassignPlan((PlannedMove("a", 0, (1, 2), (1, 3), 9_000),)))
    now_ms = record(w, pid).updated_ms + 3_600_000

    async def look(at_ms: int) -> None:
        watch.refresh(w.term, at_ms)
        watch.refresh(w.term, at_ms)
        await asyncio.sleep(LOOK_S)

    await look(now_ms)
    assert list(watch.idle(w.term, now_ms)) == [], "the first look has nothing to compare with"
    assert [pace.copied_bytes for pace in watch.paces()] == [1_000]
    logs[3][name] = 2_000
    await look(now_ms + 30_000)
    assert [one.for_ms for one in watch.idle(w.term, now_ms + 40_000)] == [10_000]
    await look(now_ms + 60_000)
    assert [one.for_ms for one in watch.idle(w.term, now_ms + 70_000)] == [40_000], "no byte came"
    assert [(pace.copied_bytes, pace.size_bytes) for pace in watch.paces()] == [(2_000, 9_000)]
    w.die(3)
    await w.settle()
    await look(now_ms + 90_000)
    assert watch.paces() == [], "a dead destination copies nothing, and is not queried"


@in_world(1, 2, 3, 4)
async def test_a_plan_behind_another_one_waits_in_a_queue(w: KafkaWorld) -> None:
    await running(w)
    await applied(w, ReassignPlan(moves()[:1], paused=True))
    second = await applied(w, ReassignPlan(moves((1, 3))[1:2]), replace(OPS, nonce="two"))
    found = idle(w, second, 5_000)
    assert found is not None
    assert found.cause == QUEUE


@in_world(1, 2, 3)
async def test_each_kind_has_waits_that_operators_chose(w: KafkaWorld) -> None:
    await running(w)

    def cause(kind: str, data: bytes, **more: Any) -> str:
        return cause_of(w.term, Record(1, kind, State.WAITING_TIMEOUT, 0, 0, 0, data=data, locked=True, **more))

    order = ThrottleOrder((1,), 5)
    restarting = RollingRestart(((1, 1),))
    preferred, unclean = (
        elect.encode_election(MassElection(kind)) for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN)
    )
    draining = drain.encode_drain(Drain((1,)))
    named = restart.encode_restart(replace(restarting, batch=(1,)))
    encode = throttle.encode_order
    assert cause(throttle.NAME, encode(order)) == OPERATOR
    assert cause(throttle.NAME, encode(order), attempts=1) == OTHER
    assert cause(throttle.NAME, encode(replace(order, lift=True))) == OTHER
    assert cause(restart.NAME, named) == OPERATOR, "its operator restarts the broker"
    assert cause(restart.NAME, b"{") == OTHER
    unpaused = [restart.encode_restart(restarting), draining, preferred, unclean]
    kinds = [restart.NAME, drain.NAME, elect.NAME, elect.NAME]
    assert [cause(kind, data) for kind, data in zip(kinds, unpaused, strict=True)] == [OTHER] * 4
    await PauseView(lambda: w.term).pause(PauseRequest(reason="night"), "uid 0")
    await w.settle()
    assert [cause(kind, data) for kind, data in zip(kinds, unpaused, strict=True)] == [OPERATOR] * 3 + [OTHER]
    assert cause(elect.NAME, unclean, attempts=STUCK_ATTEMPTS) == VAIN


@in_world(1, 2, 3, 4)
async def test_a_drain_whose_plan_waits_makes_no_progress(w: KafkaWorld) -> None:
    await running(w)
    plan = ReassignPlan(moves((1, 4)), paused=True)
    pid = await w.term.procedures.engine.submit(drain.NAME, drain.encode_drain(Drain((2,), plan=plan)), OPS)
    await w.settle()
    await asyncio.sleep(20)
    await w.settle()
    [child] = [one.pid for one in w.term.procedures.engine.live() if one.parent == pid]
    now_ms = record(w, child).updated_ms + 600_000
    [found] = ProgressWatch().idle(w.term, now_ms)
    assert (found.pid, found.cause) == (child, OPERATOR), "the drain itself waits for its plan"
    [told] = live_procedures(w.term, now_ms, [found._replace(cause=OTHER)])
    assert told.startswith(f"drain {pid}, for 10 min, no progress for 10 min: ")


def test_an_attempt_in_vain_is_no_progress_and_what_goes_on_after_it_is() -> None:
    known = Procedures(lambda _: None)
    known.apply(known.submitted(Record(1, "drain", State.RUNNABLE, 0, 10, 10)))
    seen = []
    for now_ms, outcome in ((20, Wait(0, b"a")), (30, Retry("no")), (50, Retry("no")), (90, Wait(0, b"b"))):
        known.apply(known.executed(1, outcome, now_ms))
        seen.append((known.latest(1).attempts, known.latest(1).progress_ms))
    assert seen == [(0, 20), (1, 20), (2, 20), (0, 90)]
