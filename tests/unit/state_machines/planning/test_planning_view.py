"""The view of a model: rows, brokers, and what a reassignment or a deletion that is under way shows."""

from __future__ import annotations

import pytest

from state_machines.decisions.hindrances import at_once
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicAssignment
from state_machines.planning.cluster_view import PlannedBroker, view_in_turns, view_of
from tests.kit.model import broker, topic_gone
from tests.kit.planning_kit import CLUSTER_ID, DAEMON, assigned, make_view


def test_rows_are_sorted_by_topic_and_partition_and_found_by_name_also_where_numbers_have_holes() -> None:
    numbers = {"c": range(10), "a": (7, 2, 3), "b": (9, 8)}
    cluster = Cluster(7)
    for name, found in numbers.items():
        cluster.observe_topic(TopicAssignment(name, None, {p: Assignment((p + 1,)) for p in found}, 0, 50))
    view = view_of(cluster, CLUSTER_ID)
    names = [(t, p) for t in "abc" for p in sorted(numbers[t])]
    assert list(view.topics) == ["a", "b", "c"]
    assert list(view.partitions) == [p for _, p in names]
    assert assigned(view) == {(t, p): Assignment((p + 1,)) for t, p in names}
    for t, p in ((t, p) for t in "abcx" for p in range(-1, 12)):
        assert view.find(t, p) == (names.index((t, p)) if (t, p) in names else None)


def test_brokers_are_those_registered_and_absent_ones_that_assignments_name_without_daemons() -> None:
    view = make_view({1: "a", 2: "b", 3: "c"}, {"t": [(1, 5), (DAEMON,)]}, dead=[3], stopping=[2], cordoned=[1, 5, 9])
    assert view.brokers == {
        1: PlannedBroker(1, "a", live=True, cordoned=True),
        2: PlannedBroker(2, "b", live=False),
        5: PlannedBroker(5, None, live=False, cordoned=True),
    }
    assert [b for b in (*view.brokers, 3, DAEMON) if view.is_live(b)] == [1]


@pytest.mark.parametrize(
    ("live", "cordoned"), [(live, cordoned) for live in (True, False) for cordoned in (True, False)]
)
def test_only_a_live_broker_without_a_cordon_may_host(live: bool, cordoned: bool) -> None:
    view = make_view({1: None}, {"t": [(1,)]}, dead=() if live else [1], cordoned=[1] if cordoned else ())
    assert view.brokers[1].may_host == (live and not cordoned) == (view.why_no_host(1) is None)


def test_the_assignment_is_that_of_the_topic_znode_which_a_reassignment_has_written() -> None:
    cluster = Cluster(7)
    cluster.observe_brokers({b: broker(b) for b in (1, 2)})
    cluster.observe_topic(TopicAssignment("t", None, {0: Assignment((1,)), 1: Assignment((1,))}, 0, 50))
    written = Assignment((1,)).reassigned_to((4,))
    cluster.observe_assignments("t", 1, {1: written})
    view = view_of(cluster, CLUSTER_ID)
    assert view.assignments == [Assignment((1,)), written]
    assert view.brokers.keys() == {1, 2, 4}


def test_topics_that_vanished_are_not_in_the_view_and_those_to_be_deleted_are_named() -> None:
    cluster = Cluster(7)
    for name in "abc":
        cluster.observe_topic(TopicAssignment(name, None, {0: Assignment((1,))}, 0, 50))
    topic_gone(cluster, "b")
    cluster.observe_deletions(["c"])
    view = view_of(cluster, CLUSTER_ID, min_isr={"a": 2})
    assert list(view.topics) == ["a", "c"]
    assert view.deleting == {"c"}
    assert (view.min_isr_of("a"), view.min_isr_of("c")) == (2, 1)


def test_a_view_stays_as_it_is_when_the_model_changes() -> None:
    cluster = Cluster(7)
    cluster.observe_topic(TopicAssignment("t", None, {0: Assignment((1,))}, 0, 50))
    view = view_of(cluster, CLUSTER_ID)
    cluster.observe_topic(TopicAssignment("t", None, {0: Assignment((1,)), 1: Assignment((2,))}, 1, 50))
    topic_gone(cluster, "t")
    assert assigned(view) == {("t", 0): Assignment((1,))}


def test_a_view_is_made_in_turns_between_which_topics_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state_machines.planning.cluster_view.ROWS_PER_TURN", 2)
    cluster = Cluster(7)
    for name in "abcd":
        cluster.observe_topic(TopicAssignment(name, None, {0: Assignment((1,)), 1: Assignment((2,))}, 0, 50))
    turns = view_in_turns(cluster, CLUSTER_ID)
    next(turns)
    topic_gone(cluster, "c")
    view = at_once(turns)
    assert list(view.topics) == ["a", "b", "d"]
    assert view == view_of(cluster, CLUSTER_ID)
    some = at_once(view_in_turns(cluster, CLUSTER_ID, of=("d", "c")))
    assert assigned(some) == {("d", 0): Assignment((1,)), ("d", 1): Assignment((2,))}
    assert some.brokers == view.brokers
