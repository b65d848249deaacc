"""Topic deletion: queued, started, answered, ineligible, resumed, finished (S4-78)."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.decisions.broker_change import broker_death, broker_return
from state_machines.decisions.controlled_shutdown import controlled_shutdown
from state_machines.decisions.deletion import (
    MOVES,
    WAITS,
    Markers,
    advance,
    answered,
    finished,
    ineligible,
    replicas_left,
    restored,
    sort_markers,
    waiting_for,
)
from state_machines.decisions.failover import failover
from state_machines.decisions.reassignment import NotReassigned, ReassignError, ReassignmentRequest, judge
from state_machines.machines.draft import Draft
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Decision, Refusal
from state_machines.model.types import Assignment, Leadership, PartitionState, ReplicaState
from state_machines.propagation.propagation import Propagation
from tests.core.model import P, carried_out, come_back, decided, die, make_cluster, topic, writes_of

STARTED, SUCCESSFUL, INELIGIBLE = (
    ReplicaState.DELETION_STARTED,
    ReplicaState.DELETION_SUCCESSFUL,
    ReplicaState.DELETION_INELIGIBLE,
)


def queued(*partitions: P, brokers: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    """A model whose topic ``t`` has a marker."""
    cluster = make_cluster(*partitions, brokers=brokers)
    assert cluster.observe_deletions(["t"]) == [0]
    return cluster


def start(cluster: Cluster, *, retry: bool = False) -> Decision:
    return carried_out(cluster, partial(advance, topics=sorted(cluster.deletions), retry=retry))


def answer(cluster: Cluster, broker: int, *rows: int, failed: tuple[int, ...] = ()) -> Decision:
    return carried_out(cluster, partial(answered, broker=broker, deleted=rows, failed=failed))


def states(cluster: Cluster, i: int = 0) -> dict[int, ReplicaState]:
    return {b: cluster.replica_state(i, b) for b in cluster.rows[i].assignment.replicas}


@pytest.mark.seed("S4-78")
@pytest.mark.parametrize(("enabled", "found"), [(True, Markers(("x",), ("t",))), (False, Markers(("t", "x"), ()))])
def test_markers(enabled: bool, found: Markers) -> None:
    """Of unknown topics they are removed, and all where deletion is switched off."""
    assert sort_markers(make_cluster(P((1, 2), 1)), ["x", "t"], enabled=enabled) == found


@pytest.mark.kafka("TopicDeletionManagerTest.testBasicDeletion")
@pytest.mark.seed("S4-30", "S4-37", "S4-78")
def test_a_deletion_from_its_marker_to_its_last_answer() -> None:
    cluster = queued(P((1, 2), 1), P((2, 3), 2, (2,)))
    draft = Draft(cluster)
    draft.trace = []
    advance(draft, [0])
    assert [(t.entity, t.broker, t.state, t.target) for t in draft.trace if t.entity == 0] == [
        (0, None, "ONLINE", "OFFLINE"),
        (0, None, "OFFLINE", "NON_EXISTENT"),
        (0, 1, "ONLINE", "OFFLINE"),
        (0, 1, "OFFLINE", "DELETION_STARTED"),
        (0, 2, "ONLINE", "OFFLINE"),
        (0, 2, "OFFLINE", "DELETION_STARTED"),
    ]
    decision = start(cluster)
    assert decision.writes == [], "what is going to be deleted is not written any more"
    assert [row.state for row in cluster.rows] == [PartitionState.NON_EXISTENT] * 2
    assert {(m.entity, m.broker) for m in decision.replica_moves if m.stop and m.delete} == {
        (0, 1), (0, 2), (1, 2), (1, 3)
    }  # fmt: skip
    answer(cluster, 1, 0)
    answer(cluster, 2, 0, 1)
    assert (states(cluster, 0), finished(cluster, [0])) == ({1: SUCCESSFUL, 2: SUCCESSFUL}, [])
    answer(cluster, 3, 1)
    assert finished(cluster, [0]) == [0]
    cluster.observe_topic_gone("t")
    assert (cluster.replica_states, cluster.deletions, finished(cluster, [0])) == ({}, set(), [])
    assert {cluster.replica_state(0, b) for b in (1, 2)} == {ReplicaState.NON_EXISTENT}


@pytest.mark.seed("S4-78")
def test_everybody_forgets_the_partitions_and_nobody_is_told_who_leads() -> None:
    """Also a broker that is told only after the topic's znodes are gone."""
    cluster = queued(P((1, 2), 1), P((2, 1)))
    propagation = Propagation(cluster)
    for broker in (1, 2, 3):
        propagation.add(broker)
    decision = decided(cluster, partial(advance, topics=[0]))
    cluster.apply(decision.moves)
    cluster.apply_replicas(decision.replica_moves)
    propagation.propagate(decision.moves, decision.replica_moves)
    assert {b: box.stop for b, box in propagation.pending.items()} == {
        1: {0: True, 1: True},
        2: {0: True, 1: True},
        3: {},
    }
    assert all(not box.lead for box in propagation.pending.values())
    answer(cluster, 1, 0, 1)
    answer(cluster, 2, 0, 1)
    cluster.observe_topic_gone("t")
    assert propagation.feed.since(0, propagation.feed.number, 99)[0] == [0], (
        "a partition that never started is not known"
    )
    assert cluster.rows[0].has_leadership


