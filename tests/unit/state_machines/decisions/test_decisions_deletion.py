"""Topic deletion: queries on its progress, and the events that the stories g and g2 do not have (S4-78)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from state_machines.decisions.broker_change import broker_death, broker_return, controlled_shutdown
from state_machines.decisions.deletion import (
    MOVES,
    WAITS,
    Markers,
    advance,
    answered,
    awaited,
    finished,
    ineligible,
    replicas_left,
    restored,
    sort_markers,
    under_way,
    waiting_for,
)
from state_machines.decisions.failover import failover
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Decision
from state_machines.model.types import Assignment, Leadership, PartitionRow, PartitionState, ReplicaState
from state_machines.propagation.propagation import Propagation
from tests.kit.kafka.model import P, carried_out, come_back, decided, die, make_cluster, topic, topic_gone, writes_of

ONLINE, OFFLINE = ReplicaState.ONLINE, ReplicaState.OFFLINE
STARTED, SUCCESSFUL, INELIGIBLE = (
    ReplicaState.DELETION_STARTED,
    ReplicaState.DELETION_SUCCESSFUL,
    ReplicaState.DELETION_INELIGIBLE,
)


def queued(*partitions: P, brokers: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    """Makes a model whose topic ``t`` has a marker."""
    cluster = make_cluster(*partitions, brokers=brokers)
    assert cluster.observe_deletions(["t"]) == [0]
    return cluster


def start(cluster: Cluster, *, retry: bool = False) -> Decision:
    return carried_out(cluster, partial(advance, topics=sorted(cluster.deletions), retry=retry))


def respond(cluster: Cluster, broker: int, *rows: int, failed: tuple[int, ...] = ()) -> Decision:
    return carried_out(cluster, partial(answered, broker=broker, deleted=rows, failed=failed))


def states(cluster: Cluster, i: int = 0) -> dict[int, ReplicaState]:
    return {b: cluster.replica_state(i, b) for b in cluster.rows[i].assignment.replicas}


@pytest.mark.seed("S4-78")
@pytest.mark.parametrize(
    ("enabled", "known", "found"),
    [
        (True, (), Markers(("x",), ("t", "u"))),
        (False, (), Markers(("t", "u", "x"), ())),
        (None, (), Markers(("x",), ())),
        (False, ("u",), Markers(("t", "x"), ("u",))),
        (None, ("u",), Markers(("x",), ("u",))),
    ],
)
def test_a_marker_is_queued_removed_or_kept_until_the_setting_is_known(
    enabled: bool | None, known: tuple[str, ...], found: Markers
) -> None:
    """A deletion that brokers have been sent goes on although deletion is switched off."""
    cluster = make_cluster(P((1, 2), 1))
    cluster.observe_topic(topic("u", [(1, 2)], czxid=60))
    cluster.observe_deletions(known)
    assert sort_markers(cluster, ["x", "u", "t"], enabled=enabled) == found


@pytest.mark.kafka("TopicDeletionManagerTest.testInitialization")
@pytest.mark.seed("S4-78")
@pytest.mark.parametrize(
    ("first", "second", "waits", "is_under_way", "is_finished", "left", "stuck"),
    [
        (STARTED, STARTED, None, True, False, 2, 0),
        (STARTED, SUCCESSFUL, None, True, False, 1, 0),
        (STARTED, INELIGIBLE, WAITS, True, False, 2, 1),
        (SUCCESSFUL, INELIGIBLE, WAITS, False, False, 1, 1),
        (INELIGIBLE, INELIGIBLE, WAITS, False, False, 2, 2),
        (SUCCESSFUL, SUCCESSFUL, None, False, True, 0, 0),
        (ONLINE, OFFLINE, None, False, False, 2, 0),
    ],
)
def test_a_deletion_is_under_way_waits_or_is_finished_by_the_states_of_its_replicas(
    first: ReplicaState,
    second: ReplicaState,
    waits: str | None,
    is_under_way: bool,
    is_finished: bool,
    left: int,
    stuck: int,
) -> None:
    """A topic without a marker has the same states and is neither."""
    cluster = queued(P((1, 2), 1))
    [other] = cluster.observe_topic(topic("u", [(1, 2)], czxid=60))
    for i in (0, other):
        cluster.replica_states.update({(i, 1): first, (i, 2): second})
    assert ineligible(cluster) == ineligible(cluster, [0, 1]) == ({} if waits is None else {0: waits})
    assert ineligible(cluster, [1]) == {}
    assert under_way(cluster, [0, 1]) == ([0] if is_under_way else [])
    assert finished(cluster, [0, 1]) == ([0] if is_finished else [])
    assert replicas_left(cluster, [0]) == left
    assert replicas_left(cluster, [0], ineligible=True) == stuck


@pytest.mark.seed("S4-78")
def test_a_reassignment_that_has_to_end_first_is_the_reason_of_the_wait() -> None:
    cluster = queued(P((1, 2), 1), P((1, 2), 1))
    cluster.observe_assignments("t", 1, {1: Assignment((2, 3, 1), (3,), (1,))})
    assert [(refusal.entity, refusal.why) for refusal in start(cluster).refusals] == [(1, MOVES)]
    assert (ineligible(cluster), cluster.rows[0].state) == ({0: MOVES}, PartitionState.ONLINE)


@pytest.mark.seed("S4-78")
def test_a_topic_whose_isr_names_brokers_that_its_znode_does_not_is_deleted_at_once_and_on_these_brokers_too() -> None:
    """Nothing can end such a reassignment where no assigned replica is in sync: no client can cancel it either."""
    cluster = queued(P((2,), 1))
    cluster.load_leadership([0], [Leadership(1, 0, (1,), 1, 0)])
    assert cluster.observe_strays() == [0]
    decision = start(cluster)
    assert not decision.refusals
    assert {move.broker for move in decision.replica_moves if move.stop} == {1, 2}


@pytest.mark.seed("S4-78")
def test_brokers_are_sent_the_end_of_a_partition_that_started_even_when_its_znodes_are_gone() -> None:
    """Partition 1 has no state znode: it never started (KAFKA-6650), or a deletion before has deleted that already."""
    cluster = queued(P((1, 2), 1), P((2, 1)))
    propagation = Propagation(cluster)
    for broker in (1, 2, 3):
        propagation.add(broker)
    decision = decided(cluster, partial(advance, topics=[0]))
    cluster.apply(decision.moves)
    cluster.apply_replicas(decision.replica_moves)
    propagation.propagate(decision.moves, decision.replica_moves)
    both = {0: True, 1: True}
    assert {b: (p.stop, p.lead) for b, p in propagation.pending.items()} == {1: (both, {}), 2: (both, {}), 3: ({}, {})}
    respond(cluster, 1, 0, 1)
    respond(cluster, 2, 0, 1)
    assert finished(cluster, [0]) == [0]
    topic_gone(cluster, "t")
    assert propagation.feed.since(0, propagation.feed.number, 99)[0] == [0, 1], "brokers may know both"
    assert cluster.rows[0].has_leadership
    assert all(row.is_removed for row in cluster.rows)


@pytest.mark.seed("S4-78", "S4-88")
def test_a_daemons_id_among_the_replicas_holds_nothing_up() -> None:
    """It has no log: Kafka's controller started the topic before a daemon was there."""
    daemon = 1000001
    cluster = queued(P((1, daemon), 1, (1,)), brokers=(1,))
    cluster.daemons = frozenset({daemon})
    start(cluster)
    assert (ineligible(cluster), replicas_left(cluster, [0])) == ({}, 1)
    respond(cluster, 1, 0)
    assert (finished(cluster, [0]), replicas_left(cluster, [0])) == ([0], 0)


