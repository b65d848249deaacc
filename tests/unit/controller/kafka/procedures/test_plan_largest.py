"""Plans whose records grow until they are too long: words give way, states never do, throttles are refused before."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from controller.http.documents import ViewRefused
from controller.kafka.procedures import reassign
from controller.kafka.procedures.reassign import MESSAGE_BYTES_MAX, PlanCommand, encode_plan, plan_of
from controller.operator.plan_requests import encoded
from controller.procedures.engine import DATA_BYTES_MAX
from state_machines.decisions import plan_checks
from state_machines.decisions.plan_checks import WORDS_KEPT_MAX, shortened
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status, Superseded
from state_machines.procedures.states import State
from tests.kit.kafka.plans import PARTITIONS, aborted, applied, commanded, finished, moves, record, running, statuses
from tests.kit.kafka.reassignments import alter, caught_up, join, propagated
from tests.kit.kafka.world import KafkaWorld, in_world


def largest() -> ReassignPlan:
    """The plan with as many moves as one call takes."""
    many = tuple(PlannedMove(f"topic-{number:04d}", 0, (101, 102), (103, 102), 10**9) for number in range(4_700))
    plan = ReassignPlan(many)
    assert DATA_BYTES_MAX * 0.9 < len(encode_plan(plan)) <= DATA_BYTES_MAX
    return plan


def test_the_largest_plan_fits_into_its_record_whatever_its_moves_say() -> None:
    plan = largest()
    ends = (Status.SUPERSEDED, Status.REFUSED, Status.DONE)
    grown = replace(
        plan,
        moves=tuple(replace(move, status=ends[at % 3], why="w" * 300) for at, move in enumerate(plan.moves)),
        superseded=tuple(Superseded(at, 10**12, "b" * 120) for at in range(500)),
    )
    assert len(msgspec.json.encode(grown)) > 4 * MESSAGE_BYTES_MAX
    message = encode_plan(grown)
    assert len(message) <= MESSAGE_BYTES_MAX
    kept = msgspec.json.decode(message, type=ReassignPlan)
    assert [move.status for move in kept.moves] == [move.status for move in grown.moves]
    assert [bool(move.why) for move in kept.moves] == [at < WORDS_KEPT_MAX for at in range(len(kept.moves))]
    assert [note.move for note in kept.superseded] == list(range(WORDS_KEPT_MAX))
    assert shortened(kept) == kept


@in_world(1, 2, 3, 4)
async def test_a_plan_whose_words_grow_too_long_ends_as_any_other(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(w)
    plan = ReassignPlan(moves(), moves_max=3)
    monkeypatch.setattr(plan_checks, "WORDS_KEPT_MAX", 1)
    monkeypatch.setattr(reassign, "MESSAGE_BYTES_MAX", len(encode_plan(plan)) + 150)
    pid = await applied(w, plan)
    assert await alter(w, {("a", number): (3,) for number in range(3)}) == {}
    for _ in range(3):
        await caught_up(w)
        await asyncio.sleep(6)
        await w.settle()
    found = plan_of(record(w, pid))
    assert [move.status for move in found.moves[:3]] == [Status.SUPERSEDED] * 3
    assert [bool(move.why) for move in found.moves[:3]] == [True, False, False]
    w.forget()
    await asyncio.sleep(60)
    await w.settle()
    writes = [names for names in w.active.script.writes if any(f"{pid:010}" in name for name in names)]
    assert len(writes) <= PARTITIONS, "it does not write the same words again and again"
    assert (await finished(w, pid)).result == b"3 done, 3 superseded"


async def throttled_without_room(w: KafkaWorld, monkeypatch: pytest.MonkeyPatch) -> ReassignPlan:
    """A plan whose record has no room for its throttles."""
    await running(w)
    plan = ReassignPlan(moves(), rate_bytes_per_s=5_000)
    monkeypatch.setattr(reassign, "MESSAGE_BYTES_MAX", len(encode_plan(plan)) + 150)
    return plan


@in_world(1, 2, 3, 4)
async def test_throttles_that_fit_into_no_record_hold_the_plan_up_until_it_goes_without(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await throttled_without_room(w, monkeypatch)
    with pytest.raises(ViewRefused, match="bytes with its throttles, at most") as refused:
        encoded(plan, w.term.cluster)
    assert "several plans, or leave --throttle away" in refused.value.remedy
    pid = await applied(w, plan)
    assert f"regent reassign set {pid} --throttle 0 goes on without" in record(w, pid).error
    assert statuses(w, pid) == [Status.QUEUED] * PARTITIONS
    assert not plan_of(record(w, pid)).throttles
    command = msgspec.json.encode(PlanCommand(rate_bytes_per_s=0))
    assert await w.term.procedures.engine.command(pid, command)
    await asyncio.sleep(60)
    await w.settle()
    assert (await finished(w, pid)).state is State.SUCCESS


@in_world(1, 2, 3, 4)
async def test_a_plan_that_is_accepted_can_be_taken_back_with_its_throttles(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(w)
    plan = ReassignPlan(moves(), moves_max=100, broker_moves_max=100, rate_bytes_per_s=5_000)
    smallest = next(size for size in range(500, 9_000) if fits(w, plan, size, monkeypatch))
    monkeypatch.setattr(reassign, "MESSAGE_BYTES_MAX", smallest)
    pid = await applied(w, plan)
    await join(w, *[("a", number) for number in range(3)], ("b", 0), ("b", 1))
    await propagated(w)
    assert statuses(w, pid).count(Status.DONE) == PARTITIONS - 1
    await aborted(w, pid)
    await asyncio.sleep(6)
    await w.settle()
    assert "has" not in record(w, pid).error, record(w, pid).error
    assert (await finished(w, pid)).state is State.ROLLEDBACK


def fits(w: KafkaWorld, plan: ReassignPlan, size: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A daemon with this bound accepts the plan."""
    with monkeypatch.context() as changed:
        changed.setattr(reassign, "MESSAGE_BYTES_MAX", size)
        try:
            encoded(plan, w.term.cluster)
        except ViewRefused:
            return False
        return True


@in_world(1, 2, 3, 4)
async def test_a_plan_whose_throttles_do_not_fit_is_cancelled_and_leaves_nothing(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await throttled_without_room(w, monkeypatch)
    pid = await applied(w, plan)
    await commanded(w, pid, stop=True)
    await asyncio.sleep(60)
    await w.settle()
    assert record(w, pid).state is State.SUCCESS
    assert statuses(w, pid) == [Status.STOPPED] * PARTITIONS
