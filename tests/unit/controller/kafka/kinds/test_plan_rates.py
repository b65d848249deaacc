"""A plan's throttle between two bounds, in the controller's world: what brokers get, failovers, and operators."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from controller.kafka.kinds import throttle_looks
from controller.kafka.kinds.reassign import PlanCommand, encode_plan, plan_of
from controller.operator.cluster_health import live_procedures
from controller.operator.procedure_items import planned_item
from controller.operator.throttles import _item
from controller.procedures.requests import Refused
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.decisions.plan_rate import BEGINS, CALM_MS, SET, RateBounds
from tests.kit.controller_world import World, in_world
from tests.unit.controller.operator.test_reassign_plan import (
    RATES,
    applied,
    commanded,
    config,
    finished,
    moves,
    record,
    running,
)

LOW, HIGH = 1_000_000, 4_000_000
PACED = ReassignPlan(moves(), moves_max=1, rate_bytes_per_s=LOW, bounds=RateBounds(LOW, HIGH))


async def lasts(w: World, seconds: float) -> None:
    """Lets time pass in which the plan looks at the cluster."""
    for _ in range(int(seconds // throttle_looks.JUDGEMENT_S)):
        await asyncio.sleep(throttle_looks.JUDGEMENT_S)
        await w.settle()


def rate(w: World, pid: int) -> int:
    """Returns the rate of the plan, which brokers have in force."""
    plan = plan_of(record(w, pid))
    assert plan.rate_in_force == plan.rate_bytes_per_s
    assert {config(w, "brokers", str(broker))[RATES[0]] for broker in (1, 2, 3, 4)} == {str(plan.rate_in_force)}
    return plan.rate_bytes_per_s


def why(w: World, pid: int) -> str:
    bounds = plan_of(record(w, pid)).bounds
    assert bounds is not None
    return bounds.why


async def lags(w: World) -> None:
    """A live replica of a partition that does not move falls out of the ISR."""
    await w.alter_partition(1, w.proposal("b", 2, isr=(1,)))
    await w.settle()


@in_world(1, 2, 3, 4)
async def test_the_rate_rises_while_replicas_keep_up_and_is_halved_when_one_does_not(w: World) -> None:
    await running(w)
    pid = await applied(w, PACED)
    assert (rate(w, pid), why(w, pid)) == (LOW, BEGINS)
    await lasts(w, 120)
    assert (rate(w, pid), why(w, pid)) == (HIGH, "raised: every live replica keeps up")
    await lags(w)
    await lasts(w, 15)
    assert rate(w, pid) < HIGH
    assert why(w, pid).startswith("halved: 1 with a live replica out of sync (b-2 on broker 2)")
    await lasts(w, 60)
    assert rate(w, pid) == LOW
    [told] = live_procedures(w.term, record(w, pid).submitted_ms)
    assert "throttle 1.0 MB/s, between 1.0 MB and 4.0 MB: halved: 1 with a live" in told
    item = _item(record(w, pid), {}, [])
    assert (item.rate_bytes_per_s_min, item.rate_bytes_per_s_max, item.rate_why) == (LOW, HIGH, why(w, pid))
    await w.alter_partition(1, w.proposal("b", 2, isr=(1, 2)))
    await w.settle()
    await lasts(w, CALM_MS / 1_000 + 20)
    assert rate(w, pid) > LOW, "a minute of calm"
    assert (await finished(w, pid)).state.name == "SUCCESS"
    assert RATES[0] not in config(w, "brokers", "1")


@in_world(1, 2, 3, 4)
async def test_the_next_daemon_goes_on_with_the_rate_and_its_cause(w: World) -> None:
    await running(w)
    pid = await applied(w, PACED)
    await lasts(w, 60)
    before = rate(w, pid), why(w, pid)
    assert before[0] > LOW
    await w.active.crash()
    await w.begin_term()
    await w.settle()
    assert (rate(w, pid), why(w, pid)) == before
    await lasts(w, 60)
    assert rate(w, pid) == HIGH


@in_world(1, 2, 3, 4)
async def test_a_change_of_the_rate_is_in_the_record_before_a_line_tells_of_it(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(w)
    pid = await applied(w, PACED)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(
        throttle_looks.log, "info", lambda *_: told.append((_[3], plan_of(record(w, pid)).rate_bytes_per_s))
    )
    await lasts(w, 120)
    assert [rate for rate, _ in told] == [1_500_000, 2_250_000, 3_375_000, HIGH]
    assert all(rate == stored for rate, stored in told), told


@in_world(1, 2, 3, 4)
async def test_a_plan_that_stands_calm_at_its_bound_is_not_written_again(w: World) -> None:
    await running(w)
    pid = await applied(w, PACED)
    await lasts(w, 120)
    at_ms = record(w, pid).updated_ms
    await lasts(w, 60)
    assert record(w, pid).updated_ms == at_ms


@in_world(1, 2, 3, 4)
async def test_an_operator_changes_the_bounds_and_a_single_rate_ends_them(w: World) -> None:
    await running(w)
    pid = await applied(w, PACED)
    await lasts(w, 120)
    await commanded(w, pid, rate_bytes_per_s=500_000, rate_bytes_per_s_max=2_000_000)
    assert (rate(w, pid), why(w, pid)) == (2_000_000, SET)
    await commanded(w, pid, moves_max=2)
    assert why(w, pid) == SET, "another change leaves the bounds"
    await commanded(w, pid, rate_bytes_per_s=700_000)
    await lasts(w, 60)
    assert (rate(w, pid), plan_of(record(w, pid)).bounds) == (700_000, None)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (None, 5, "rate_bytes_per_s_max is 5 without rate_bytes_per_s: give the lower bound"),
        (0, 5, "rate_bytes_per_s_max is 5 without rate_bytes_per_s"),
        (7, 5, "rate_bytes_per_s_max is 5: give 7 or more"),
    ],
)
@in_world(1, 2, 3, 4)
async def test_bounds_that_are_none_are_refused(w: World, low: int | None, high: int, said: str) -> None:
    await running(w)
    pid = await applied(w, PACED)
    data = msgspec.json.encode(PlanCommand(rate_bytes_per_s=low, rate_bytes_per_s_max=high))
    with pytest.raises(Refused, match=said):
        await w.term.procedures.engine.command(pid, data)


def test_a_dry_run_names_the_times_at_both_bounds_and_a_plan_without_bounds_is_stored_as_before() -> None:
    sized = tuple(msgspec.structs.replace(move, bytes=8_000_000) for move in PACED.moves)
    found = planned_item(msgspec.structs.replace(PACED, moves=sized))
    assert found.progress.endswith("12 s to 48 s between the bounds of the throttle")
    assert b"bounds" not in encode_plan(msgspec.structs.replace(PACED, bounds=None))