@pytest.mark.seed("S4-78", "S4-88")
def test_a_replica_that_is_a_daemons_name_has_no_log() -> None:
    """It never starts, so nobody waits for it: Kafka's controller started the topic before a daemon was there."""
    daemon = 1000001
    cluster = queued(P((1, daemon), 1, (1,)), brokers=(1,))
    cluster.daemons = frozenset({daemon})
    start(cluster)
    assert (ineligible(cluster), replicas_left(cluster, range(len(cluster.rows)))) == ({}, 1)
    answer(cluster, 1, 0)
    assert (finished(cluster, [0]), replicas_left(cluster, range(len(cluster.rows)))) == ([0], 0)


@pytest.mark.kafka("TopicDeletionManagerTest.testDeletionWithBrokerOffline")
@pytest.mark.seed("S4-78")
def test_a_dead_broker_makes_it_wait_until_it_returns() -> None:
    cluster = queued(P((1, 2), 1), brokers=(1, 2))
    die(cluster, 2)
    start(cluster)
    assert (states(cluster), ineligible(cluster)) == ({1: STARTED, 2: INELIGIBLE}, {0: WAITS})
    answer(cluster, 1, 0)
    assert finished(cluster, [0]) == []
    come_back(cluster, 2)
    assert (waiting_for(cluster, [2]), waiting_for(cluster, [3])) == ([0], [])
    carried_out(cluster, partial(broker_return, returned=[2]))
    start(cluster, retry=True)
    assert states(cluster) == {1: SUCCESSFUL, 2: STARTED}
    answer(cluster, 2, 0)
    assert finished(cluster, [0]) == [0]


@pytest.mark.kafka("TopicDeletionManagerTest.testBrokerFailureAfterDeletionStarted")
@pytest.mark.seed("S4-78")
def test_a_broker_that_dies_before_it_answers_is_told_again() -> None:
    cluster = queued(P((1, 2), 1))
    start(cluster)
    answer(cluster, 1, 0)
    die(cluster, 1, 2)
    assert carried_out(cluster, partial(broker_death, dead=[1, 2])).empty, "nothing is elected any more"
    assert states(cluster) == {1: SUCCESSFUL, 2: INELIGIBLE}, "what is deleted stays deleted"
    come_back(cluster, 1, 2)
    moves = start(cluster, retry=True).replica_moves
    assert [(m.broker, m.state, m.delete) for m in moves] == [(2, STARTED, True)]


