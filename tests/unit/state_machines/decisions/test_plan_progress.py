"""Progress of a plan by the reports of destinations, replicas that nearly caught up, a throttle's two bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from state_machines.decisions import plan_pace
from state_machines.decisions.plan_pace import Copied, MovePace, Sample, Standing, destinations, paces, total
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status
from state_machines.decisions.throttling import (
    BEGINS,
    CALM_MS,
    LOOKS_MAX,
    PAUSES,
    STEP_MS,
    Copy,
    Looks,
    Pressure,
    RateBounds,
    Sizes,
    next_rate,
    pressure,
)
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicPartition
from tests.kit.kafka.model import P, die, make_cluster

GB = 10**9
T0 = TopicPartition("t", 0)
RUNS = Standing()


def moved(*statuses: Status, **more: Any) -> tuple[ReassignPlan, Cluster]:
    """A plan that moves partitions of topic t from 1, 2 to 3, 4, of 4 GB for both replicas; brokers 1 to 4 live."""
    cluster = make_cluster(*[P((1, 2), leader=1)] * len(statuses), brokers=(1, 2, 3, 4))
    begun = {p: Assignment((1, 2)).reassigned_to((3, 4)) for p, one in enumerate(statuses) if one is Status.BEGUN}
    done = {p: Assignment((3, 4)) for p, one in enumerate(statuses) if one is Status.DONE}
    topic = cluster.topics[cluster.topic_index["t"]]
    for p, assignment in {**begun, **done}.items():
        row = topic.rows[p]
        cluster.rows[row] = replace(cluster.rows[row], assignment=assignment)
        if assignment.moving:
            cluster.reassigning[row] = assignment
    moves = tuple(PlannedMove("t", p, (1, 2), (3, 4), 4 * GB, status) for p, status in enumerate(statuses))
    return ReassignPlan(moves, **more), cluster


def sample(at_s: float, *logs: tuple[int, int, int], unread: dict[int, str] | None = None, copied: int = 0) -> Sample:
    """Reports of partition t-0: broker, bytes and records behind."""
    return Sample(at_s, {(T0, b): Copied(size, lag) for b, size, lag in logs}, unread or {}, copied)


def one(plan: ReassignPlan, cluster: Cluster, now: Sample, before: Sample | None = None) -> MovePace:
    return paces(plan, cluster, now, before, RUNS)[0]


def test_only_brokers_that_receive_replicas_are_measured() -> None:
    plan, cluster = moved(Status.BEGUN, Status.QUEUED, Status.DONE, Status.BEGUN)
    both = [T0, TopicPartition("t", 3)]
    assert destinations(plan, cluster) == {3: both, 4: both}


def test_bytes_rate_and_time_to_go_are_those_of_all_new_replicas_together() -> None:
    plan, cluster = moved(Status.BEGUN)
    before, now = sample(10, (3, GB, 9), (4, 0, 99)), sample(20, (3, GB, 9), (4, GB, 70))
    found = one(plan, cluster, now, before)
    assert (found.copied_bytes, found.size_bytes, found.rate_bytes_per_s) == (2 * GB, 4 * GB, GB // 10)
    assert (found.remaining_s, found.records_behind) == (20, 70)


def test_a_replica_that_stays_and_is_not_in_sync_keeps_a_move_from_its_end() -> None:
    """Added replicas have all records, and nothing is stopped before the whole target is in sync."""
    cluster = make_cluster(P((2, 1), leader=2, isr=(2,)), brokers=(1, 2, 3))
    begun = Assignment((2, 1)).reassigned_to((3, 1))
    cluster.rows[0] = replace(cluster.rows[0], assignment=begun, isr=(2, 3))
    cluster.reassigning[0] = begun
    plan = ReassignPlan((PlannedMove("t", 0, (2, 1), (3, 1), GB, Status.BEGUN),))
    now = sample(10, (3, GB, 0))
    assert one(plan, cluster, now).why == "the replica on broker 1 is not in sync: it copies what it missed"
    die(cluster, 1)
    why = "broker 1, which keeps its replica, is not live: start it, or take the plan back"
    assert one(plan, cluster, now).why == why
    cluster.rows[0] = replace(cluster.rows[0], isr=(2, 3, 1))
    assert one(plan, cluster, now).why == plan_pace.IN_SYNC


def test_reports_that_are_missing_make_no_rate() -> None:
    """Bytes that were copied before would look like those of the last seconds."""
    plan, cluster = moved(Status.BEGUN)
    before, now = sample(10, unread={3: "timeout"}), sample(12, (3, GB, 9), (4, GB, 9), copied=2 * GB)
    found = total(plan, paces(plan, cluster, now, before, RUNS), now, before)
    assert (found.copied_bytes, found.rate_bytes_per_s, found.remaining_s) == (2 * GB, None, None)
    silent = {4: "connection refused"}
    before, now = (
        sample(10, (3, GB, 9), unread=silent, copied=GB),
        sample(12, (3, 2 * GB, 9), unread=silent, copied=2 * GB),
    )
    found = total(plan, paces(plan, cluster, now, before, RUNS), now, before)
    assert found.rate_bytes_per_s == GB // 2, "a destination that is down hides no rate of the others"


def test_a_plan_that_was_turned_since_the_last_look_has_no_rate() -> None:
    """Its copies go to other brokers now, and less of them is there: that is no rate of zero."""
    plan, cluster = moved(Status.BEGUN)
    before, now = sample(0.0, (3, 2 * GB, 9), copied=2 * GB), sample(10.0, (3, GB, 9), copied=GB)
    assert total(plan, paces(plan, cluster, now, before, RUNS), now, before).rate_bytes_per_s is None


def test_the_plan_counts_what_is_done_queued_and_under_way() -> None:
    plan, cluster = moved(Status.BEGUN, Status.DONE, Status.QUEUED, Status.SUPERSEDED)
    before, now = sample(0, (3, 0, 9), copied=4 * GB), sample(10, (3, GB, 9), (4, GB, 9), copied=6 * GB)
    found = total(plan, paces(plan, cluster, now, before, RUNS), now, before)
    assert (found.copied_bytes, found.size_bytes, found.sizes_unknown) == (6 * GB, 12 * GB, 0)
    assert (found.rate_bytes_per_s, found.remaining_s) == (GB // 5, 30)


def test_a_first_measurement_has_no_rate_and_an_unknown_size_no_time_to_go() -> None:
    plan, cluster = moved(Status.BEGUN)
    now = sample(0, (3, GB, 9), (4, GB, 9), copied=2 * GB)
    assert one(plan, cluster, now).rate_bytes_per_s is None
    unsized = replace(plan, moves=tuple(replace(move, bytes=0) for move in plan.moves))
    later = sample(10, (3, 2 * GB, 9), (4, 2 * GB, 9), copied=4 * GB)
    found = total(unsized, paces(unsized, cluster, later, now, RUNS), later, now)
    assert (found.sizes_unknown, found.rate_bytes_per_s, found.remaining_s) == (1, GB // 5, None)


def test_a_partition_that_grows_meanwhile_is_never_more_than_copied() -> None:
    plan, cluster = moved(Status.BEGUN)
    found = one(plan, cluster, sample(10, (3, 3 * GB, 5), (4, 3 * GB, 5)))
    assert (found.copied_bytes, found.size_bytes, found.why) == (6 * GB, 6 * GB, plan_pace.CLOSE_TO_END)


UNDER_WAY = [
    ("no log", sample(10, (4, GB, 9)), None, "broker 3 has no log of it yet: its fetcher has not started"),
    (
        "no report",
        sample(10, (4, GB, 9), unread={3: "no response within 5.0 s"}),
        None,
        "broker 3 sends no report: no response within 5.0 s",
    ),
    (
        "nothing yet",
        sample(10, (3, 0, 9), (4, GB, 9)),
        None,
        "broker 3 copies nothing: its fetcher has not started, or the leader does not respond: see the broker's log",
    ),
    (
        "stalled",
        sample(10, (3, 7, 9), (4, GB, 9)),
        sample(5, (3, 7, 9), (4, 7, 9)),
        "broker 3 copies nothing: its fetcher has not started, or the leader does not respond: see the broker's log",
    ),
    ("an empty log", sample(10, (3, 0, 0), (4, GB, 9)), None, ""),
    ("copies", sample(10, (3, 9, 9), (4, GB, 9)), sample(5, (3, 7, 9), (4, 7, 9)), ""),
]


@pytest.mark.parametrize(("name", "now", "before", "why"), UNDER_WAY, ids=[row[0] for row in UNDER_WAY])
def test_a_move_under_way_names_what_keeps_it_from_copying(
    name: str, now: Sample, before: Sample | None, why: str
) -> None:
    plan, cluster = moved(Status.BEGUN)
    assert one(plan, cluster, now, before).why == why


def test_a_throttle_is_named_with_the_moves_that_share_it() -> None:
    plan, cluster = moved(Status.BEGUN, Status.BEGUN, rate_bytes_per_s=5, rate_in_force=5)
    found = one(plan, cluster, sample(10, (3, 7, 9), (4, 9, 9)), sample(5, (3, 7, 9), (4, 7, 9)))
    assert "broker 3 copies nothing: the throttle of 5 bytes/s is shared by 2 moves" in found.why


def test_a_dead_destination_a_failed_disk_a_lost_leader_and_a_finished_copy_are_named() -> None:
    plan, cluster = moved(Status.BEGUN)
    row = cluster.find(*T0)
    assert row is not None
    now = sample(10, (3, 9, 9), (4, GB, 9))
    cluster.failed_dirs[row] = frozenset({4})
    assert "log directory of the replica on broker 4 has failed" in one(plan, cluster, now).why
    cluster.failed_dirs.clear()
    die(cluster, 3)
    assert one(plan, cluster, now).why == "broker 3 is not live: start it, or take the plan back"
    die(cluster, 1)
    assert one(plan, cluster, now).why.startswith(plan_pace.NO_LEADER)
    plan, cluster = moved(Status.BEGUN)
    cluster.rows[row] = replace(cluster.rows[row], isr=(1, 2, 3, 4))
    assert one(plan, cluster, now).why == plan_pace.IN_SYNC


QUEUED = [
    ({"paused": True}, RUNS, plan_pace.PLAN_PAUSED),
    ({"held": True}, RUNS, plan_pace.PLAN_HELD),
    ({}, Standing(paused=True), plan_pace.ALL_PAUSED),
    ({}, Standing(behind=True), plan_pace.BEHIND_PLAN),
    ({}, Standing(throttle_missing="no quorum"), "the throttle is not in force yet: no quorum"),
    ({}, RUNS, plan_pace.NEXT_WAVE),
    ({"moves_max": 1}, RUNS, "1 moves are under way, moves_max is 1"),
    ({"broker_moves_max": 1}, RUNS, "broker 3 receives 1 replicas, broker_moves_max is 1"),
    ({"bytes_max": 7 * GB}, RUNS, f"moves of {4 * GB} bytes are under way, bytes_max is {7 * GB}"),
    ({"bytes_max": 8 * GB}, RUNS, plan_pace.NEXT_WAVE),
    ({"broker_bytes_max": 3 * GB}, RUNS, f"broker 3 receives {2 * GB} bytes, broker_bytes_max is {3 * GB}"),
    ({"broker_bytes_max": 4 * GB}, RUNS, plan_pace.NEXT_WAVE),
]


@pytest.mark.parametrize(("plan_fields", "standing", "why"), QUEUED)
def test_a_move_that_has_not_begun_names_what_it_waits_for(
    plan_fields: dict[str, Any], standing: Standing, why: str
) -> None:
    plan, cluster = moved(Status.BEGUN, Status.QUEUED, **plan_fields)
    assert paces(plan, cluster, sample(0), None, standing)[1].why == why


def test_a_stored_reason_comes_first() -> None:
    plan, cluster = moved(Status.QUEUED)
    plan = replace(plan, moves=(replace(plan.moves[0], why="its broker is down"),), paused=True)
    assert one(plan, cluster, sample(0)).why == "its broker is down"


ORDERS, EVENTS = TopicPartition("orders", 0), TopicPartition("events", 0)
LEADER, FIRST, SECOND = 1, 3, 4
COPIES = (Copy(ORDERS, FIRST, LEADER), Copy(ORDERS, SECOND, LEADER), Copy(EVENTS, FIRST, LEADER))


def sizes(leader: int, *copied: int, events: int = 1_000_000) -> Sizes:
    """Returns what brokers report: the log at the leader, and what the copies have of it."""
    found = {(ORDERS, LEADER): leader, (EVENTS, LEADER): events}
    return found | {(name, broker): size for (name, broker, _), size in zip(COPIES, copied, strict=False)}


def looked(*looks: Sizes) -> set[Copy]:
    """Returns the copies that are near after these looks, at which all are throttled."""
    found = Looks()
    for one in looks:
        found = found.plus(COPIES, one)
    return found.near(COPIES)


def test_a_story_of_two_replicas_that_catch_up() -> None:
    """A replica gains 60 at most between two looks, so it is near once it lacks 120 at most."""
    story = [
        (sizes(500, 0, 0, 0), "", "one look tells nothing of gains"),
        (sizes(500, 60, 0, 0), "", "it lacks 440"),
        (sizes(500, 120, 30, 0), "", "it lacks 380"),
        (sizes(510, 180, 60, 0), "", "producers write"),
        (sizes(510, 389, 60, 0), "orders 3", "a fetch brought more, and shows how much one may bring"),
    ]
    looks = Looks()
    for found, near, why in story:
        looks = looks.plus(COPIES, found)
        assert " ".join(f"{one.name.topic} {one.broker}" for one in looks.near(COPIES)) == near, why


@pytest.mark.parametrize(("lacks", "near"), [(0, True), (119, True), (120, True), (121, False), (-5, True)])
def test_a_replica_is_near_that_lacks_what_two_pauses_may_bring(lacks: int, near: bool) -> None:
    assert PAUSES == 2
    now = sizes(1_000, 1_000 - lacks)
    before = {**now, (ORDERS, FIRST): 1_000 - lacks - 60}
    assert (COPIES[0] in looked(before, now)) is near


@pytest.mark.parametrize(("lacks", "near"), [(250, True), (251, False)])
def test_three_quarters_of_a_replica_are_throttled_however_much_a_fetch_brings(lacks: int, near: bool) -> None:
    found = looked(sizes(1_000, 1_000 - lacks, 0, 0), sizes(1_000, 1_000 - lacks, 0, 500_000))
    assert (COPIES[0] in found) is near


def test_the_most_that_any_replica_of_the_broker_gained_counts() -> None:
    """Turns are taken: a replica that gains nothing now may be the next one."""
    assert looked(sizes(1_000, 900, 900, 0), sizes(1_000, 900, 900, 50)) == {COPIES[0]}, "broker 4 gained nothing"


def test_a_gain_is_forgotten_after_some_looks() -> None:
    looks = Looks().plus(COPIES, sizes(1_000, 0)).plus(COPIES, sizes(1_000, 800))
    for _ in range(LOOKS_MAX - 1):
        looks = looks.plus(COPIES, sizes(1_000, 800))
    assert looks.near(COPIES) == {COPIES[0]}
    assert looks.plus(COPIES, sizes(1_000, 800)).near(COPIES) == set()


@pytest.mark.parametrize("missing", [LEADER, FIRST])
def test_a_replica_of_which_a_size_is_unknown_is_never_near(missing: int) -> None:
    def known(size: int) -> Sizes:
        return {key: value for key, value in sizes(1_000, size).items() if key[1] != missing}

    assert looked(known(900), known(990)) == set()


def test_gains_of_copies_that_are_not_throttled_count_for_nothing() -> None:
    looks = Looks().plus(COPIES, sizes(1_000, 0, 0, 0))
    looks = looks.plus(COPIES[1:], sizes(1_000, 1_000, 10, 10))
    assert looks.gained[-1] == {FIRST: 10, SECOND: 10}


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
