"""Plans of small clusters, goal by goal, and what each goal refuses with its remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from state_machines.model.types import Assignment
from state_machines.planning.cluster_view import ClusterView
from state_machines.planning.goals import (
    LISTED_MAX,
    Add,
    Decommission,
    Goal,
    Rebalance,
    ReplicationFactor,
    RestoreRacks,
    Target,
    TargetReplicas,
    Topics,
    Undo,
    chosen_topics,
    in_words,
)
from state_machines.planning.plan import INT32_MAX, Move, Plan
from state_machines.planning.planner import FACTOR_MAX, plan
from tests.kit.kafka.planning import DAEMON, Replicas, assigned, counts_of, make_view, moved, moves_of, refusals_of

BARE: dict[int, str | None] = {1: None, 2: None, 3: None, 4: None}
RACKED: dict[int, str | None] = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}


def target(*given: tuple[str, int, Replicas]) -> Target:
    return Target(tuple(TargetReplicas(*one) for one in given))


def test_a_given_order_of_replicas_is_the_order_of_the_plan() -> None:
    found = plan(make_view(BARE, {"a": [(1, 2, 3)]}), target(("a", 0, (1, 3, 2))))
    assert [move.target for move in found.moves] == [(1, 3, 2)]


# -- the way back


def test_a_way_back_gives_partitions_the_order_that_they_had() -> None:
    found = plan(make_view(BARE, {"a": [(4, 3, 2)]}), way_back((0, (1, 2, 3), (4, 3, 2))))
    assert [move.target for move in found.moves] == [(1, 2, 3)]


def way_back(*moves: tuple[int, Replicas, Replicas]) -> Undo:
    return Undo(tuple(Move("a", *one) for one in moves), "procedure 12")


def test_a_plan_is_undone_where_its_moves_stand_and_what_moved_since_stays() -> None:
    placed: list[Replicas | Assignment] = [(3, 4), (1, 2), (3, 1), (4, 3), Assignment((3, 4, 1), (1,), (4,))]
    view = make_view(BARE, {"a": placed}, sizes={("a", 0): 10})
    undo = way_back(*((number, (1, 2), (3, 4)) for number in range(6)))
    found = plan(view, undo)
    assert moves_of(found) == {"a-0": ((3, 4), (1, 2)), "a-3": ((4, 3), (1, 2))}, (
        "another order of replicas is the same"
    )
    assert found.goal == "undo procedure 12"
    assert [subject for subject, _ in refusals_of(found)] == ["a-2", "a-4", "a-5"]
    moved_since, moving, gone = (why for _, why in refusals_of(found))
    assert moved_since.startswith("its replicas are [3, 1], and the plan gave it [3, 4]: it was moved since")
    assert "it is being reassigned now" in moving
    assert "it does not exist any more" in gone
    again = plan(make_view(BARE, {"a": [(1, 2)]}), way_back((0, (1, 2), (3, 4))))
    assert (again.moves, again.refused) == ((), ()), "what is back already needs no move"


def test_a_way_back_to_brokers_that_take_no_replica_is_refused_with_what_keeps_them() -> None:
    view = make_view(BARE, {"a": [(3, 4)] * 2}, cordoned=[1], dead=[2])
    found = plan(view, way_back((0, (1, 3), (3, 4)), (1, (2, 3), (3, 4))))
    assert found.moves == ()
    assert ["cordoned" in refusals_of(found)[0][1], "2" in refusals_of(found)[1][1]] == [True, True]
    assert plan(view, way_back()).refused[0].why.startswith("procedure 12 moved nothing")


# -- all brokers even


def spread(found: Plan, view: ClusterView) -> tuple[dict[int, int], dict[int, int]]:
    """Returns replicas and first replicas by broker after a plan."""
    after = {name: assignment.replicas for name, assignment in assigned(view).items()}
    after |= {(move.topic, move.partition): move.target for move in found.moves}
    first = Counter(replicas[0] for replicas in after.values())
    return dict(sorted(Counter(b for replicas in after.values() for b in replicas).items())), dict(
        sorted(first.items())
    )


def test_a_rebalance_evens_replicas_and_leaders_over_all_brokers_and_then_has_nothing_to_do() -> None:
    view = make_view(BARE, {"a": [(1, 2)] * 8, "b": [(2, 3)] * 4})
    found = plan(view, Rebalance())
    assert found.goal == "rebalance all brokers"
    assert spread(found, view) == (dict.fromkeys((1, 2, 3, 4), 6), dict.fromkeys((1, 2, 3, 4), 3))
    placed = {name: assignment.replicas for name, assignment in assigned(view).items()}
    placed |= {(move.topic, move.partition): move.target for move in found.moves}
    even = make_view(BARE, {t: [placed[t, p] for p in range(n)] for t, n in (("a", 8), ("b", 4))})
    assert plan(even, Rebalance()).moves == ()


def test_leaders_alone_are_evened_without_a_copy() -> None:
    view = make_view(BARE, {"a": [(1, 2), (1, 4), (3, 4), (3, 2)] * 2})
    found = plan(view, Rebalance())
    assert sum(len(move.added) for move in found.moves) == 0
    assert max(spread(found, view)[1].values()) == 2


def test_leaders_that_a_later_partition_makes_uneven_again_are_evened_by_the_same_plan() -> None:
    view = make_view(dict.fromkeys(range(1, 7)), {"a": [(1, 2, 3, 4)] * 9 + [(DAEMON,)], "b": [(1,)] * 4 + [(DAEMON,)]})
    found = plan(view, Rebalance())
    assert plan(moved(view, found.moves), Rebalance()).moves == ()


def test_a_rebalance_keeps_racks_and_leaves_cordoned_and_dead_brokers_alone() -> None:
    view = make_view(RACKED, {"a": [(1, 2, 3)] * 12}, cordoned=[5], dead=[6])
    found = plan(view, Rebalance())
    assert not {broker for move in found.moves for broker in move.added} & {5, 6}
    assert found.summary.rack_violations_after == 0
    assert spread(found, view)[0] == {1: 6, 2: 12, 3: 12, 4: 6}, "only brokers 1 and 4 share a rack"
    alone = plan(make_view(BARE, {"a": [(1,)]}, cordoned=[2, 3, 4]), Rebalance())
    assert refusals_of(alone)[0][1].startswith("fewer than 2 brokers may take replicas")


def test_bytes_are_evened_by_swaps_that_keep_the_counts() -> None:
    sizes = {("a", p): 100 if p < 4 else 10 for p in range(8)}
    view = make_view({1: None, 2: None}, {"a": [(1,)] * 4 + [(2,)] * 4}, sizes=sizes)
    found = plan(view, Rebalance())
    assert spread(found, view)[0] == {1: 4, 2: 4}
    after = {p: (1,) if p < 4 else (2,) for p in range(8)} | {move.partition: move.target for move in found.moves}
    held = Counter({b: sum(sizes["a", p] for p, at in after.items() if at == (b,)) for b in (1, 2)})
    assert held == {1: 220, 2: 220}
    assert plan(make_view({1: None, 2: None}, {"a": [(1,)] * 4 + [(2,)] * 4}), Rebalance()).moves == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (("orders",), ("orders",)),
        (("orders-*",), ("orders-a", "orders-test")),
        (("orders-*", "pay", "!*-test"), ("orders-a", "pay")),
        (("!orders*",), ("pay",)),
        (("gone", "or?ers"), ("gone", "orders")),
        (("no-*",), ("no-*",)),
        (("orders", "!orders"), ()),
    ],
)
def test_topics_are_chosen_by_names_patterns_and_exclusions(given: Topics, expected: Topics) -> None:
    assert chosen_topics(given, ["orders", "orders-a", "orders-test", "pay"]) == expected


def test_every_goal_takes_patterns_and_refuses_those_without_a_topic() -> None:
    view = make_view(BARE, {"ab": [(1, 2)], "ac": [(1, 2)], "b": [(1, 2)]})
    for goal in (Decommission((1,), ("a*", "!ac")), Add((4,), ("a*", "!ac")), ReplicationFactor(("a*", "!ac"), 3)):
        assert {move.topic for move in plan(view, goal).moves} <= {"ab"}
        assert not plan(view, goal).refused
    refused = plan(view, Rebalance(("x*",))).refused
    assert [one.why for one in refused] == ["topics names 'x*', which does not exist: correct the name"]
    assert plan(view, Rebalance(("b", "!b"))).refused[0].why.startswith("topics is empty")
    assert in_words(Rebalance(("a*",))) == "rebalance all brokers of topics a*"


# -- given replicas


def test_given_replicas_are_planned_in_the_order_of_partitions_with_their_bytes() -> None:
    view = make_view(BARE, {"b": [(1, 2)], "a": [(1, 2), (2, 1), (1, 2)]}, sizes={("a", 0): 10, ("b", 0): 7})
    wanted = target(("b", 0, (3, 4)), ("a", 2, (3, 2)), ("a", 1, (1, 2)), ("a", 0, (1, 3)))
    found = plan(view, wanted)
    assert moves_of(found) == {
        "a-0": ((1, 2), (1, 3)),
        "a-1": ((2, 1), (1, 2)),
        "a-2": ((1, 2), (3, 2)),
        "b-0": ((1, 2), (3, 4)),
    }
    assert list(moves_of(found)) == ["a-0", "a-1", "a-2", "b-0"]
    assert [move.bytes for move in found.moves] == [10, 0, None, 14]
    assert (found.summary.bytes_to_move, found.summary.sizes_unknown) == (24, 1)
    assert {load.broker: (load.moves_in, load.moves_out, load.bytes_in) for load in found.summary.brokers} == {
        1: (0, 2, 0),
        2: (0, 2, 0),
        3: (3, 0, 17),
        4: (1, 0, 7),
    }
    assert found.refused == ()
    assert found.goal == "given replicas of 4 partitions"


def test_given_replicas_that_change_nothing_are_no_move() -> None:
    view = make_view(BARE, {"a": [(1, 2)]})
    assert plan(view, target(("a", 0, (1, 2)))).moves == ()


def test_given_replicas_may_stay_on_dead_and_cordoned_brokers_and_on_racks_as_the_summary_counts() -> None:
    view = make_view(RACKED, {"t": [(1, 2, 3)]}, dead=[2], cordoned=[1])
    found = plan(view, target(("t", 0, (2, 1, 4))))
    assert moves_of(found) == {"t-0": ((1, 2, 3), (2, 1, 4))}
    assert (found.summary.rack_violations_before, found.summary.rack_violations_after) == (0, 1)


UNFIT: list[tuple[str, tuple[str, int, Replicas], list[str]]] = [
    ("unknown topic", ("x", 0, (1,)), ["topic = 'x': it does not exist; correct the name"]),
    (
        "unknown partition",
        ("t", 4, (1, 2)),
        ["partition = 4: the topic has 4 partitions and not this one; correct it"],
    ),
    (
        "negative partition",
        ("t", -1, (1, 2)),
        ["partition = -1: the topic has 4 partitions and not this one; correct it"],
    ),
    ("no replicas", ("t", 0, ()), ["replicas = []: name at least one broker"]),
    ("twice", ("t", 0, (1, 3, 1)), ["replicas = [1, 3, 1]: broker 1 is named 2 times; name it once"]),
    ("negative", ("t", 0, (1, -1)), [f"replicas = [1, -1]: -1 is no broker id; give 0 to {INT32_MAX}"]),
    (
        "too large",
        ("t", 0, (1, INT32_MAX + 1)),
        [f"replicas = [1, 2147483648]: 2147483648 is no broker id; give 0 to {INT32_MAX}"],
    ),
    (
        "largest id",
        ("t", 0, (1, INT32_MAX)),
        ["replicas = [1, 2147483647]: broker 2147483647 is unknown: correct the id, or start the broker"],
    ),
    ("dead", ("t", 0, (1, 5)), ["replicas = [1, 5]: broker 5 is not live: start it, or name another one"]),
    ("stopping", ("t", 0, (1, 6)), ["replicas = [1, 6]: broker 6 is not live: start it, or name another one"]),
    ("cordoned", ("t", 0, (1, 4)), ["replicas = [1, 4]: broker 4 is cordoned: regent uncordon 4, or name another one"]),
    (
        "daemon",
        ("t", 0, (1, DAEMON)),
        ["replicas = [1, 1000000]: 1000000 is the id of a controller daemon, which hosts no replica: name a broker"],
    ),
    (
        "below min ISR",
        ("t", 0, (1,)),
        ["replicas = [1]: 1 replicas are below min.insync.replicas = 2; give 2 or more, or lower the setting"],
    ),
    ("under way", ("t", 1, (1, 3)), ["it is being reassigned now: wait until that is complete, or cancel it"]),
    ("deleted", ("gone", 0, (2,)), ["it is being deleted: leave it out, or wait until it is gone"]),
    (
        "no live replica",
        ("t", 2, (1, 2)),
        ["none of its replicas [5, 6] is live, so none can be copied: start one"],
    ),
    (
        "all faults at once",
        ("t", 1, (5, 5)),
        [
            "replicas = [5, 5]: broker 5 is named 2 times; name it once",
            "replicas = [5, 5]: broker 5 is not live: start it, or name another one",
            "replicas = [5, 5]: 1 replicas are below min.insync.replicas = 2; give 2 or more, or lower the setting",
            "it is being reassigned now: wait until that is complete, or cancel it",
        ],
    ),
]


@pytest.mark.parametrize(("wanted", "faults"), [case[1:] for case in UNFIT], ids=[case[0] for case in UNFIT])
def test_unfit_given_replicas_are_refused_with_their_faults_while_others_move(
    wanted: tuple[str, int, Replicas], faults: list[str]
) -> None:
    topics: dict[str, list[Replicas | Assignment]] = {
        "t": [(1, 2), Assignment((1, 2)).reassigned_to((2, 3)), (5, 6), (1, 2)],
        "gone": [(1,)],
    }
    view = make_view(
        {**BARE, 5: None, 6: None},
        topics,
        dead=[5],
        stopping=[6],
        cordoned=[4],
        deleting=["gone"],
        min_isr={"t": 2},
    )
    found = plan(view, target(("t", 3, (3, 2)), wanted))
    assert [why for _, why in refusals_of(found)] == faults
    assert {subject for subject, _ in refusals_of(found)} <= {f"{wanted[0]}-{wanted[1]}", f"topic {wanted[0]}"}
    assert list(moves_of(found)) == ["t-3"]


def test_a_partition_that_is_given_twice_is_refused_once() -> None:
    view = make_view(BARE, {"t": [(1, 2)]})
    found = plan(view, target(("t", 0, (1, 3)), ("t", 0, (1, 4))))
    assert refusals_of(found) == [("t-0", "partitions names it 2 times: name it once")]
    assert found.moves == ()


def test_the_factor_may_stay_below_min_isr_or_change_to_it_but_to_nothing_else_below() -> None:
    view = make_view({**BARE, 5: None}, {"t": [(1, 2)] * 5}, min_isr={"t": 4})
    given = [(3, 4), (1,), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5)]
    found = plan(view, target(*(("t", p, replicas) for p, replicas in enumerate(given))))
    assert list(moves_of(found)) == ["t-0", "t-3", "t-4"]
    assert [subject for subject, _ in refusals_of(found)] == ["t-1", "t-2"]


# -- goals that are wrong themselves

WRONG: list[tuple[Goal, list[tuple[str, str]]]] = [
    (Target(()), [("partitions", "partitions is empty: name at least one partition")]),
    (Decommission(()), [("brokers", "brokers is empty: name at least one broker")]),
    (Add(()), [("brokers", "brokers is empty: name at least one broker")]),
    (Decommission((1, 1)), [("broker 1", "brokers names 1 twice: name it once")]),
    (Add((2, 2)), [("broker 2", "brokers names 2 twice: name it once")]),
    (
        Decommission((1, 9, 8), ("t", "x", "w")),
        [
            ("topic w", "topics names 'w', which does not exist: correct the name"),
            ("topic x", "topics names 'x', which does not exist: correct the name"),
            ("broker 8", "brokers names 8, which is unknown and hosts nothing: correct the id"),
            ("broker 9", "brokers names 9, which is unknown and hosts nothing: correct the id"),
        ],
    ),
    (
        Add((3, 4, 9, DAEMON)),
        [
            ("broker 3", "brokers = 3: broker 3 is not live: start it, or name another one"),
            ("broker 4", "brokers = 4: broker 4 is cordoned: regent uncordon 4, or name another one"),
            ("broker 9", "brokers = 9: broker 9 is unknown: correct the id, or start the broker"),
            (
                f"broker {DAEMON}",
                f"brokers = {DAEMON}: {DAEMON} is the id of a controller daemon, which hosts no replica: name a broker",
            ),
        ],
    ),
    (RestoreRacks(()), [("topics", "topics is empty: name at least one topic, or leave the limit out")]),
    (ReplicationFactor(("t",), 0), [("factor", f"factor = 0: give 1 to {FACTOR_MAX}")]),
    (ReplicationFactor(("t",), FACTOR_MAX + 1), [("factor", f"factor = 32768: give 1 to {FACTOR_MAX}")]),
    (
        ReplicationFactor(("x",), -1),
        [
            ("topic x", "topics names 'x', which does not exist: correct the name"),
            ("factor", f"factor = -1: give 1 to {FACTOR_MAX}"),
        ],
    ),
]


@pytest.mark.parametrize(("goal", "faults"), WRONG, ids=[in_words(goal) for goal, _ in WRONG])
def test_a_goal_that_is_wrong_itself_is_refused_with_all_faults_and_moves_nothing(
    goal: Goal, faults: list[tuple[str, str]]
) -> None:
    view = make_view({1: "a", 2: "b", 3: "a", 4: "b"}, {"t": [(1, 2), (3, 2), (1, 2)]}, dead=[3], cordoned=[4])
    found = plan(view, goal)
    assert refusals_of(found) == faults
    assert found.moves == ()


@pytest.mark.parametrize(
    ("racks", "why"),
    [
        ({1: None, 2: None}, "no live broker has a rack: set broker.rack on all brokers"),
        ({1: "a", 2: None}, "brokers [2] do not have a rack: set broker.rack on all brokers"),
        ({1: "a", 2: "b"}, None),
    ],
)
def test_racks_are_restored_only_where_all_live_brokers_have_one(racks: dict[int, str | None], why: str | None) -> None:
    found = plan(make_view(racks, {"t": [(1, 2)]}), RestoreRacks())
    assert refusals_of(found) == ([("racks", why)] if why else [])


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (Decommission((3, 4)), "decommission brokers 3, 4"),
        (Add((3,), ("a", "b")), "add brokers 3 of topics a, b"),
        (ReplicationFactor(("a",), 3), "replication factor 3 of topics a"),
        (RestoreRacks(), "restore racks"),
        (Decommission(tuple(range(LISTED_MAX))), "decommission brokers 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        (Decommission(tuple(range(LISTED_MAX + 1))), "decommission brokers 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1 more"),
    ],
)
def test_a_goal_in_words_names_its_brokers_and_topics(goal: Goal, words: str) -> None:
    assert in_words(goal) == words


# -- decommission


def test_decommissioned_replicas_go_to_the_least_loaded_brokers_of_other_racks_in_their_places() -> None:
    view = make_view(RACKED, {"t": [(1, 2, 3), (2, 1, 3), (2, 3, 1), (4, 2, 3)]}, sizes={("t", 0): 5})
    found = plan(view, Decommission((3,)))
    assert moves_of(found) == {
        "t-0": ((1, 2, 3), (1, 2, 6)),
        "t-1": ((2, 1, 3), (2, 1, 6)),
        "t-2": ((2, 3, 1), (2, 6, 1)),
        "t-3": ((4, 2, 3), (4, 2, 6)),
    }
    assert found.summary.bytes_to_move == 5
    assert found.summary.rack_violations_after == 0


def test_replicas_of_decommissioned_brokers_are_spread_evenly_with_those_that_are_there() -> None:
    view = make_view(BARE, {"t": [(1,)] * 9 + [(2,)] * 4 + [(3,)] * 2})
    after = counts_of(moved(view, plan(view, Decommission((1,))).moves))
    assert after == {2: 5, 3: 5, 4: 5}


def test_a_dead_broker_is_decommissioned_and_its_first_replicas_spread() -> None:
    view = make_view(BARE, {"t": [(1, 2, 3)] * 6}, dead=[1])
    found = plan(view, Decommission((1,)))
    assert {frozenset(move.target) for move in found.moves} == {frozenset((2, 3, 4))}
    assert Counter(move.target[0] for move in found.moves) == {2: 2, 3: 2, 4: 2}


def test_a_dead_replica_is_never_made_the_first_in_place_of_one_that_leaves() -> None:
    view = make_view(BARE, {"t": [(1, 3, 2)], "u": [(2,)] * 3 + [(4,)] * 2}, dead=[3])
    assert moves_of(plan(view, Decommission((1,))))["t-0"][1] == (4, 3, 2)


def test_a_partition_with_too_few_brokers_stays_and_the_refusal_names_the_hosts() -> None:
    view = make_view(BARE, {"t": [(1, 2, 3)], "u": [(1, 4)]}, cordoned=[4])
    found = plan(view, Decommission((1,)))
    why = "3 replicas have too few brokers: only [2, 3] may take any; add one, or lower the factor"
    assert refusals_of(found) == [("t-0", why)]
    assert moves_of(found) == {"u-0": ((1, 4), (4, 2))}


def test_other_partitions_on_the_broker_move_while_those_under_way_and_deleted_topics_are_refused() -> None:
    moving = Assignment((1, 2)).reassigned_to((1, 3))
    leaves_already = Assignment((1, 2)).reassigned_to((2, 3))
    view = make_view(BARE, {"t": [moving, (1, 2), leaves_already], "gone": [(1,), (1,)]}, deleting=["gone"])
    found = plan(view, Decommission((1,)))
    assert refusals_of(found) == [
        ("topic gone", "it is being deleted: leave it out, or wait until it is gone"),
        ("t-0", "it is being reassigned now: wait until that is complete, or cancel it"),
    ]
    assert list(moves_of(found)) == ["t-1"]


def test_a_limit_to_topics_leaves_the_others_where_they_are() -> None:
    view = make_view(BARE, {"a": [(1, 2)], "b": [(1, 2)]})
    assert list(moves_of(plan(view, Decommission((1,), ("b",))))) == ["b-0"]


@pytest.mark.parametrize(("gap", "first"), [(11, 1), (12, 4)])
def test_the_first_replica_stays_unless_another_has_fewer_by_more_than_a_tenth_of_the_mean(
    gap: int, first: int
) -> None:
    """Three hosts and 330 partitions: the mean is 110."""
    leads = {1: 116, 3: 100, 4: 116 - gap}
    left = [(2, 3)] * (330 - sum(leads.values()))
    topics: dict[str, Sequence[Replicas]] = {
        "a": [(1, 2)],
        "b": [(1,)] * 115,
        "c": [(3,)] * 100,
        "d": [(4,)] * leads[4],
        "e": left,
    }
    view = make_view(BARE, topics)
    (move,) = plan(view, Decommission((2,), ("a",))).moves
    assert set(move.target) == {1, 4}
    assert move.target[0] == first
    assert plan(view, target(("a", 0, (1, 4)))).moves[0].target == (1, 4), "given replicas stay as they are"


@pytest.mark.parametrize(("gap", "first"), [(2, 1), (3, 4)])
def test_a_small_cluster_keeps_its_first_replicas_up_to_a_gap_of_two(gap: int, first: int) -> None:
    view = make_view(BARE, {"a": [(1, 2)], "b": [(1,)] * (gap - 1), "c": [(2, 3)]})
    (move,) = plan(view, Decommission((2,), ("a",))).moves
    assert set(move.target) == {1, 4}
    assert move.target[0] == first


# -- add


def test_an_added_broker_takes_its_share_of_the_smallest_replicas_from_the_fullest() -> None:
    sizes = {("t", p): 100 - p for p in range(12)}
    view = make_view({1: None, 2: None, 3: None}, {"t": [(1,)] * 8 + [(2,)] * 4}, sizes=sizes)
    found = plan(view, Add((3,)))
    assert counts_of(moved(view, found.moves)) == {1: 4, 2: 4, 3: 4}
    assert list(moves_of(found)) == ["t-4", "t-5", "t-6", "t-7"]
    assert found.summary.bytes_to_move == 96 + 95 + 94 + 93


def test_partitions_of_unknown_size_move_last_and_equal_ones_from_all_topics() -> None:
    sizes = {(t, p): 7 for t in "ab" for p in range(4)}
    view = make_view({1: None, 2: None}, {"a": [(1,)] * 6, "b": [(1,)] * 6}, sizes=sizes)
    assert set(moves_of(plan(view, Add((2,))))) == {"a-0", "a-1", "a-2", "b-0", "b-1", "b-2"}


def test_an_added_broker_takes_only_from_its_rack_where_another_move_would_make_racks_worse() -> None:
    view = make_view({**RACKED, 7: "c"}, {"t": [(1, 2, 3)] * 4 + [(4, 5, 6)] * 4})
    found = plan(view, Add((7,)))
    assert {b for move in found.moves for b in move.removed} == {3, 6}
    assert counts_of(moved(view, found.moves)) == {1: 4, 2: 4, 4: 4, 5: 4, 3: 2, 6: 3, 7: 3}


def test_an_added_broker_takes_first_replicas_too() -> None:
    view = make_view(BARE, {"t": [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 40})
    loads = plan(view, Add((4,))).summary.brokers
    assert [load.replicas_after for load in loads] == [90] * 4
    assert [load.first_before for load in loads] == [40, 40, 40, 0]
    assert max(load.first_after for load in loads) - min(load.first_after for load in loads) <= 4


def test_an_added_broker_takes_no_replica_along_a_gap_of_one_where_racks_keep_it_below() -> None:
    view = make_view({1: "a", 2: "b", 3: "b"}, {"t": [(1, 2)] * 3})
    assert counts_of(moved(view, plan(view, Add((3,))).moves)) == {1: 3, 2: 2, 3: 1}


def test_of_equally_loaded_brokers_the_one_that_is_not_first_gives() -> None:
    view = make_view({1: None, 2: None, 3: None}, {"t": [(1, 2), (2, 1)] * 2})
    assert moves_of(plan(view, Add((3,)))) == {"t-0": ((1, 2), (1, 3)), "t-1": ((2, 1), (2, 3))}


def test_a_broker_that_is_not_live_keeps_its_replicas_as_it_may_return() -> None:
    view = make_view({1: "a", 2: "b", 3: "c"}, {"t": [(1, 2)] * 4}, stopping=[1])
    found = plan(view, Add((3,)))
    assert counts_of(moved(view, found.moves)) == {1: 4, 2: 2, 3: 2}


def test_brokers_that_have_their_share_take_nothing() -> None:
    view = make_view(BARE, {"t": [(1, 2), (3, 4), (1, 2)]})
    assert plan(view, Add((3, 4))).moves == ()


# -- replication factor


def test_a_larger_factor_adds_replicas_on_the_least_loaded_brokers_of_other_racks() -> None:
    view = make_view(RACKED, {"t": [(1,), (4,)], "u": [(2,), (2,), (3,), (5,)]})
    assert moves_of(plan(view, ReplicationFactor(("t",), 3))) == {
        "t-0": ((1,), (1, 6, 5)),
        "t-1": ((4,), (4, 3, 2)),
    }


def test_a_smaller_factor_drops_replicas_of_the_most_loaded_brokers_and_never_the_first() -> None:
    view = make_view(BARE, {"t": [(1, 2, 3), (1, 3, 2), (2, 1, 4)]})
    assert moves_of(plan(view, ReplicationFactor(("t",), 1))) == {
        "t-0": ((1, 2, 3), (1,)),
        "t-1": ((1, 3, 2), (1,)),
        "t-2": ((2, 1, 4), (2,)),
    }
    found = moves_of(plan(make_view(BARE, {"t": [(1, 2, 3)], "u": [(3,), (1,), (1,)]}), ReplicationFactor(("t",), 2)))
    assert found == {"t-0": ((1, 2, 3), (1, 2))}


def test_a_smaller_factor_drops_a_dead_replica_before_one_that_shares_a_rack() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b"}
    assert moves_of(plan(make_view(racks, {"t": [(1, 2, 3)]}), ReplicationFactor(("t",), 2)))["t-0"][1] == (1, 3)
    view = make_view(racks, {"t": [(1, 2, 3)]}, dead=[3])
    assert moves_of(plan(view, ReplicationFactor(("t",), 2)))["t-0"][1] == (1, 2)


@pytest.mark.parametrize(("factor", "refused"), [(1, True), (2, False), (3, False)])
def test_a_factor_below_min_isr_is_refused_for_its_topic_alone(factor: int, refused: bool) -> None:
    view = make_view(BARE, {"t": [(1, 2, 3)], "u": [(1, 2, 3, 4)]}, min_isr={"t": 2})
    found = plan(view, ReplicationFactor(("t", "u"), factor))
    why = "factor = 1 is below min.insync.replicas = 2: give 2, or lower the setting"
    assert refusals_of(found) == ([("topic t", why)] if refused else [])
    assert "u-0" in moves_of(found)
    assert ("t-0" in moves_of(found)) == (factor == 2)


def test_a_factor_above_the_number_of_brokers_or_without_a_live_replica_is_refused() -> None:
    view = make_view(BARE, {"t": [(1, 2)], "u": [(3, 4)]}, dead=[3])
    found = plan(view, ReplicationFactor(("t",), 4))
    why = "4 replicas have too few brokers: only [1, 2, 4] may take any; add one, or lower the factor"
    assert refusals_of(found) == [("t-0", why)]
    found = plan(view, ReplicationFactor(("u",), 1))
    assert refusals_of(found) == [("u-0", "factor = 1: its first replica, which stays, is not live: start broker 3")]
    assert found.moves == ()


# -- racks


def test_replicas_that_share_a_rack_move_from_the_most_loaded_broker_and_the_first_stays() -> None:
    view = make_view(RACKED, {"t": [(1, 4, 2), (1, 2, 3), (2, 5, 1, 4)], "u": [(6,)]})
    found = plan(view, RestoreRacks())
    assert moves_of(found) == {"t-0": ((1, 4, 2), (1, 3, 2)), "t-2": ((2, 5, 1, 4), (2, 5, 6, 4))}
    assert (found.summary.rack_violations_before, found.summary.rack_violations_after) == (2, 0)


def test_absent_brokers_and_racks_that_are_all_in_use_are_no_reason_to_move() -> None:
    view = make_view({1: "a", 2: "b", 3: "a"}, {"t": [(1, 2, 3), (1, 8, 9)]})
    found = plan(view, RestoreRacks())
    assert (found.moves, found.refused) == ((), ())
    assert found.summary.rack_violations_before == 0


def test_a_rack_on_which_nothing_may_be_placed_counts_where_a_replica_is_there() -> None:
    view = make_view({1: "a", 2: "b", 3: "b", 4: "c"}, {"t": [(1, 2, 3)]}, cordoned=[1])
    found = plan(view, RestoreRacks())
    assert moves_of(found) == {"t-0": ((1, 2, 3), (1, 4, 3))}
    assert (found.summary.rack_violations_before, found.summary.rack_violations_after) == (1, 0)
