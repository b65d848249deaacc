"""New topics and partitions, and assignments that are fixed before they start (S4-39..S4-43, S4-79, S4-88)."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.decisions.topic_change import names_any, new_partitions, repaired
from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, Leadership, ReplicaState, TopicAssignment, TopicPartition
from tests.core.model import EPOCH, P, carried_out, decided, enter, make_cluster, topic, writes_of

DAEMON = 1000001


def with_topic(*replicas: tuple[int, ...], brokers: tuple[int, ...] = (1, 2, 3)) -> tuple[Cluster, list[int]]:
    """A model in which topic ``new`` was just found; its rows."""
    cluster = make_cluster(P((1, 2), 1), brokers=brokers)
    return cluster, cluster.observe_topic(topic("new", replicas))


@pytest.mark.seed("S4-5", "S4-6", "S4-39", "S4-40", "S4-41", "S4-42", "S4-43")
def test_new_topic_in_the_order_of_the_protocol() -> None:
    cluster, rows = with_topic((1, 2), (3, 1))
    draft = Draft(cluster)
    draft.trace = []
    new_partitions(draft, rows)
    decision = enter(cluster, draft.finish())
    assert writes_of(decision) == {1: (1, (1, 2), 0, 0), 2: (3, (3, 1), 0, 0)}
    assert all(change.creates and change.is_new and change.why == selectors.NEW_PARTITION for change in decision.writes)
    steps = [("replica" if t.broker is not None else "partition", t.state, t.target) for t in draft.trace]
    assert steps == [
        *[("partition", "NON_EXISTENT", "NEW")] * 2,
        *[("replica", "NON_EXISTENT", "NEW")] * 4,
        *[("partition", "NEW", "ONLINE")] * 2,
        *[("replica", "NEW", "ONLINE")] * 4,
    ]
    assert not any(move.stop or move.order for move in decision.replica_moves), "replicas hear by the election alone"
    assert cluster.replica_states == {}, "online is implied: nothing is kept per replica"


@pytest.mark.kafka("ControllerIntegrationTest.testTopicCreationWithOfflineReplica")
@pytest.mark.seed("S4-6", "S4-32")
@pytest.mark.parametrize(
    ("replicas", "leader", "isr"),
    [((4, 2, 1), 2, (2, 1)), ((2, 4), 2, (2,)), ((4, 5, 3), 3, (3,))],
)
def test_absent_replicas_neither_lead_nor_are_in_sync(
    replicas: tuple[int, ...], leader: int, isr: tuple[int, ...]
) -> None:
    cluster, rows = with_topic(replicas)
    assert writes_of(carried_out(cluster, partial(new_partitions, rows=rows))) == {1: (leader, isr, 0, 0)}
    assert cluster.replica_state(1, 4) in {ReplicaState.OFFLINE, ReplicaState.NON_EXISTENT}


@pytest.mark.seed("S4-6")
def test_no_live_replica_keeps_the_partition_new() -> None:
    cluster, rows = with_topic((4, 5), (1, 2))
    decision = carried_out(cluster, partial(new_partitions, rows=rows))
    assert list(writes_of(decision)) == [2], "the other partition of the topic starts"
    assert [(refusal.entity, refusal.why) for refusal in decision.refusals] == [(1, selectors.NO_LIVE_REPLICA)]
    assert cluster.rows[1].state.name == "NEW"
    assert cluster.leaderless == {1}


@pytest.mark.seed("S4-6", "S4-19")
def test_a_broker_that_shuts_down_gets_no_new_leadership() -> None:
    cluster, rows = with_topic((1, 2))
    cluster.observe_shutting_down(1)
    assert writes_of(carried_out(cluster, partial(new_partitions, rows=rows))) == {1: (2, (2,), 0, 0)}


@pytest.mark.kafka(
    "ControllerIntegrationTest.testTopicPartitionExpansion",
    "ControllerIntegrationTest.testTopicPartitionExpansionWithOfflineReplica",
)
@pytest.mark.seed("S4-79")
def test_expansion_starts_the_added_partitions_only() -> None:
    cluster = make_cluster(P((1, 2), 1, epoch=3), P((2, 3), 2, epoch=3))
    before = list(cluster.rows)
    added = cluster.observe_topic(topic("t", [(3, 1), (3, 1), (2, 3), (4, 3)], version=1))
    assert added == [2, 3]
    assert cluster.rows[:2] == before, "present assignments change by reassignment alone"
    decision = carried_out(cluster, partial(new_partitions, rows=added))
    assert writes_of(decision) == {2: (2, (2, 3), 0, 0), 3: (3, (3,), 0, 0)}
    known = cluster.topic("t")
    assert known is not None
    assert (list(known.rows), known.version) == ([0, 1, 2, 3], 1)
    assert [cluster.find("t", p) for p in range(5)] == [0, 1, 2, 3, None]


@pytest.mark.kafka("ControllerContextTest.testPartitionReplicaAssignmentForTopicReturnsExpectedReplicaAssignments")
@pytest.mark.seed("S4-79")
def test_expansion_with_holes_and_other_topics_between() -> None:
    cluster = make_cluster(P((1,), 1))
    cluster.observe_topic(topic("u", [(1,)]))
    holes = TopicAssignment("t", None, {0: Assignment((1,)), 7: Assignment((2,)), 3: Assignment((3,))}, 1, 50)
    assert cluster.observe_topic(holes) == [2, 3]
    found = [(cluster.rows[i].partition, i) for i in cluster.topics[0].rows]
    assert found == [(0, 0), (3, 2), (7, 3)]
    assert [cluster.find("t", p) for p in (0, 1, 3, 7)] == [0, None, 2, 3]
    assert cluster.name(3) == TopicPartition("t", 7)
    assert str(cluster.name(3)) == "t-7"


def test_what_was_found_to_exist_is_not_created_again() -> None:
    """Our own create, applied while its reply was lost: read back, told as new, and left as it is."""
    cluster, rows = with_topic((1, 2), (2, 3))
    decision = decided(cluster, partial(new_partitions, rows=rows))
    cluster.apply([change for change in decision.writes if change.entity == 2])
    change = cluster.observe_leadership(1, Leadership(1, 0, (1, 2), EPOCH, 0))
    assert change is not None
    assert change.is_new
    again = decided(cluster, partial(new_partitions, rows=rows), only=[1])
    assert again.empty
    assert again.refusals == [], "nothing was asked that is not possible"


def test_found_without_a_live_leader_it_is_elected() -> None:
    """A conflict with another controller's state znode, whose leader is gone by now."""
    cluster, rows = with_topic((4, 2))
    cluster.observe_leadership(1, Leadership(4, 3, (4, 2), EPOCH - 1, 5))
    assert writes_of(decided(cluster, partial(new_partitions, rows=rows), only=[1])) == {1: (2, (2,), 4, 6)}