@pytest.mark.kafka("TopicDeletionManagerTest.testBrokerFailureAfterDeletionStarted")
@pytest.mark.seed("S4-78")
def test_a_broker_that_dies_before_its_response_is_sent_the_deletion_again_when_it_returns() -> None:
    cluster = queued(P((1, 2), 1))
    start(cluster)
    respond(cluster, 1, 0)
    die(cluster, 1, 2)
    assert carried_out(cluster, partial(broker_death, dead=[1, 2])).empty, "there is no election any more"
    assert states(cluster) == {1: SUCCESSFUL, 2: INELIGIBLE}, "what is deleted stays deleted"
    come_back(cluster, 1, 2)
    assert (waiting_for(cluster, [2]), waiting_for(cluster, [3])) == ([0], [])
    moves = start(cluster, retry=True).replica_moves
    assert [(m.broker, m.state, m.delete) for m in moves] == [(2, STARTED, True)]


@pytest.mark.seed("S4-78")
@pytest.mark.parametrize("failed", [(1,), (0, 1)], ids=["one log directory", "the whole request"])
def test_a_failed_deletion_is_sent_again_at_a_retry_only(failed: tuple[int, ...]) -> None:
    """A broker with a full or broken disk would otherwise get the same request for ever."""
    cluster = queued(P((1,), 1), P((1,), 1))
    start(cluster)
    for _ in range(3):
        respond(cluster, 1, 0, 1, failed=failed)
        assert [states(cluster, i)[1] for i in (0, 1)] == [INELIGIBLE if i in failed else SUCCESSFUL for i in (0, 1)]
        assert start(cluster).empty
        start(cluster, retry=True)
        assert [states(cluster, i)[1] for i in (0, 1)] == [STARTED if i in failed else SUCCESSFUL for i in (0, 1)]
    respond(cluster, 1, 0, 1)
    assert finished(cluster, [0]) == [0]


