"""Rules of every plan, over random clusters and goals, and over one of 100,000 partitions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from state_machines.model.types import Assignment
from state_machines.planning.cluster_view import ClusterView
from state_machines.planning.drafting import in_order_of
from state_machines.planning.goals import Add, Decommission, Goal, Rebalance, ReplicationFactor, RestoreRacks
from state_machines.planning.json_files import decode_plan, encode_plan
from state_machines.planning.plan import Plan
from state_machines.planning.planner import plan
from tests.kit.kafka.planning import (
    DAEMON,
    assigned,
    counts_of,
    goals,
    hosts_of,
    make_view,
    moved,
    rack_of,
    racks_of,
    views,
)

Case = tuple[ClusterView, Goal, Plan]
EXAMPLES = settings(max_examples=30)


def planned(*kinds: type) -> st.SearchStrategy[Case]:
    """Draws clusters and goals of any of ``kinds`` (none: all of them), with their plan."""
    drawn = views().flatmap(lambda view: st.tuples(st.just(view), goals(view, *kinds)))
    return drawn.map(lambda pair: (*pair, plan(*pair)))


def scope_of(view: ClusterView, goal: Goal) -> dict[str, tuple[int, ...]]:
    """Returns the replicas of those partitions in the goal's topics that are free to move, by name."""
    topics = getattr(goal, "topics", None)
    return {
        f"{t}-{p}": found.replicas
        for (t, p), found in assigned(view).items()
        if (topics is None or t in topics) and t not in view.deleting and not found.moving
    }


def refused(result: Plan) -> set[str]:
    return {found.subject for found in result.refused}


def is_faulty(result: Plan) -> bool:
    """Checks whether the goal itself was refused, and not single partitions."""
    return any(subject.startswith(("broker ", "racks")) for subject in refused(result))


@EXAMPLES
@given(planned())
def test_each_move_is_from_what_the_cluster_has_to_something_else_once_and_in_order(case: Case) -> None:
    view, _, result = case
    names = [(move.topic, move.partition) for move in result.moves]
    assert names == sorted(set(names))
    for move in result.moves:
        found = assigned(view)[move.topic, move.partition]
        assert found.replicas == move.origin != move.target
        assert len(set(move.target)) == len(move.target) > 0
        assert not found.moving
        assert move.topic not in view.deleting


@EXAMPLES
@given(planned())
def test_no_replica_is_placed_on_a_dead_cordoned_unknown_or_leaving_broker_or_a_daemon(case: Case) -> None:
    view, goal, result = case
    placed = {b for move in result.moves for b in move.added}
    assert placed <= hosts_of(view, goal)
    assert DAEMON not in placed


@EXAMPLES
@given(planned())
def test_replicas_that_stay_keep_their_order_but_for_the_first(case: Case) -> None:
    for move in case[2].moves:
        stays = [b for b in move.target[1:] if b in move.origin]
        assert stays == [b for b in move.origin if b in stays]


@pytest.mark.parametrize(
    ("target", "drawn"),
    [((3, 2, 1, 4), (3, 1, 2, 4)), ((3, 2, 9, 1), (3, 1, 9, 2)), ((9, 8), (9, 8)), ((2, 9), (2, 9)), ((1,), (1,))],
)
def test_a_first_replica_that_changes_twice_leaves_the_others_in_order(
    target: tuple[int, ...], drawn: tuple[int, ...]
) -> None:
    assert in_order_of((1, 2, 3, 4), target) == drawn


@EXAMPLES
@given(planned())
def test_a_live_replica_stays_until_others_are_copied_from_it_and_one_is_live_afterwards(case: Case) -> None:
    view, _, result = case
    for move in result.moves:
        assert any(map(view.is_live, move.origin))
        assert any(map(view.is_live, move.target))


@EXAMPLES
@given(planned())
def test_no_partition_gets_fewer_replicas_than_its_min_isr(case: Case) -> None:
    view, goal, result = case
    for move in result.moves:
        if isinstance(goal, ReplicationFactor):
            assert len(move.target) == goal.factor >= view.min_isr_of(move.topic)
        else:
            assert len(move.target) == len(move.origin)


@EXAMPLES
@given(planned())
def test_added_replicas_are_on_as_many_racks_as_hosts_have_beside_those_that_stay(case: Case) -> None:
    view, goal, result = case
    hosts = racks_of(view, hosts_of(view, goal))
    for move in result.moves:
        stays = racks_of(view, [b for b in move.target if b in move.origin])
        if isinstance(goal, Add | Rebalance):
            assert len(racks_of(view, move.target)) >= len(racks_of(view, move.origin))
        else:
            most = min(len(stays) + len(move.added), len(stays | hosts))
            assert len(racks_of(view, move.target)) == most