@pytest.mark.seed("S4-88")
def test_a_daemons_id_among_the_replicas_is_replaced() -> None:
    found = topic("t", [(DAEMON, 1), (2, DAEMON), (1, 2)])
    assert names_any(found, frozenset({DAEMON}))
    fixed = repaired(found, {DAEMON}, live=[1, 2, 3], load={1: 9, 2: 5, 3: 0})
    assert fixed == {0: Assignment((3, 1)), 1: Assignment((2, 3)), 2: Assignment((1, 2))}
    assert not names_any(TopicAssignment("t", None, fixed, 0, 0), frozenset({DAEMON}))


@pytest.mark.seed("S4-88")
def test_replacements_are_spread() -> None:
    found = topic("t", [(DAEMON,)] * 9)
    fixed = repaired(found, {DAEMON}, live=[1, 2, 3], load={1: 3})
    assert fixed is not None
    used = [a.replicas[0] for a in fixed.values()]
    assert [used.count(b) for b in (1, 2, 3)] == [1, 4, 4], "broker 1 had three replicas already"


@pytest.mark.seed("S4-88")
def test_more_replicas_than_brokers_cannot_be_mended() -> None:
    assert repaired(topic("t", [(1, 2), (DAEMON, 1, 2)]), {DAEMON}, live=[1, 2], load={}) is None


@pytest.mark.seed("S4-88")
def test_two_daemons_in_one_assignment() -> None:
    found = topic("t", [(DAEMON, 2, DAEMON + 1)])
    assert repaired(found, {DAEMON, DAEMON + 1}, live=[1, 2, 3], load={}) == {0: Assignment((1, 2, 3))}
    assert not names_any(topic("t", [(1, 2)]), frozenset({DAEMON}))
