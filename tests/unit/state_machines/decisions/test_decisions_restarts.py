"""Brokers that stop, go away or are restarted: tables of every cause, and restarts that are carried out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from state_machines.decisions import hindrances as kinds
from state_machines.decisions.broker_change import broker_death, broker_return, controlled_shutdown
from state_machines.decisions.hindrances import (
    EXAMPLES_MAX,
    MEANINGS,
    REMEDIES,
    WAITED_FOR_MAX,
    Cause,
    Judgement,
    RemoveCause,
    StopCause,
    Tally,
)
from state_machines.decisions.restarts import RestartPlan, restart_next
from state_machines.decisions.stopping import can_remove, can_stop, stopping
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import UNKNOWN, MinIsr, under
from state_machines.model.types import Assignment, Leadership, PartitionState
from state_machines.portions import at_once
from tests.kit.kafka.model import EPOCH, P, broker, carried_out, come_back, die, make_cluster, topic, topic_gone

ONE, TWO, THREE = (MinIsr(least, {}) for least in (1, 2, 3))
PERMANENT = (StopCause.SINGLE_REPLICA, StopCause.BELOW_MIN_ISR, StopCause.NO_LEADER)


def causes(judged: Judgement) -> set[Cause]:
    return {one.cause for one in judged.hindrances}


def racked(racks: Mapping[int, str | None], *partitions: P) -> Cluster:
    cluster = make_cluster(*partitions, brokers=racks)
    cluster.observe_brokers({b: broker(b, 100, rack) for b, rack in racks.items()})
    return cluster


def epochs(cluster: Cluster) -> dict[int, int]:
    return {b: known.epoch for b, known in cluster.brokers.items()}


def reassigning(cluster: Cluster, i: int, target: tuple[int, ...]) -> None:
    """Observes that the topic znode moves a partition."""
    row = cluster.rows[i]
    moved = row.assignment.reassigned_to(target)
    cluster.observe_assignments("t", 1, {row.partition: moved})


def judged(
    members: tuple[int, ...], live: frozenset[int], min_isr: MinIsr, moved: bool, stopped: tuple[int, ...]
) -> Judgement:
    cluster = make_cluster(P((1, 2, 3), leader=1, isr=members), brokers=(1, 2, 3, 4))
    if moved:
        reassigning(cluster, 0, (1, 2, 4))
    for b in {2, 3} - live:
        cluster.observe_shutting_down(b)
    return can_stop(cluster, stopped, min_isr)


CASES = list(
    product(
        [(1,), (1, 2), (1, 3), (1, 2, 3)],
        [frozenset({2, 3}), frozenset({2}), frozenset({3}), frozenset[int]()],
        [UNKNOWN, ONE, TWO, THREE, MinIsr(None, {"t": 2}), MinIsr(1, {"t": 2})],
        [False, True],
        [(1,), (2,), (1, 2), (1, 2, 3)],
    )
)


@pytest.mark.parametrize("stopped", sorted({case[4] for case in CASES}))
def test_the_causes_are_those_of_the_replicas_that_stay(stopped: tuple[int, ...]) -> None:
    """Judges the full product of ISR, live members, min ISR, reassignment and stopped brokers."""
    for members, live, min_isr, moved, _ in (case for case in CASES if case[4] == stopped):
        left = {b for b in members if b not in stopped and (b == 1 or b in live)}
        lost = set(members) & set(stopped)
        least = min_isr.of("t")
        expected: set[Cause] = {StopCause.REASSIGNING} if moved else set()
        if {1, 2, 3} - set(members) - set(stopped):
            expected.add(StopCause.UNDER_REPLICATED)
        if lost and not left:
            expected.add(StopCause.NO_LEADER)
        elif lost and least is None:
            expected.add(StopCause.MIN_ISR_UNKNOWN)
        elif lost and least is not None and len(left) < min(least, 3):
            expected.add(StopCause.BELOW_MIN_ISR)
        found = judged(members, live, min_isr, moved, stopped)
        assert causes(found) == expected, (members, live, min_isr, moved)
        assert found.allowed == (not expected)
        assert found.partitions == 1


@pytest.mark.parametrize("accepted", StopCause)
def test_an_accepted_cause_hinders_nothing_and_the_others_do(accepted: StopCause) -> None:
    cluster = make_cluster(P((1,), leader=1), P((1, 2), leader=1), P((1, 2, 3), leader=1, isr=(1, 2)))
    every = can_stop(cluster, [1, 9], TWO)
    expected = {
        StopCause.SINGLE_REPLICA,
        StopCause.BELOW_MIN_ISR,
        StopCause.UNDER_REPLICATED,
        StopCause.UNKNOWN_BROKER,
    }
    assert causes(every) == expected
    assert causes(can_stop(cluster, [1, 9], TWO, [accepted])) == expected - {accepted}
    assert can_stop(cluster, [1, 9], TWO, list(StopCause)).allowed


def test_a_set_is_judged_together() -> None:
    cluster = make_cluster(P((1, 2), leader=1), P((2, 3), leader=2))
    assert can_stop(cluster, [1], ONE).allowed
    assert can_stop(cluster, [2], ONE).allowed
    found = can_stop(cluster, [2, 1], ONE)
    assert [(one.cause, one.count, one.examples) for one in found.hindrances] == [(StopCause.NO_LEADER, 1, (("t", 0),))]
    assert (found.brokers, found.partitions) == ((1, 2), 2), "a partition on both brokers counts once"
    assert can_stop(cluster, [1, 3], ONE).allowed


def test_a_broker_that_is_behind_may_stop_because_no_copy_in_sync_goes_with_it() -> None:
    cluster = make_cluster(P((1, 2, 3), leader=1, isr=(1, 2)))
    assert can_stop(cluster, [3], TWO).allowed
    refused = can_stop(cluster, [2], ONE)
    assert [(one.cause, one.waits_for) for one in refused.hindrances] == [(StopCause.UNDER_REPLICATED, (3,))]


def test_an_offline_partition_waits_for_the_brokers_of_its_isr() -> None:
    cluster = make_cluster(P((1, 2, 3), leader=2, isr=(2, 3)))
    die(cluster, 2, 3)
    carried_out(cluster, partial(broker_death, dead=[2, 3]))
    [offline] = [one for one in can_stop(cluster, [1], ONE).hindrances if one.cause is StopCause.OFFLINE]
    assert set(offline.waits_for) == set(cluster.rows[0].isr)
    assert offline.waits_for


def test_a_failed_log_directory_is_no_copy() -> None:
    cluster = make_cluster(P((1, 2), leader=1))
    assert can_stop(cluster, [1], ONE).allowed
    cluster.observe_failed_dirs(2, [0])
    assert causes(can_stop(cluster, [1], ONE)) == {StopCause.NO_LEADER}


def test_a_broker_that_obeys_a_higher_epoch_is_no_leader() -> None:
    cluster = make_cluster(P((1, 2), leader=1))
    cluster.observe_outranked(2, 100)
    assert causes(can_stop(cluster, [1], ONE)) == {StopCause.NO_LEADER}
    assert can_stop(cluster, [2], ONE).allowed


def test_topics_that_are_being_deleted_hinder_no_stop() -> None:
    cluster = make_cluster(P((1,), leader=1))
    assert not can_stop(cluster, [1], ONE).allowed
    cluster.observe_deletions(["t"])
    found = can_stop(cluster, [1], ONE)
    assert (found.allowed, found.partitions) == (True, 0)
    assert causes(can_remove(cluster, [1])) == {RemoveCause.ASSIGNED}, "its logs are there until it is gone"
    topic_gone(cluster, "t")
    assert can_remove(cluster, [1]).allowed


def test_brokers_that_are_not_live_are_named_and_only_unknown_ones_hinder() -> None:
    cluster = make_cluster(P((1, 2, 3, 4), leader=1, isr=(1, 2)), brokers=(1, 2, 3))
    cluster.observe_shutting_down(3)
    found = can_stop(cluster, [3, 4, 9], ONE)
    assert (found.unregistered, found.shutting_down, found.unknown) == ((4,), (3,), (9,))
    assert [(one.cause, one.count) for one in found.hindrances] == [(StopCause.UNKNOWN_BROKER, 1)]
    assert can_stop(cluster, [3, 4], ONE).allowed
    assert can_stop(cluster, [2, 3, 4], ONE).allowed, "what is missing is in the set"


@pytest.mark.parametrize("partitions", [EXAMPLES_MAX, EXAMPLES_MAX + 1])
def test_examples_are_the_first_ones_and_bounded(partitions: int) -> None:
    cluster = make_cluster(*[P((1,), leader=1)] * partitions)
    [found] = can_stop(cluster, [1], ONE).hindrances
    assert found.count == partitions
    assert [name.partition for name in found.examples] == list(range(EXAMPLES_MAX))


@pytest.mark.parametrize("others", [WAITED_FOR_MAX, WAITED_FOR_MAX + 1])
def test_the_brokers_to_wait_for_are_bounded(others: int) -> None:
    tally = Tally()
    for b in range(others):
        tally.add(StopCause.UNDER_REPLICATED, 0, (b,))
    [found] = tally.hindrances(make_cluster(P((1,), leader=1)))
    assert found.waits_for == tuple(range(WAITED_FOR_MAX))
    assert tally.total == others


@pytest.mark.parametrize("cause", [*StopCause, *RemoveCause])
def test_every_cause_has_a_meaning_and_a_remedy(cause: Cause) -> None:
    assert MEANINGS[cause]
    assert REMEDIES[cause]


@pytest.mark.parametrize(("rows", "turns"), [(4, 0), (5, 1), (6, 1), (10, 2)])
def test_a_turn_has_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch, rows: int, turns: int) -> None:
    monkeypatch.setattr("state_machines.decisions.stopping.ROWS_PER_TURN", 5)
    cluster = make_cluster(*[P((1, 2), leader=1)] * rows)
    assert len(list(stopping(cluster, [1], ONE))) == turns
    assert at_once(stopping(cluster, [1], ONE)) == can_stop(cluster, [1], ONE)
    assert kinds.ROWS_PER_TURN == 5_000


def test_a_judgement_visits_partitions_of_its_brokers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = make_cluster(*[P((1, 2), leader=1)] * 3, *[P((3, 4), leader=3)] * 50, brokers=range(1, 5))
    assert can_stop(cluster, [1], ONE).partitions == 3
    assert can_stop(cluster, [1, 2], ONE).partitions == 3
    assert can_stop(cluster, [1, 3], ONE).partitions == 53


# -- removal


def test_a_broker_may_be_removed_once_nothing_is_left_on_it() -> None:
    cluster = make_cluster(P((1, 2), leader=1), P((2, 3), leader=2), brokers=(1, 2, 3, 4))
    found = can_remove(cluster, [1, 3])
    assert [(one.cause, one.count) for one in found.hindrances] == [(RemoveCause.ASSIGNED, 2)]
    assert [one.count for one in can_remove(cluster, [1, 2]).hindrances] == [2], "a partition on both counts once"
    assert can_remove(cluster, [4]).allowed
    assert can_remove(cluster, [9]) == Judgement((9,), 0, (), unknown=(9,))


def test_a_controller_may_not_be_removed() -> None:
    cluster = make_cluster(brokers=(1, 2))
    assert causes(can_remove(cluster, [1], controller=1)) == {RemoveCause.CONTROLLER}
    assert can_remove(cluster, [1], controller=2).allowed


def test_a_target_of_a_reassignment_may_not_be_removed_before_and_after_its_first_step() -> None:
    cluster = make_cluster(P((1, 2), leader=1), brokers=(1, 2, 3))
    reassigning(cluster, 0, (2, 3))
    assert causes(can_remove(cluster, [3])) == {RemoveCause.TARGET}
    assert causes(can_remove(cluster, [1])) == {RemoveCause.ASSIGNED}
    begun = Cluster(EPOCH)
    begun.observe_brokers(cluster.brokers)
    moving = Assignment((2, 3, 1), adding=(3,), removing=(1,))
    rows = begun.observe_topic(replace(topic("t", []), partitions={0: moving}))
    begun.load_leadership(rows, [Leadership(1, 0, (1, 2), 6, 0)])
    assert causes(can_remove(begun, [3])) == {RemoveCause.TARGET}
    assert causes(can_remove(begun, [1, 3])) == {RemoveCause.ASSIGNED, RemoveCause.TARGET}
    assert causes(can_stop(begun, [1], ONE)) == {StopCause.REASSIGNING}


# -- rolling restarts

THREE_RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
SPREAD = [P((1, 2, 3), leader=1), P((4, 5, 6), leader=4), P((1, 5, 6), leader=1)]


def test_a_batch_is_of_one_rack_as_many_as_may_stop_together() -> None:
    cluster = racked(THREE_RACKS, *SPREAD)
    plan = restart_next(cluster, epochs(cluster), TWO)
    assert (plan.batch, plan.rack, plan.pending) == ((1, 4), "a", (1, 2, 3, 4, 5, 6))
    assert restart_next(cluster, epochs(cluster), TWO, batch_max=1).batch == (1,)
    assert restart_next(cluster, epochs(cluster), TWO, batch_max=2).batch == (1, 4)


def test_brokers_of_one_rack_that_may_not_stop_together_are_two_batches() -> None:
    cluster = racked({1: "a", 2: "a", 3: "b", 4: "a"}, P((1, 2), leader=1), P((3, 4), leader=3))
    since = epochs(cluster)
    assert restart_next(cluster, since, ONE).batch == (1, 4)
    restarted(cluster, (1, 4), 200)
    recover(cluster)
    assert restart_next(cluster, since, ONE).batch == (2,)


def test_a_broker_without_a_rack_is_taken_alone_after_the_racks() -> None:
    cluster = racked({1: None, 2: None, 3: "z", 4: "z"}, P((1, 3), leader=1))
    assert restart_next(cluster, epochs(cluster), ONE).batch == (3, 4)
    assert restart_next(cluster, {1: 100, 2: 100}, ONE).batch == (1,)


def test_a_rack_that_was_begun_comes_first() -> None:
    cluster = racked(THREE_RACKS, *SPREAD)
    since = epochs(cluster)
    cluster.observe_brokers({**cluster.brokers, 3: broker(3, 200, "c")})
    plan = restart_next(cluster, since, TWO)
    assert (plan.batch, plan.rack, plan.restarted) == ((6,), "c", (3,))


def test_the_controller_comes_last_and_alone() -> None:
    cluster = racked({1: "a", 4: "a", 2: "b"}, P((1, 2), leader=1))
    since = epochs(cluster)
    assert restart_next(cluster, since, ONE, controller=1).batch == (4,)
    assert restart_next(cluster, {1: 100, 2: 100}, ONE, controller=1).batch == (2,)
    assert restart_next(cluster, {1: 100}, ONE, controller=1).batch == (1,)


def test_no_batch_is_given_while_a_broker_is_down_or_shuts_down() -> None:
    cluster = racked(THREE_RACKS, *SPREAD)
    since = epochs(cluster)
    cluster.observe_shutting_down(4)
    assert restart_next(cluster, since, TWO) == RestartPlan((), None, (1, 2, 3, 5, 6), (), (4,))
    die(cluster, 4)
    plan = restart_next(cluster, since, TWO)
    assert (plan.batch, plan.down, plan.done) == ((), (4,), False)
    cluster.observe_brokers({**cluster.brokers, 4: broker(4, 200, "a")})
    plan = restart_next(cluster, since, TWO)
    assert (plan.restarted, plan.down, plan.batch) == ((4,), (), (1,))


def test_it_ends_when_every_broker_is_back_with_another_epoch() -> None:
    cluster = racked({1: "a", 2: "b"})
    since = epochs(cluster)
    come_back(cluster, 1)
    assert not restart_next(cluster, since, ONE).done
    come_back(cluster, 2)
    assert restart_next(cluster, since, ONE) == RestartPlan((), None, (), (1, 2), ())
    assert restart_next(cluster, since, ONE).done


def test_where_no_broker_may_stop_the_nearest_is_named_with_its_causes() -> None:
    cluster = racked({1: "a", 2: "b", 3: "c"}, P((1, 2), leader=1), P((1, 3), leader=1), P((2, 3), leader=2))
    plan = restart_next(cluster, epochs(cluster), TWO)
    assert (plan.batch, plan.nearest, plan.done) == ((), 1, False)
    [found] = plan.hindrances
    assert (found.cause, found.count) == (StopCause.BELOW_MIN_ISR, 2)
    lagging = racked({1: "a", 2: "b", 3: "c"}, P((1, 2, 3), leader=1, isr=(1, 2)), P((1, 2), leader=1))
    lagging.observe_shutting_down(3)
    plan = restart_next(lagging, {1: 100, 2: 100}, ONE)
    assert (plan.nearest, [one.waits_for for one in plan.hindrances]) == (1, [(3,)])


@pytest.mark.parametrize("batch_max", [-1, 0])
def test_a_batch_without_brokers_is_refused_by_its_bound(batch_max: int) -> None:
    with pytest.raises(ValueError, match=f"batch_max is {batch_max}: give at least 1 broker"):
        restart_next(make_cluster(), {}, ONE, batch_max)


# -- carried out

IDS = (1, 2, 3, 4, 5)


@st.composite
def partitions(draw: st.DrawFn) -> P:
    """Draws partitions that mostly have several replicas, all in sync: otherwise hardly any stop is allowed."""
    size = draw(st.sampled_from([3, 3, 2, 4, 1]))
    replicas = tuple(draw(st.permutations(IDS))[:size])
    some = st.lists(st.sampled_from(replicas), min_size=1, unique=True).map(tuple)
    isr = draw(st.one_of(st.just(replicas), st.just(replicas), some))
    return P(replicas, leader=draw(st.sampled_from(isr)), isr=isr)


MIN_ISRS = st.sampled_from([ONE, TWO, THREE])


def stop(cluster: Cluster, brokers: Iterable[int]) -> None:
    """Shuts brokers down one after the other as the daemon does, then ends their sessions."""
    for b in brokers:
        cluster.observe_shutting_down(b)
        carried_out(cluster, partial(controlled_shutdown, broker=b))
    die(cluster, *brokers)
    carried_out(cluster, partial(broker_death, dead=sorted(brokers)))


def recover(cluster: Cluster) -> None:
    """Enters ISRs as leaders write them once all live replicas have caught up."""
    for i, row in enumerate(cluster.rows):
        if row.state is PartitionState.ONLINE:
            isr = tuple(r for r in row.assignment.replicas if r in cluster.live)
            cluster.observe_leadership(
                i, Leadership(row.leader, row.leader_epoch, isr, EPOCH, row.version + 1, row.recovering)
            )


def restarted(cluster: Cluster, brokers: Collection[int], epoch: int) -> None:
    racks = {b: cluster.brokers[b].rack for b in brokers}
    stop(cluster, brokers)
    cluster.observe_brokers({**cluster.brokers, **{b: broker(b, epoch, rack) for b, rack in racks.items()}})
    carried_out(cluster, partial(broker_return, returned=sorted(brokers)))


@settings(max_examples=500)
@given(
    found=st.lists(partitions(), min_size=1, max_size=3),
    dead=st.sets(st.sampled_from(IDS), max_size=1),
    leaving=st.sets(st.sampled_from(IDS), max_size=1),
    decided=st.booleans(),
    stopped=st.sets(st.sampled_from(IDS), min_size=1, max_size=2),
    min_isr=MIN_ISRS,
)
def test_an_allowed_stop_takes_no_partition_offline_nor_below_min_isr(
    found: list[P], dead: set[int], leaving: set[int], decided: bool, stopped: set[int], min_isr: MinIsr
) -> None:
    """``decided``: the shutdown of a leaving broker was carried out; otherwise it is still in ISRs."""
    cluster = make_cluster(*found, brokers=IDS)
    die(cluster, *dead)
    carried_out(cluster, partial(broker_death, dead=sorted(dead)))
    for b in leaving - dead:
        cluster.observe_shutting_down(b)
        if decided:
            carried_out(cluster, partial(controlled_shutdown, broker=b))
    before, present = list(cluster.rows), stopped & cluster.brokers.keys()
    if can_stop(cluster, stopped, min_isr).allowed:
        stop(cluster, sorted(present))
        for was, row in zip(before, cluster.rows, strict=True):
            if not present.isdisjoint(was.isr):
                assert row.state is PartitionState.ONLINE
                assert not under(row, min_isr.of("t"))
                assert row.leader in cluster.live or not decided
            elif was.state is PartitionState.ONLINE:
                assert (row.state, row.leader) == (was.state, was.leader), "no in-sync copy was lost"


@settings(max_examples=150)
@given(
    found=st.lists(partitions(), min_size=1, max_size=4),
    racks=st.lists(st.sampled_from(["a", "b", None]), min_size=len(IDS), max_size=len(IDS)),
    min_isr=MIN_ISRS,
    batch_max=st.integers(1, 3),
    accept=st.booleans(),
)
def test_a_rolling_restart_ends_on_any_cluster(
    found: list[P], racks: list[str | None], min_isr: MinIsr, batch_max: int, accept: bool
) -> None:
    cluster = racked(dict(zip(IDS, racks, strict=True)), *found)
    since = epochs(cluster)
    accepted = PERMANENT if accept else ()
    seen: list[int] = []
    recover(cluster)
    plan = restart_next(cluster, since, min_isr, batch_max, accepted)
    while plan.batch:
        assert len(plan.batch) <= batch_max
        assert {cluster.brokers[b].rack for b in plan.batch} == {plan.rack}
        assert can_stop(cluster, plan.batch, min_isr, accepted).allowed
        assert plan == restart_next(cluster, since, min_isr, batch_max, accepted)
        seen += plan.batch
        assert len(seen) == len(set(seen)), "no broker is restarted twice"
        restarted(cluster, plan.batch, 200 + len(seen))
        recover(cluster)
        plan = restart_next(cluster, since, min_isr, batch_max, accepted)
    if plan.done:
        assert sorted(seen) == list(IDS)
    else:
        assert not accept
        assert {one.cause for one in plan.hindrances} <= set(PERMANENT), "only what no wait can change is left"
        for b in plan.pending:
            assert not can_stop(cluster, [b], min_isr).allowed
