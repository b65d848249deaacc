"""A throttle between two bounds: it rises while replicas keep up, is halved when a live one lags, and never leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from state_machines.decisions.plan_rate import BEGINS, CALM_MS, STEP_MS, Pressure, RateBounds, next_rate, pressure
from state_machines.model.types import Assignment
from tests.kit.model import P, die, make_cluster

LOW, HIGH = 1_000_000, 50_000_000
CALM, TROUBLE = Pressure(), Pressure(2, 1, "t-0 on broker 3")


def played(*health: Pressure, rate: int = LOW, step_ms: int = STEP_MS) -> list[int]:
    """Returns the rates after judgements that are a step apart."""
    bounds, rates, now_ms = RateBounds(LOW, HIGH), [rate], 1_000_000
    for found in health:
        rate, bounds = next_rate(rate, bounds, found, now_ms)
        rates.append(rate)
        now_ms += step_ms
    return rates


def test_a_rate_rises_to_the_upper_bound_in_two_minutes_and_stays() -> None:
    rates = played(*[CALM] * 14)
    assert rates[:4] == [LOW, LOW, 1_500_000, 2_250_000], "the first look begins the calm"
    assert rates[-1] == rates[-2] == HIGH


def test_a_lagging_replica_halves_the_rate_down_to_the_lower_bound() -> None:
    assert played(*[TROUBLE] * 8, rate=HIGH)[:3] == [HIGH, HIGH // 2, HIGH // 4]
    assert played(*[TROUBLE] * 8, rate=HIGH)[-1] == LOW
    rate, bounds = next_rate(HIGH, RateBounds(LOW, HIGH), TROUBLE, 1_000_000)
    assert bounds.why == "halved: 2 with a live replica out of sync (t-0 on broker 3), 1 below min ISR"
    assert next_rate(rate, bounds, TROUBLE, 1_000_000 + STEP_MS - 1) == (rate, bounds), "one halving a step"


def test_a_rate_that_was_halved_rises_only_after_a_minute_of_calm() -> None:
    rate, bounds = next_rate(HIGH, RateBounds(LOW, HIGH), TROUBLE, 1_000_000)
    _, calm = next_rate(rate, bounds, CALM, 1_030_000)
    assert next_rate(rate, calm, CALM, 1_030_000 + CALM_MS - 1) == (rate, calm)
    higher, risen = next_rate(rate, calm, CALM, 1_030_000 + CALM_MS)
    assert (higher, risen.fell, risen.why) == (37_500_000, False, "raised: every live replica keeps up")
    _, again = next_rate(rate, calm, TROUBLE._replace(lagging=1), 1_031_000)
    assert again.calm_since_ms == 0, "trouble ends the calm"


def test_a_judgement_that_changes_nothing_returns_what_it_was_given() -> None:
    """So nothing is written for it."""
    bounds = RateBounds(LOW, HIGH, 1_000_000, calm_since_ms=900_000)
    for rate, found in ((HIGH, CALM), (LOW, CALM)):
        later_ms = 1_000_000 + (CALM_MS if rate == HIGH else 1)
        assert next_rate(rate, bounds, found, later_ms) == (rate, bounds)
    at_lowest = replace(bounds, calm_since_ms=0, fell=True)
    assert next_rate(LOW, at_lowest, TROUBLE, 2_000_000) == (LOW, at_lowest)


def test_other_bounds_bring_the_rate_between_them_at_once() -> None:
    rate, bounds = next_rate(HIGH, RateBounds(LOW, 2 * LOW, why=BEGINS), CALM, 5)
    assert (rate, bounds.why, bounds.changed_ms) == (2 * LOW, "its bounds were changed", 5)


@given(
    rate=st.integers(1, 2**40),
    low=st.integers(1, 2**40),
    more=st.integers(0, 2**40),
    looks=st.lists(st.tuples(st.booleans(), st.integers(-(10**6), 10**6)), max_size=30),
)
def test_a_rate_is_always_between_its_bounds_whatever_the_clock_does(
    rate: int, low: int, more: int, looks: list[tuple[bool, int]]
) -> None:
    bounds, now_ms = RateBounds(low, low + more), 10**9
    for lags, step_ms in looks:
        now_ms += step_ms
        rate, bounds = next_rate(rate, bounds, TROUBLE if lags else CALM, now_ms)
        assert low <= rate <= low + more


def test_only_live_replicas_that_no_move_adds_are_pressure() -> None:
    def judged(*partitions: P, brokers: tuple[int, ...] = (1, 2, 3, 4)) -> Pressure:
        cluster = make_cluster(*partitions, brokers=brokers)
        return pressure(cluster, range(len(partitions)), lambda _: 2)

    assert judged(P((1, 2, 3), leader=1)) == CALM
    assert judged(P((1, 2, 3), leader=1, isr=(1, 2))) == Pressure(1, 0, "t-0 on broker 3")
    assert judged(P((1, 2, 3), leader=1, isr=(1,)), P((1, 2), leader=1)) == Pressure(1, 1, "t-0 on broker 2")
    assert judged(P((1, 2, 3), leader=1, isr=(1, 2)), brokers=(1, 2, 4)) == CALM, "its broker is dead"
    moving = make_cluster(P((1, 2), leader=1), brokers=(1, 2, 3))
    moving.observe_assignments("t", 1, {0: Assignment((1, 2, 3), adding=(3,), removing=(2,))})
    assert pressure(moving, [0], lambda _: 1) == CALM, "a replica that is added has still to copy"
    offline = make_cluster(P((1, 2), leader=1, isr=(1,)), brokers=(1, 2))
    die(offline, 1)
    assert pressure(offline, [0], lambda _: 2) == CALM, "nobody can follow a leader that is gone"
    both = Pressure(1, 1, "a").plus(Pressure(2, 0, "b"))
    assert both == Pressure(3, 1, "a")