@EXAMPLES
@given(planned())
def test_the_summary_counts_what_the_cluster_has_before_and_after(case: Case) -> None:
    view, goal, result = case
    after = moved(view, result.moves)
    hosts = racks_of(view, hosts_of(view, goal))

    def violations(of: ClusterView) -> int:
        sets = [found.target for found in of.assignments]
        return sum(len(racks_of(view, r)) < min(len(r), len(racks_of(view, r) | hosts)) for r in sets)

    loads = {load.broker: load for load in result.summary.brokers}
    assert list(loads) == sorted(loads)
    assert loads.keys() >= view.brokers.keys()
    for found, replicas, first in ((view, "replicas_before", "first_before"), (after, "replicas_after", "first_after")):
        leads = Counter(known.target[0] for known in found.assignments)
        assert {b: getattr(load, replicas) for b, load in loads.items()} == {b: counts_of(found)[b] for b in loads}
        assert {b: getattr(load, first) for b, load in loads.items()} == {b: leads[b] for b in loads}
    assert sum(load.moves_in for load in loads.values()) == sum(len(move.added) for move in result.moves)
    assert sum(load.moves_out for load in loads.values()) == sum(len(move.removed) for move in result.moves)
    assert result.summary.rack_violations_before == violations(view)
    assert result.summary.rack_violations_after == violations(after)


@EXAMPLES
@given(planned())
def test_bytes_are_those_of_each_added_replica_and_unknown_ones_are_counted(case: Case) -> None:
    view, _, result = case
    for move in result.moves:
        size = view.sizes.get((move.topic, move.partition))
        assert move.bytes == (0 if not move.added else None if size is None else size * len(move.added))
    known = [move.bytes for move in result.moves if move.bytes is not None]
    assert result.summary.bytes_to_move == sum(known) == sum(load.bytes_in for load in result.summary.brokers)
    assert result.summary.sizes_unknown == len(result.moves) - len(known)


@EXAMPLES
@given(planned())
def test_the_same_goal_has_the_same_plan_and_none_once_it_is_reached(case: Case) -> None:
    view, goal, result = case
    assert plan(view, goal) == result
    assert plan(moved(view, result.moves), goal).moves == ()


def test_a_rebalance_that_changes_a_first_replica_twice_keeps_the_order_of_the_others() -> None:
    view = make_view(dict.fromkeys(range(1, 7), "a"), {"a": [(1, 2, 3, 4)] * 7 + [(DAEMON,)]})
    found = plan(view, Rebalance(None)).moves
    assert any(move.target[0] != move.origin[0] for move in found)
    for move in found:
        stays = [b for b in move.target[1:] if b in move.origin]
        assert stays == [b for b in move.origin if b in stays]


def test_a_rebalance_goes_on_where_a_swap_opens_a_way_that_racks_forbade() -> None:
    """One pass over replicas and bytes would leave a move to the next plan."""
    left, right = (1, 2, 4, 5), (1, 2, 3, 4)
    view = make_view(
        {2: "a", 3: "b", 4: "c", 6: "a", 7: "b", 1: None, 5: None},
        {
            "a": (left, left, left, right, right, left, right, right, left, (DAEMON,)),
            "b": (Assignment((3, 1), (3,), (1,)), (3,), (3,), (DAEMON,)),
        },
        dead=(1, 5),
        sizes={("a", number): int(number > 3) for number in range(6)},
    )
    goal = Rebalance(None)
    assert plan(moved(view, plan(view, goal).moves), goal).moves == ()


@EXAMPLES
@given(planned(Decommission))
def test_all_replicas_leave_decommissioned_brokers_or_are_refused(case: Case) -> None:
    view, goal, result = case
    assert isinstance(goal, Decommission)
    assume(not is_faulty(result))
    for name, replicas in scope_of(moved(view, result.moves), goal).items():
        assert not set(goal.brokers) & set(replicas) or name in refused(result)
    for move in result.moves:
        assert {*move.removed} == {*goal.brokers} & {*move.origin}


@EXAMPLES
@given(planned(Decommission))
def test_a_broker_above_another_took_a_replica_that_the_other_could_not_take(case: Case) -> None:
    view, goal, result = case
    after = counts_of(moved(view, result.moves))
    for above in {b for move in result.moves for b in move.added}:
        taken = [move for move in result.moves if above in move.added]
        for below in hosts_of(view, goal):
            if after[above] > after[below] + 1:
                swapped = [[b for b in move.target if b != above] + [below] for move in taken]
                assert any(
                    below in move.target or len(racks_of(view, other)) < len(racks_of(view, move.target))
                    for move, other in zip(taken, swapped, strict=True)
                )


@EXAMPLES
@given(planned(Add))
def test_added_brokers_have_as_many_replicas_as_racks_allow(case: Case) -> None:
    view, goal, result = case
    assert isinstance(goal, Add)
    assume(not is_faulty(result))
    after = moved(view, result.moves)
    counts = counts_of(after)
    for name, replicas in scope_of(after, goal).items():
        givers = [b for b in replicas if view.is_live(b) and b not in goal.brokers]
        for giver, taker in ((g, t) for g in givers for t in goal.brokers if t not in replicas):
            if counts[giver] - counts[taker] > 1:
                others = racks_of(view, [b for b in replicas if b != giver])
                assert rack_of(view, giver) not in others
                assert rack_of(view, taker) in others, name


