"""Decisions of drains: waves, refusals and sentences as tables; marks over the product of what stood there before."""

from __future__ import annotations

from itertools import product
from unittest import mock

import pytest

from metadata_store.nodes.cordon_node import Cordon, Cordons, DrainMark, cordoned, drained, undrained
from state_machines.decisions import drain as decision
from state_machines.decisions.drain import (
    HOSTED,
    NAMED_MAX,
    Drain,
    Leading,
    advanced,
    followed,
    hosted,
    leading,
    led,
    move_leaders,
    replicas_sentence,
    sentence,
    staying,
    wave,
    why_not,
)
from state_machines.decisions.leader_election import to_balance
from state_machines.machines.draft import Draft
from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition
from tests.kit.kafka.model import P, make_cluster

BROKERS = (1, 2, 3)


def names(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


# -- waves


@pytest.mark.parametrize(
    ("wave_max", "expected"),
    [(1, [[0], [2], [3]]), (2, [[0, 2], [3]]), (3, [[0, 2, 3]]), (4, [[0, 2, 3]])],
)
def test_waves_take_what_the_drained_broker_leads_in_order_and_each_partition_once(
    wave_max: int, expected: list[list[int]]
) -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 2), P((1, 3), 1), P((1,), 1), brokers=BROKERS)
    cluster.observe_drained({1})
    found, drain = [], Drain((1,))
    with mock.patch.object(decision, "WAVE_MAX", wave_max):
        while rows := wave(cluster, drain):
            found.append(rows)
            drain = advanced(cluster, drain, rows)
    assert found == expected


def drawn(cluster: Cluster, rows: list[int], known: Leading) -> list[int]:
    """Returns the leaders that a wave of a drain gives to rows."""
    draft = Draft(cluster)
    move_leaders(draft, rows, known)
    return [draft.row(i).leader for i in rows]


def test_leaders_of_one_assignment_are_spread_over_the_isr_by_what_others_lead() -> None:
    """Broker 1 leads 16 partitions; 2 leads four already, and 3 and 4 none."""
    rows = [P((1, 2, 3, 4), 1)] * 16 + [P((2, 3, 4), 2)] * 4
    cluster = make_cluster(*rows, brokers=(1, 2, 3, 4))
    cluster.observe_drained({1})
    found = drawn(cluster, wave(cluster, Drain((1,))), leading(cluster))
    assert [found.count(broker) for broker in (1, 2, 3, 4)] == [0, 3, 7, 6], "20 leaders are 7, 7 and 6"


def test_a_broker_that_hosts_twice_as_much_gets_twice_the_leaders() -> None:
    rows = [P((1, 2, 3), 1)] * 12 + [P((3, 4), 4)] * 12
    cluster = make_cluster(*rows, brokers=(1, 2, 3, 4))
    cluster.observe_drained({1})
    known = leading(cluster)
    assert known.replicas == {1: 12, 2: 12, 3: 24, 4: 12}
    found = drawn(cluster, list(range(12)), known)
    assert [found.count(broker) for broker in (2, 3)] == [4, 8]


def test_a_later_wave_knows_what_the_earlier_ones_moved_and_no_attempt_counts_twice() -> None:
    cluster = make_cluster(*[P((1, 2, 3), 1)] * 6, brokers=BROKERS)
    cluster.observe_drained({1})
    known = leading(cluster)
    first = [drawn(cluster, [0, 1, 2], known) for _ in range(2)]
    assert first == [[2, 3, 2]] * 2
    draft = Draft(cluster)
    move_leaders(draft, [0, 1, 2], known)
    cluster.apply(draft.finish().writes)
    assert drawn(cluster, [3, 4, 5], followed(known, cluster, [0, 1, 2])) == [3, 2, 3]


def test_brokers_that_cannot_lead_get_none_however_little_they_lead() -> None:
    cluster = make_cluster(P((1, 2, 3, 4), 1, isr=(1, 2, 4)), P((2, 3), 2), brokers=(1, 2, 3, 4))
    cluster.observe_drained({1, 4})
    assert drawn(cluster, [0], leading(cluster)) == [2]
    cluster.observe_drained({1, 2, 4})
    draft = Draft(cluster)
    move_leaders(draft, [0], leading(cluster))
    assert draft.finish().writes == []


def test_a_broker_without_a_mark_keeps_its_leaders() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), brokers=BROKERS)
    assert (led(cluster, [1, 2]), wave(cluster, Drain((1, 2)))) == ([], [])
    cluster.observe_drained({1})
    draft = Draft(cluster)
    move_leaders(draft, [0, 1])
    assert [change.entity for change in draft.finish().writes] == [0]