@pytest.mark.seed("S4-78")
@pytest.mark.parametrize("failed", [(1,), (0, 1)], ids=["one log directory", "the whole request"])
def test_a_replica_that_was_not_deleted_waits_for_a_broker(failed: tuple[int, ...]) -> None:
    """Not tried again at once, so that a full or broken disk is not asked for ever; a whole request may be refused."""
    cluster = queued(P((1,), 1), P((1,), 1))
    start(cluster)
    answer(cluster, 1, 0, 1, failed=failed)
    assert [states(cluster, i)[1] for i in (0, 1)] == [INELIGIBLE if i in failed else SUCCESSFUL for i in (0, 1)]
    assert start(cluster).empty
    assert ineligible(cluster) == {0: WAITS}
    start(cluster, retry=True)
    assert [states(cluster, i)[1] for i in (0, 1)] == [STARTED if i in failed else SUCCESSFUL for i in (0, 1)]
    answer(cluster, 1, 0, 1)
    assert finished(cluster, [0]) == [0]


@pytest.mark.kafka(
    "ControllerChannelManagerTest.testStopReplicaRequestsWhileTopicDeletionStarted",
    "ControllerChannelManagerTest.testStopReplicaRequestWithoutDeletePartitionWhileTopicDeletionStarted",
)
@pytest.mark.seed("S4-78")
def test_an_answer_to_another_stop_is_none_to_the_deletion() -> None:
    """KAFKA-9946: only what was asked to be deleted is deleted."""
    cluster = queued(P((1, 2), 1))
    assert answer(cluster, 1, 0).empty
    start(cluster)
    answer(cluster, 1, 0)
    assert answer(cluster, 1, 0).empty, "and an answer counts once"


@pytest.mark.seed("S4-78")
def test_a_topic_under_reassignment_waits_for_its_end() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1))
    cluster.observe_assignments("t", 1, {1: Assignment((2, 3, 1), (3,), (1,))})
    cluster.observe_deletions(["t"])
    assert start(cluster).refusals == [Refusal(1, "NON_EXISTENT", MOVES)]
    assert (cluster.rows[0].state, ineligible(cluster)) == (PartitionState.ONLINE, {0: MOVES})
    cluster.observe_assignments("t", 2, {1: Assignment((1, 2))})
    start(cluster, retry=True)
    assert cluster.rows[0].state is PartitionState.NON_EXISTENT


@pytest.mark.kafka("DeleteTopicTest.testPartitionReassignmentDuringDeleteTopic")
@pytest.mark.seed("S4-78", "S4-84")
def test_a_queued_topic_is_not_reassigned() -> None:
    cluster = queued(P((1, 2), 1))
    found = judge(cluster, ReassignmentRequest(0, (2, 3)))
    assert isinstance(found, NotReassigned)
    assert found.error is ReassignError.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.seed("S4-78")
def test_events_of_brokers_leave_it_alone() -> None:
    cluster = queued(P((1, 2), 1), P((1, 2)))
    start(cluster)
    before = list(cluster.rows)
    cluster.observe_shutting_down(1)
    assert carried_out(cluster, partial(controlled_shutdown, broker=1)).empty
    assert cluster.observe_leadership(0, Leadership(1, 0, (1,), 6, 9)) is None, "an ISR notification that is late"
    cluster.observe_undecided([0, 1])
    assert carried_out(cluster, failover).empty
    assert all(a is b for a, b in zip(before, cluster.rows, strict=True))


@pytest.mark.kafka("TopicDeletionManagerTest.testInitialization")
@pytest.mark.seed("S4-78")
def test_only_topics_with_a_marker_wait_at_the_beginning() -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=(1, 2))
    for number, replicas in enumerate(((1, 8), (2, 8))):
        rows = cluster.observe_topic(topic(f"u{number}", [replicas], czxid=60 + number))
        cluster.load_leadership(rows, [P(replicas, replicas[0]).leadership()])
    assert cluster.observe_deletions(["t", "u0"]) == [0, 1]
    start(cluster)
    assert (cluster.deletions, ineligible(cluster)) == ({0, 1}, {1: WAITS}), "u1 has no marker"