@EXAMPLES
@given(planned(Add))
def test_only_added_brokers_take_and_none_ends_above_a_giver(case: Case) -> None:
    view, goal, result = case
    assert isinstance(goal, Add)
    before, after = counts_of(view), counts_of(moved(view, result.moves))
    for b in view.brokers:
        assert after[b] >= before[b] if b in goal.brokers else after[b] <= before[b]
    givers = [b for b in view.brokers if after[b] < before[b]]
    takers = [b for b in view.brokers if after[b] > before[b]]
    assert all(view.is_live(b) for b in givers)
    assert all(after[taker] <= max(before[giver] for giver in givers) for taker in takers)


@EXAMPLES
@given(planned(ReplicationFactor))
def test_each_partition_has_the_factor_or_is_refused_and_its_first_replica_stays(case: Case) -> None:
    view, goal, result = case
    assert isinstance(goal, ReplicationFactor)
    assume(not is_faulty(result))
    for name, replicas in scope_of(moved(view, result.moves), goal).items():
        topic = f"topic {name.rpartition('-')[0]}"
        assert len(replicas) == goal.factor or {name, topic} & refused(result)
    for move in result.moves:
        assert {*move.origin} >= {*move.target} or {*move.origin} <= {*move.target}
        if len(move.target) < len(move.origin):
            assert move.target[0] == move.origin[0]


@EXAMPLES
@given(planned(ReplicationFactor))
def test_dropped_replicas_are_dead_ones_or_those_that_share_a_rack_first(case: Case) -> None:
    view, _, result = case
    for move in result.moves:
        if len(move.target) < len(move.origin) and all(map(view.is_live, move.origin)):
            assert len(racks_of(view, move.target)) == min(len(move.target), len(racks_of(view, move.origin)))
        if any(view.is_live(b) for b in move.removed):
            assert all(map(view.is_live, move.target[1:]))


@EXAMPLES
@given(planned(ReplicationFactor, RestoreRacks))
def test_first_replicas_change_only_to_more_even_counts(case: Case) -> None:
    def squares(view: ClusterView) -> int:
        return sum(n * n for n in Counter(known.target[0] for known in view.assignments).values())

    view, _, result = case
    swapped = [move for move in result.moves if move.target[0] != move.origin[0]]
    if all(move.origin[0] in move.target for move in swapped):
        assert squares(moved(view, result.moves)) <= squares(view) - len(swapped)


@EXAMPLES
@given(planned(RestoreRacks))
def test_replicas_are_on_different_racks_or_refused(case: Case) -> None:
    view, goal, result = case
    assume(not is_faulty(result))
    hosts = racks_of(view, hosts_of(view, goal))
    for name, replicas in scope_of(moved(view, result.moves), goal).items():
        used = racks_of(view, replicas)
        assert len(used) == min(len(replicas), len(used | hosts)) or name in refused(result)


@EXAMPLES
@given(planned(Decommission, ReplicationFactor))
def test_partitions_under_way_and_deleted_topics_that_the_goal_is_about_are_refused(case: Case) -> None:
    view, goal, result = case
    for (topic, partition), found in assigned(view).items():
        if (topics := getattr(goal, "topics", None)) is not None and topic not in topics:
            continue
        if isinstance(goal, Decommission):
            about = bool({*goal.brokers} & {*found.target})
        else:
            assert isinstance(goal, ReplicationFactor)
            about = len(found.target) != goal.factor and goal.factor >= view.min_isr_of(topic)
        if about and topic in view.deleting:
            assert f"topic {topic}" in refused(result)
        elif about and found.moving:
            assert f"{topic}-{partition}" in refused(result)


BROKERS, TOPICS, PARTITIONS = 100, 1_000, 100


def test_5000_moves_on_100_brokers_with_100_000_partitions_are_even_keep_racks_and_fit_their_file() -> None:
    racks: dict[int, str | None] = {b: "abcde"[b % 5] for b in range(BROKERS)}
    topics = {
        f"t{n:04}": [tuple((n + p + shift) % BROKERS for shift in (0, 1, 2)) for p in range(PARTITIONS)]
        for n in range(TOPICS)
    }
    view = make_view(racks, topics, sizes={(name, p): p for name in topics for p in range(PARTITIONS)})
    found = plan(view, Decommission((7, 8, 9)))
    assert len(found.moves) == 5_000
    assert found.refused == ()
    assert all(len(racks_of(view, move.target)) == 3 for move in found.moves)
    loads = [load for load in found.summary.brokers if load.broker not in (7, 8, 9)]
    assert max(load.replicas_after for load in loads) - min(load.replicas_after for load in loads) <= 1
    assert max(load.first_after for load in loads) - min(load.first_after for load in loads) <= 0.2 * TOPICS
    assert decode_plan(encode_plan(found)).moves == found.moves