@pytest.mark.kafka(
    "ControllerChannelManagerTest.testStopReplicaRequestsWhileTopicDeletionStarted",
    "ControllerChannelManagerTest.testStopReplicaRequestWithoutDeletePartitionWhileTopicDeletionStarted",
)
@pytest.mark.seed("S4-78")
def test_a_response_to_another_stop_replica_deletes_nothing() -> None:
    """KAFKA-9946. And a response counts once."""
    cluster = queued(P((1, 2), 1))
    assert respond(cluster, 1, 0).empty
    start(cluster)
    respond(cluster, 1, 0)
    assert respond(cluster, 1, 0).empty


@pytest.mark.seed("S4-78")
def test_events_of_brokers_leave_deleted_partitions_alone() -> None:
    cluster = queued(P((1, 2), 1), P((1, 2)))
    start(cluster)
    before = list(cluster.rows)
    cluster.observe_shutting_down(1)
    assert carried_out(cluster, partial(controlled_shutdown, broker=1)).empty
    assert cluster.observe_leadership(0, Leadership(1, 0, (1,), 6, 9)) is None, "an ISR notification that is late"
    cluster.observe_undecided([0, 1])
    assert carried_out(cluster, failover).empty
    assert all(a is b for a, b in zip(before, cluster.rows, strict=True))


@pytest.mark.seed("S4-78")
def test_a_queued_partition_gets_a_leader_only_where_a_reassignment_has_to_end_first() -> None:
    cluster = make_cluster(P((8, 9), 8), P((8, 9)), P((8, 9), 8))
    cluster.observe_assignments("t", 1, {2: Assignment((9, 8, 1), (1,), (8,))})
    cluster.observe_deletions(["t"])
    come_back(cluster, 8)
    assert list(writes_of(carried_out(cluster, partial(broker_return, returned=[8])))) == [2]


@pytest.mark.seed("S4-78")
def test_only_partitions_that_were_added_to_a_queued_topic_are_taken_back() -> None:
    cluster = queued(P((1, 2), 1))
    grown = topic("t", [(1, 2), (2, 3), (3, 1)], version=5)
    change = restored(cluster, grown)
    assert change is not None
    assert (change.topic, change.version, change.czxid, change.partitions, change.dropped) == ("t", 5, 50, {}, (1, 2))
    assert restored(cluster, topic("t", [(1, 2)], version=6)) is None
    assert restored(make_cluster(P((1, 2), 1)), grown) is None


@pytest.mark.seed("S4-30", "S4-37", "S4-78")
def test_a_recreated_topic_has_nothing_of_the_deleted_one() -> None:
    cluster = queued(P((1, 2), 1))
    start(cluster)
    topic_gone(cluster, "t")
    assert {cluster.replica_state(0, b) for b in (1, 2)} == {ReplicaState.NON_EXISTENT}
    [row] = cluster.observe_topic(topic("t", [(1, 2)], czxid=90))
    cluster.load_leadership([row], [Leadership(1, 0, (1, 2), 7, 0)])
    assert respond(cluster, 1, 0).empty
    assert (cluster.deletions, cluster.replica_states) == (set(), {})
    assert cluster.replica_state(row, 1) is ONLINE
    assert cluster.observe_deletions(["t"]) == [1]
    assert cluster.observe_deletions(["t"]) == []


class Counted(list[PartitionRow]):
    """Rows that count how often one is looked at."""

    looks = 0

    def __getitem__(self, i: Any) -> Any:
        self.looks += 1
        return super().__getitem__(i)


def test_what_a_deletion_waits_for_is_found_by_a_few_looks_at_each_row_however_many_brokers_are_dead() -> None:
    """The first broker of the replicas is alive; the waits for all other ones but broker 7 have been ended."""
    rows, dead = 40, (2, 3, 4, 5, 6, 7)
    cluster = queued(*(P((1, *dead)) for _ in range(rows)), brokers=(1,))
    cluster.rows = Counted(
        replace(row, state=PartitionState.NON_EXISTENT, leader=-2) for row in (cluster.rows[i] for i in range(rows))
    )
    cluster.observe_given_up((i, broker) for i in range(rows) for broker in dead if (i, broker) != (rows - 1, 7))
    assert awaited(cluster, range(rows)) == [7]
    assert cluster.rows.looks <= 3 * rows