def test_topics_that_are_being_deleted_are_left_alone() -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=BROKERS)
    cluster.observe_drained({1})
    assert led(cluster, [1]) == [0]
    assert len(hosted(cluster, [1])) == 1
    cluster.observe_deletions(["t"])
    assert (led(cluster, [1]), staying(cluster, [1]), hosted(cluster, [1])) == ([], {}, [])


def test_the_balance_leaves_drained_brokers_out_and_counts_others() -> None:
    rows = [P((1, 2), 2), P((1, 2), 2), P((3, 2), 2)]
    for marked in ((), (1,), (3,), (1, 3)):
        cluster = make_cluster(*rows, brokers=BROKERS)
        cluster.observe_drained(marked)
        moved = {cluster.rows[i].assignment.replicas[0] for i in to_balance(cluster, 0, 100)}
        assert moved == {1, 3}.difference(marked)


# -- refusals and results


def test_a_drain_is_refused_only_for_unknown_brokers_and_where_no_leader_would_be_left() -> None:
    sets = [set(some) for some in ((), (1,), (2, 3), (1, 2, 3))]
    for live, before, outranked, wanted in product(sets, sets, sets, ({1}, {2, 3}, {1, 2, 3})):
        cluster = make_cluster(P(BROKERS, 1), brokers=tuple(sorted(live)))
        cluster.observe_drained(before)
        cluster.outranked = frozenset(outranked)
        assert (why_not(cluster, wanted) is None) == bool(live - before - outranked - wanted)
        found = why_not(cluster, {*wanted, 9})
        assert found is not None
        assert found[0].startswith("brokers [9] are not registered")


@pytest.mark.parametrize(("count", "more"), [(NAMED_MAX, ""), (NAMED_MAX + 1, " and 1 more")])
def test_a_result_counts_all_partitions_and_names_some(count: int, more: str) -> None:
    found = sentence(Drain((1,), led=count + 5), {"why": names(count)})
    assert found.startswith(f"5 of {count + 5} leaders moved; {count} stay (t-0, ")
    assert found.endswith(f"t-{NAMED_MAX - 1}{more}): why")


def test_a_result_is_never_below_zero_where_leaders_came_meanwhile() -> None:
    assert sentence(Drain((1,), led=1), {"why": names(2)}).startswith("0 of 1 leaders moved")
    assert replicas_sentence(Drain((1,), hosted=1), names(2)).startswith("0 of 1 replicas moved")


@pytest.mark.parametrize(("left", "expected"), [(0, "3 of 3"), (1, "2 of 3")])
def test_the_result_names_replicas_that_stay(left: int, expected: str) -> None:
    found = replicas_sentence(Drain((1,), hosted=3), names(left))
    assert found.startswith(f"{expected} replicas moved")
    assert (HOSTED in found) == bool(left)


# -- marks

PLAIN = Cordon("disk", "uid 1", 5)
OWN, OTHER = DrainMark("work", "uid 2", 6, pid=7), DrainMark("work", "uid 3", 4, pid=3)
STATES = {
    "no mark": None,
    "cordoned": PLAIN,
    "drained, which brought the cordon": Cordon("work", "uid 3", 4, DrainMark("work", "uid 3", 4, 3, cordons=True)),
    "drained, and cordoned before": Cordon("disk", "uid 1", 5, OTHER),
}


@pytest.mark.parametrize("name", STATES)
def test_marks_are_added_and_removed_whatever_stood_there(name: str) -> None:
    held = STATES[name]
    before = {2: PLAIN} | ({1: held} if held is not None else {})
    after = drained(before, [1], OWN)
    was_drained = held is not None and held.drain is not None
    assert Cordons(after).drained == {1}
    assert (after[1] == held) == was_drained, "an earlier drain keeps its mark"
    assert drained(after, [1], OTHER) == after
    assert undrained(after, [1], pid=7) == (after if was_drained else before), "a drain removes its own mark alone"
    without = undrained(after, [1])
    assert Cordons(without).drained == set()
    assert (1 in without) == (name in ("cordoned", "drained, and cordoned before"))
    marked = cordoned(before, [1], PLAIN)
    assert 1 in undrained(marked, [1]), "an operator's cordon outlives the drain"
    assert Cordons(marked).drained == ({1} if was_drained else set())
    assert all(found[2] == PLAIN for found in (after, without, marked))


def test_marks_of_brokers_that_are_not_named_stay() -> None:
    marks = drained({}, [1, 2], OWN)
    assert undrained(marks, [2, 9]) == {1: marks[1]}
    assert undrained(marks, [1], pid=3) == marks
