"""The model: facts that are observed, decisions that are applied, and states that registrations imply."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.decisions.broker_change import broker_death, controlled_shutdown
from state_machines.decisions.topic_change import new_partitions
from state_machines.machines.draft import Draft
from state_machines.model.cluster import StaleChange, leadership_of
from state_machines.model.decision import ReplicaMove
from state_machines.model.types import (
    NO_LEADER,
    Assignment,
    Leadership,
    PartitionRow,
    PartitionState,
    ReplicaState,
    TopicAssignment,
)
from tests.kit.kafka.model import (
    EPOCH,
    P,
    carried_out,
    come_back,
    decided,
    die,
    enter,
    make_cluster,
    topic,
    topic_gone,
    writes_of,
)


def test_equal_assignments_and_isrs_are_one_object() -> None:
    cluster = make_cluster(*[P((1, 2, 3), 1, (2, 3))] * 4, P((2, 1, 3), 2))
    first = cluster.rows[0]
    assert all(row.assignment is first.assignment and row.isr is first.isr for row in cluster.rows[:4])
    assert cluster.rows[4].assignment is not first.assignment
    moving = Assignment((1, 2, 3), adding=(3,))
    partitions = {0: Assignment((1, 2, 3)), 1: moving, 2: Assignment((1, 2, 3), adding=(3,))}
    known, alike, moved = cluster.observe_topic(TopicAssignment("more", None, partitions, 0, 60))
    assert cluster.rows[known].assignment is first.assignment
    assert cluster.rows[alike].assignment is cluster.rows[moved].assignment is moving
    assert cluster.hosted(3) == [0, 1, 2, 3, 4], "the others have no state yet"
    cluster.load_leadership([known, alike, moved], [None] * 3)
    assert cluster.hosted(3) == list(range(8))


@pytest.mark.seed("S4-1")
def test_a_recreated_topic_gets_rows_of_its_own() -> None:
    """A write that is under way for the former incarnation cannot hit the next."""
    cluster = make_cluster(P((1, 2), 1))
    stale = decided(cluster, partial(broker_death, dead=[1]))
    assert topic_gone(cluster, "t") == [0]
    assert cluster.topic("t") is None
    assert topic_gone(cluster, "t") == []
    assert cluster.observe_topic(topic("t", [(2, 3)], czxid=90)) == [1]
    again = cluster.topic("t")
    assert again is not None
    assert (again.index, again.czxid, list(again.rows)) == (1, 90, [1])
    assert (cluster.find("t", 0), cluster.name(0), cluster.name(1)) == (1, ("t", 0), ("t", 0))
    with pytest.raises(StaleChange, match="t-0 changed between decision and commit"):
        cluster.apply(stale.writes)
    assert cluster.rows[0].state is PartitionState.NON_EXISTENT


@pytest.mark.kafka("ControllerContextTest.test*ReturnsEmpty*")
@pytest.mark.seed("S4-1", "S4-2", "S4-3", "S4-4", "S4-67")
@pytest.mark.parametrize(
    ("found", "state"),
    [
        (None, PartitionState.NEW),
        (Leadership(1, 3, (1, 2), 5, 7), PartitionState.ONLINE),
        (Leadership(4, 3, (4, 2), 5, 7), PartitionState.OFFLINE),
        (Leadership(NO_LEADER, 3, (4,), 5, 7, recovering=True), PartitionState.OFFLINE),
    ],
)
def test_a_loaded_partition_is_new_online_or_offline_by_its_state_znode(
    found: Leadership | None, state: PartitionState
) -> None:
    cluster = make_cluster()
    [row] = cluster.observe_topic(topic("t", [(1, 2, 4)]))
    cluster.load_leadership([row], [found])
    assert cluster.rows[row].state is state
    assert leadership_of(cluster.rows[row]) == found
    assert (row in cluster.leaderless) == (state is not PartitionState.ONLINE)
    assert topic_gone(cluster, "t") == [row]
    assert (cluster.rows[row].state, cluster.leaderless) == (PartitionState.NON_EXISTENT, set())
    assert not cluster.rows[row].has_leadership
    assert cluster.find("t", 0) is None


@pytest.mark.seed("S4-80")
def test_a_state_znode_is_observed_where_its_content_differs() -> None:
    cluster = make_cluster(P((1, 2), 1, (1,), epoch=3, version=4))
    assert cluster.observe_leadership(0, leadership_of(cluster.rows[0])) is None, "it is known"
    change = cluster.observe_leadership(0, Leadership(1, 3, (1, 2), EPOCH - 1, 5))
    assert change is not None
    assert (change.after.isr, change.after.version, change.after.state) == ((1, 2), 5, PartitionState.ONLINE)
    assert change.after.leader_epoch == 3
    assert not change.is_new
    assert change.after is cluster.rows[0]


def test_a_state_znode_that_was_created_anew_with_the_same_version_is_observed() -> None:
    cluster = make_cluster(P((1, 2), 1))
    change = cluster.observe_leadership(0, Leadership(2, 0, (2,), 9, 0))
    assert change is not None
    assert cluster.rows[0].leader == 2
    gone = cluster.observe_leadership(0, None)
    assert gone is not None
    assert (cluster.rows[0].state, cluster.leaderless) == (PartitionState.NEW, {0})


def test_a_change_is_applied_once() -> None:
    cluster = make_cluster(P((1, 2), 1))
    die(cluster, 1)
    decision = decided(cluster, partial(broker_death, dead=[1]))
    enter(cluster, decision)
    with pytest.raises(StaleChange):
        cluster.apply(decision.writes)


@pytest.mark.seed("S4-44", "S4-45")
def test_a_write_that_was_given_up_is_decided_again_at_the_next_event() -> None:
    """The model must not call a partition Online under a dead leader."""
    cluster = make_cluster(P((1, 2), 1), P((2, 3), 2))
    die(cluster, 1)
    assert 0 in writes_of(decided(cluster, partial(broker_death, dead=[1])))
    cluster.observe_undecided([0, 1])
    assert [row.state.name for row in cluster.rows] == ["OFFLINE", "ONLINE"]
    assert cluster.leaderless == {0}
    die(cluster, 3)
    assert writes_of(carried_out(cluster, partial(broker_death, dead=[3])))[0] == (2, (2,), 1, 1)


@pytest.mark.kafka(
    "PartitionStateMachineTest.testNewPartitionToOnlinePartitionTransitionZooKeeperClientExceptionFromCreateStates",
    "PartitionStateMachineTest.testNewPartitionToOnlinePartitionTransitionErrorCodeFromCreateStates",
)
def test_a_create_that_was_given_up_is_decided_again_at_the_next_event() -> None:
    cluster = make_cluster()
    rows = cluster.observe_topic(topic("t", [(1, 2)]))
    decided(cluster, partial(new_partitions, rows=rows))
    cluster.observe_undecided(rows)
    assert cluster.rows[0].state is PartitionState.NEW
    die(cluster, 2)
    assert writes_of(carried_out(cluster, partial(broker_death, dead=[2]))) == {0: (1, (1,), 0, 0)}


def test_a_write_that_was_given_up_brings_no_vanished_topic_back() -> None:
    cluster = make_cluster(P((1, 2), 1))
    topic_gone(cluster, "t")
    cluster.observe_undecided([0])
    assert cluster.rows[0].state is PartitionState.NON_EXISTENT
    assert cluster.leaderless == set()


@pytest.mark.seed("S4-29")
def test_offline_replicas_follow_liveness() -> None:
    cluster = make_cluster(P((1, 2, 4), 1))
    assert cluster.offline_replicas(0) == (4,)
    cluster.observe_shutting_down(2)
    assert cluster.offline_replicas(0) == (2, 4)
    die(cluster, 2)
    come_back(cluster, 2, 4)
    assert cluster.offline_replicas(0) == ()


def test_a_broker_hosts_the_rows_that_exist() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 3), 2), P((1, 2), 1), P((3, 1), 3))
    assert cluster.hosted(1) == [0, 2, 3]
    cluster.observe_topic(topic("u", [(1,)]))
    assert cluster.hosted(1) == [0, 2, 3], "it has not started yet"
    topic_gone(cluster, "t")
    assert cluster.hosted(1) == []


def test_exceptions_of_replicas_end_with_the_incarnation_of_their_broker() -> None:
    cluster = make_cluster(P((2, 1), 2), P((2, 3), 2))
    cluster.observe_shutting_down(1)
    carried_out(cluster, partial(controlled_shutdown, broker=1))
    cluster.apply_replicas([ReplicaMove(1, 3, ReplicaState.DELETION_STARTED, "test")])
    assert cluster.stopped(0, 1)
    come_back(cluster, 1)
    assert not cluster.stopped(0, 1)
    assert cluster.replica_states == {(1, 3): ReplicaState.DELETION_STARTED}
    topic_gone(cluster, "t")
    assert cluster.replica_states == {}


def test_states_that_registrations_imply_are_not_kept() -> None:
    """Moves are applied before the writes of their rows, which are NonExistent so far."""
    cluster = make_cluster()
    rows = cluster.observe_topic(topic("t", [(1, 2)] * 3))
    decision = decided(cluster, partial(new_partitions, rows=rows))
    cluster.apply_replicas(decision.replica_moves)
    assert cluster.replica_states == {}
    cluster.apply_replicas([ReplicaMove(0, 9, ReplicaState.OFFLINE, "its broker is absent")])
    assert cluster.replica_states == {}


def test_a_known_topic_id_is_replaced_only_while_no_evidence_confirms_it() -> None:
    cluster = make_cluster(P((1, 2), 1))
    [row] = cluster.observe_topic(TopicAssignment("u", None, {0: Assignment((1, 2))}, 0, 60))
    first, second, third = (bytes([n]) * 16 for n in (1, 2, 3))

    def known() -> list[str | None]:
        found = map(cluster.topic_by_id, (first, second, third))
        return [None if topic is None else topic.name for topic in found]

    for name, topic_id in (("u", first), ("u", second), ("unknown", third)):
        cluster.observe_topic_id(name, topic_id)
    assert (known(), cluster.ids_learned) == ([None, "u", None], 2), "no broker was sent a partition of it"
    cluster.load_leadership([row], [P((1, 2), 1).leadership()])
    cluster.observe_topic_id("u", third)
    assert (known(), cluster.ids_learned) == ([None, "u", None], 2), "it runs with its id"
    cluster.observe_id_refused(1, [row])
    assert [cluster.doubts_id(topic) for topic in cluster.topics] == [False, True]
    cluster.observe_topic_id("u", third)
    assert (known(), cluster.ids_learned, cluster.ids_refused) == ([None, None, "u"], 3, {})
    topic_gone(cluster, "u")
    assert known() == [None] * 3


def test_an_id_is_in_doubt_until_each_log_that_refused_it_is_deleted() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1))
    topic = cluster.topics[0]
    cluster.observe_id_refused(1, [0, 1])
    cluster.observe_id_refused(2, [1])
    for broker, rows in ((2, [0]), (1, [0]), (3, [1]), (2, [1])):
        cluster.observe_logs_deleted(broker, rows)
        assert cluster.doubts_id(topic), "broker 1 has the log of row 1 still"
    cluster.observe_logs_deleted(1, [1])
    assert not cluster.doubts_id(topic)
    assert cluster.ids_refused == {}


def test_rows_are_found_by_their_brokers_even_when_they_are_gone() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 3), 2), P((1, 2), 1), P((3, 9), 3))
    topic_gone(cluster, "t")
    assert [cluster.rows_on(brokers) for brokers in ([1], [1, 9], [2, 3], [7], [])] == [
        {0, 2}, {0, 2, 3}, {0, 1, 2, 3}, set(), set(),
    ]  # fmt: skip
    assert cluster.hosts() == {1, 2, 3, 9}
    assert (cluster.present, cluster.ended) == (0, 4)


def test_a_replica_is_stopped_while_it_or_its_log_directory_is_offline() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1))
    assert (cluster.any_stopped, cluster.any_failed) == (False, False)
    cluster.apply_replicas([ReplicaMove(0, 2, ReplicaState.OFFLINE, "a test")])
    assert (cluster.any_stopped, cluster.any_failed, cluster.stopped(0, 2), cluster.stopped(1, 2)) == (
        True, False, True, False,
    )  # fmt: skip
    cluster.apply_replicas([ReplicaMove(0, 2, ReplicaState.ONLINE, "a test")])
    cluster.observe_failed_dirs(1, [1])
    assert (cluster.any_stopped, cluster.any_failed, cluster.stopped(0, 2), cluster.stopped(1, 1)) == (
        True, True, False, True,
    )  # fmt: skip


def test_a_reassigned_row_keeps_the_failures_of_replicas_that_stay() -> None:
    """A removed replica that comes back has another log."""
    cluster = make_cluster(P((1, 2, 3), 1), P((1, 2, 3), 1))
    for broker in (2, 3):
        cluster.observe_failed_dirs(broker, [0, 1])

    def reassign(draft: Draft) -> None:
        draft.assign(0, Assignment((1, 2)), "a test")
        draft.assign(1, Assignment((1,)), "a test")

    carried_out(cluster, reassign)
    assert cluster.failed_dirs == {0: {2}}
    assert (cluster.hosted(2), cluster.hosted(3)) == ([0], [])


def test_a_state_znode_under_a_failed_leader_is_offline() -> None:
    cluster = make_cluster(P((1, 2), 1))
    cluster.observe_failed_dirs(2, [0])
    for version, (leader, state) in enumerate(((2, PartitionState.OFFLINE), (1, PartitionState.ONLINE)), 1):
        cluster.observe_leadership(0, Leadership(leader, version, (1, 2), EPOCH, version))
        assert (cluster.rows[0].state, 0 in cluster.leaderless) == (state, state is PartitionState.OFFLINE)


@pytest.mark.seed("S4-51")
def test_assignments_of_known_partitions_are_observed() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1))
    moving = Assignment((3, 1, 2), (3,), (2,))
    assert cluster.observe_assignments("t", 4, {1: moving, 9: moving}) == [1]
    assert cluster.observe_assignments("u", 4, {1: moving}) == []
    assert (cluster.reassigning, cluster.topics[0].version) == ({1: moving}, 4)
    assert cluster.rows[1].assignment == Assignment((1, 2)), "the row follows by a decision"
    assert cluster.observe_assignments("t", 5, {1: Assignment((1, 2))}) == [1]
    assert cluster.reassigning == {}
    cluster.observe_assignments("t", 6, {1: moving})
    topic_gone(cluster, "t")
    assert cluster.reassigning == {}


@pytest.mark.seed("S4-64")
def test_rows_whose_isr_has_brokers_outside_of_the_assignment_are_strays() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1, (1, 3)), P((1, 2), 1, (1, 3)))
    assert cluster.observe_strays([0, 1]) == [1]
    assert cluster.observe_strays() == [2]
    assert cluster.reassigning == dict.fromkeys((1, 2), Assignment((1, 2)))
    assert (cluster.rows[1].assignment.replicas, cluster.hosted(3)) == ((1, 2, 3), [1, 2])


@pytest.mark.parametrize(
    ("assignment", "leader", "isr", "preferred", "behind"),
    [
        (Assignment((1, 2)), 1, (1, 2), True, False),
        (Assignment((1, 2)), 2, (2,), False, True),
        (Assignment((3, 1, 2), (3,), (2,)), 1, (1, 2), True, False),
        (Assignment((1, 2, 3), (3,), (2,)), 2, (2,), False, True),
    ],
)
def test_a_replica_that_is_being_added_is_neither_preferred_nor_missing(
    assignment: Assignment, leader: int, isr: tuple[int, ...], preferred: bool, behind: bool
) -> None:
    row = PartitionRow(0, 0, assignment, PartitionState.ONLINE, leader, 0, isr, EPOCH, 0)
    assert (row.led_as_preferred, row.under_replicated) == (preferred, behind)


def test_a_decision_without_rows_keeps_its_writes_and_the_other_rows() -> None:
    cluster = make_cluster(*[P((1, 2), 1)] * 3)
    draft = Draft(cluster)
    draft.lead(2, 2, (2,), "a test")
    for i in (0, 1):
        draft.move_replica(ReplicaMove(i, 1, ReplicaState.OFFLINE, "a test"))
        draft.refuse(i, "ONLINE", "a test")
    draft.send_metadata([0, 1])
    left = draft.finish().without([0])
    assert [change.entity for change in left.writes] == [2]
    assert ([move.entity for move in left.replica_moves], left.metadata) == ([1], [1])
    assert [refusal.entity for refusal in left.refusals] == [1]