@pytest.mark.seed("S4-78")
def test_what_waits_for_its_deletion_gets_no_leader() -> None:
    """Except where a reassignment has to end before that: without a leader it never would."""
    cluster = make_cluster(P((8, 9), 8), P((8, 9)), P((8, 9), 8))
    cluster.observe_assignments("t", 1, {2: Assignment((9, 8, 1), (1,), (8,))})
    cluster.observe_deletions(["t"])
    come_back(cluster, 8)
    assert list(writes_of(carried_out(cluster, partial(broker_return, returned=[8])))) == [2]


@pytest.mark.seed("S4-78")
def test_a_partition_without_a_state_znode_is_deleted_too() -> None:
    """A topic that was half deleted, or that never started (KAFKA-6650)."""
    cluster = queued(P((1, 2), 1), P((1, 2)))
    start(cluster)
    for broker in (1, 2):
        answer(cluster, broker, 0, 1)
    assert finished(cluster, [0]) == [0]


@pytest.mark.seed("S4-78")
def test_partitions_that_are_added_meanwhile_are_taken_back() -> None:
    cluster = queued(P((1, 2), 1))
    grown = topic("t", [(1, 2), (2, 3), (3, 1)], version=5)
    change = restored(cluster, grown)
    assert change is not None
    assert (change.topic, change.version, change.partitions, change.dropped) == ("t", 5, {}, (1, 2))
    assert restored(cluster, topic("t", [(1, 2)], version=6)) is None
    assert restored(make_cluster(P((1, 2), 1)), grown) is None, "only while it is being deleted"


@pytest.mark.seed("S4-78")
def test_a_recreated_topic_is_not_touched_by_what_is_left_of_the_old_one() -> None:
    cluster = queued(P((1, 2), 1))
    start(cluster)
    cluster.observe_topic_gone("t")
    [row] = cluster.observe_topic(topic("t", [(1, 2)], czxid=90))
    cluster.load_leadership([row], [Leadership(1, 0, (1, 2), 7, 0)])
    assert answer(cluster, 1, 0).empty
    assert cluster.deletions == set()
    assert cluster.replica_state(row, 1) is ReplicaState.ONLINE
    assert cluster.observe_deletions(["t"]) == [1]


@pytest.mark.kafka("TopicDeletionManagerTest.testBasicDeletion")
@pytest.mark.seed("S4-78")
def test_many_topics_are_one_decision() -> None:
    cluster = make_cluster(P((1, 2), 1))
    for n in range(5):
        rows = cluster.observe_topic(topic(f"u{n}", [(1, 2)] * 4, czxid=60 + n))
        cluster.load_leadership(rows, [Leadership(1, 0, (1, 2), 6, 0)] * 4)
    indexes = cluster.observe_deletions([f"u{n}" for n in range(5)])
    decision = start(cluster)
    assert (len(decision.moves), len(decision.replica_moves), decision.writes) == (20, 40, [])
    assert cluster.rows[0].state is PartitionState.ONLINE
    for broker in (1, 2):
        answer(cluster, broker, *range(1, 21))
    assert finished(cluster, indexes) == indexes


@pytest.mark.seed("S4-78")
def test_a_stop_that_was_not_sent_yet_holds_the_end_up() -> None:
    """A broker that a reassignment took the replica from: it is not asked by the deletion, but by its name."""
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1))
    propagation = Propagation(cluster)
    for broker in (1, 2, 3):
        propagation.add(broker)
    propagation.pending[3].add_stop(0, delete=True)
    assert [sorted(propagation.stopping(rows)) for rows in ([0, 1], [1], [])] == [[3], [], []]
    propagation.pending[3].take_stop(99)
    assert propagation.stopping([0]) == set()
