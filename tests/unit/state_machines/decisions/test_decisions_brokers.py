"""Deaths, returns and controlled shutdowns of brokers, and replicas on failed log directories (S4-29, S4-81)."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from state_machines.decisions.alter_partition import IsrRequest
from state_machines.decisions.broker_change import (
    BrokerDelta,
    broker_death,
    compare,
    controlled_shutdown,
    keep_out,
    log_directories_failed,
    move_leaders,
    proposed,
    remaining,
    stop_followers,
)
from state_machines.decisions.failover import TAKEN_UP, take_up
from state_machines.decisions.leader_election import ElectionType, elect, to_balance
from state_machines.machines import selectors
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Decision, Refusal, ReplicaMove
from state_machines.model.types import NO_LEADER, Assignment, PartitionState, ReplicaState, TopicAssignment
from tests.kit.kafka.model import (
    P,
    broker,
    carried_out,
    come_back,
    decided,
    die,
    make_cluster,
    registered,
    topic,
    topic_gone,
    writes_of,
)


def death(cluster: Cluster, *dead: int) -> Decision:
    die(cluster, *dead)
    return carried_out(cluster, partial(broker_death, dead=dead))


def shut_down(cluster: Cluster, leaving: int) -> Decision:
    cluster.observe_shutting_down(leaving)
    return carried_out(cluster, partial(controlled_shutdown, broker=leaving))


@pytest.mark.parametrize(
    ("known", "found", "expected"),
    [
        ({}, {1: 100}, BrokerDelta((1,), (), (), ())),
        ({1: 100}, {}, BrokerDelta((), (1,), (), ())),
        ({1: 100}, {1: 100}, BrokerDelta((), (), (), ())),
        ({1: 100}, {1: 101}, BrokerDelta((), (), (1,), ())),
        ({1: 100, 2: 100, 3: 100}, {4: 7, 3: 300, 1: 100}, BrokerDelta((4,), (2,), (3,), ())),
    ],
)
def test_a_snapshot_of_registrations_has_new_dead_and_bounced_brokers(
    known: dict[int, int], found: dict[int, int], expected: BrokerDelta
) -> None:
    """A restart that is faster than its event shows by the broker epoch (KAFKA-7235)."""
    delta = compare({b: broker(b, e) for b, e in known.items()}, {b: broker(b, e) for b, e in found.items()})
    assert delta == expected
    assert delta.empty == (known == found)


def test_the_same_incarnation_with_other_data_is_modified() -> None:
    delta = compare({1: broker(1)}, {1: broker(1, rack="b")})
    assert delta == BrokerDelta((), (), (), (1,))
    assert not delta.empty


def test_a_dead_leader_outside_of_the_assignment_is_replaced() -> None:
    """A state znode that was written by hand: without an election the partition would stay dead for ever."""
    cluster = make_cluster(P((1, 2), leader=3, isr=(1, 2, 3)))
    assert writes_of(death(cluster, 3)) == {0: (1, (1, 2), 1, 1)}


def test_partitions_of_a_vanished_topic_are_not_decided_on() -> None:
    cluster = make_cluster(P((1, 2), 1))
    cluster.observe_topic(topic("u", [(1, 3)]))
    cluster.load_leadership([1], [P((1, 3), 1).leadership()])
    topic_gone(cluster, "t")
    assert list(writes_of(death(cluster, 1))) == [1]
    assert list(writes_of(death(cluster, 3))) == [1]
    assert cluster.rows[0].state is PartitionState.NON_EXISTENT


def test_an_assignment_that_names_a_broker_twice_is_decided_once() -> None:
    found = TopicAssignment("t", None, {0: Assignment((1, 1, 2))}, 0, 1)
    cluster = make_cluster()
    cluster.load_leadership(cluster.observe_topic(found), [P((1, 2), 1).leadership()])
    assert writes_of(death(cluster, 1)) == {0: (2, (2,), 1, 1)}


@pytest.mark.seed("S4-46", "S4-48")
def test_a_new_incarnation_is_no_longer_shutting_down() -> None:
    cluster = make_cluster(P((1, 2), 1))
    cluster.observe_shutting_down(1)
    assert (1 in cluster.live, 1 in cluster.brokers) == (False, True)
    cluster.observe_brokers({**cluster.brokers, 2: broker(2, epoch=300)})
    assert cluster.shutting_down == {1}
    cluster.observe_brokers({**cluster.brokers, 1: broker(1, epoch=300)})
    assert cluster.live == {1, 2, 3}
    assert cluster.shutting_down == frozenset()


@pytest.mark.seed("S4-72")
def test_partitions_that_no_other_broker_could_lead_are_left_alone_and_not_reported() -> None:
    """They have a single replica, or never had a leader."""
    cluster = make_cluster(P((1,), 1), P((1, 2)))
    decision = shut_down(cluster, 1)
    assert (decision.empty, decision.refusals, remaining(cluster, 1)) == (True, [], [])


@pytest.mark.seed("S4-20", "S4-72", "S4-73", "S4-74")
def test_a_repeated_shutdown_stops_what_the_broker_follows_by_then_and_writes_nothing() -> None:
    """The broker sends its request again when the first response was lost."""
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), P((3, 2), 3))
    assert writes_of(shut_down(cluster, 1)) == {0: (2, (2,), 1, 1), 1: (2, (2,), 1, 1)}
    again = shut_down(cluster, 1)
    assert again.writes == []
    assert [(m.entity, m.broker, m.stop, m.delete) for m in again.replica_moves] == [
        (0, 1, True, False),
        (1, 1, True, False),
    ]


@pytest.mark.seed("S4-72", "S4-73")
def test_rows_whose_leadership_was_just_given_away_are_not_stopped() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2))
    cluster.observe_shutting_down(1)
    carried_out(cluster, partial(move_leaders, broker=1))
    stopped = decided(cluster, partial(stop_followers, broker=1, moved=[0]))
    assert [move.entity for move in stopped.replica_moves] == [1]


@pytest.mark.seed("S4-73")
def test_a_shutdown_that_may_be_undone_stops_only_followers_whose_leader_epoch_it_raises() -> None:
    """Brokers ignore LeaderAndIsr with the epoch of the replica that they stopped."""
    cluster = make_cluster(P((2, 1), 2), P((2, 1), 2, (2,)), P((2, 1), -1, (1,)))
    for may_be_undone, expected in ((False, [0, 1, 2]), (True, [0])):
        stops = partial(stop_followers, broker=1, may_be_undone=may_be_undone)
        found = decided(cluster, stops)
        assert [move.entity for move in found.replica_moves] == expected
        assert writes_of(found)[0] == (2, (2,), 1, 1)


@pytest.mark.seed("S4-73", "S4-80")
def test_followers_that_leaders_want_in_the_isr_stop_under_the_next_leader_epoch() -> None:
    cluster = make_cluster(P((2, 1), 2, (2,), epoch=4), P((2, 1), 2, (2,), epoch=4))
    cluster.observe_shutting_down(1)
    found = carried_out(cluster, partial(keep_out, broker=1, fetching={0: 4}))
    assert writes_of(found) == {0: (2, (2,), 5, 1)}
    assert [(m.entity, m.broker, m.state, m.stop) for m in found.replica_moves] == [(0, 1, ReplicaState.OFFLINE, True)]
    assert decided(cluster, partial(keep_out, broker=1, fetching={0: 4})).empty, "the request is outdated by now"


@pytest.mark.seed("S4-73", "S4-80")
def test_followers_are_not_kept_out_where_something_else_came_first() -> None:
    """Their partition has another leader epoch or ISR, they are being removed, or its state or leader is gone."""
    cluster = make_cluster(
        P((2, 1), 2, (2,), epoch=5), P((2, 1), 2), P((2, 3, 1), 2, (2, 3)), P((2, 1)), P((2, 1), NO_LEADER, (2,))
    )
    cluster.observe_shutting_down(1)
    for state in (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED):
        cluster.apply_replicas([ReplicaMove(2, 1, state, "")])
    found = decided(
        cluster, partial(keep_out, broker=1, fetching={0: 4, 1: 0, 2: 0, 3: cluster.rows[3].leader_epoch, 4: 0})
    )
    assert (found.empty, found.refusals) == (True, [])


@pytest.mark.seed("S4-80")
def test_requests_that_were_refused_name_the_followers_whose_brokers_shut_down() -> None:
    """Not brokers that are gone, nor a leader that shuts down itself."""
    cluster = make_cluster(P((2, 1, 3), 2, (2,)), P((1, 2, 3), 1, (1,)))
    cluster.observe_shutting_down(1)
    die(cluster, 3)
    wanted = (None, (2, 1)), (0, (2, 1)), (0, (2, 3)), (1, (1, 2))
    refused = [IsrRequest(row, 7, 0, isr, recovering=False, by_id=True) for row, isr in wanted]
    assert proposed(cluster, refused) == {1: {0: 7}}


@pytest.mark.seed("S4-45", "S4-72")
def test_a_shutdown_that_finds_no_other_leader_is_reported_until_its_death_is_written() -> None:
    cluster = make_cluster(P((1, 2), 1, (1,)), P((2, 1), 2))
    shut_down(cluster, 1)
    assert remaining(cluster, 1) == [0]
    assert writes_of(death(cluster, 1)) == {0: (NO_LEADER, (1,), 1, 1)}
    assert (remaining(cluster, 1), cluster.replica_states) == ([], {})


def test_a_broker_is_outranked_until_its_incarnation_ends_or_it_accepts_a_request() -> None:
    cluster = make_cluster(P((1, 2, 3), 1))
    epoch = cluster.brokers[1].epoch
    assert not cluster.observe_outranked(1, epoch - 1), "that was a former incarnation"
    assert not cluster.observe_outranked(9, epoch), "it is not registered"
    assert cluster.observe_outranked(1, epoch)
    assert not cluster.observe_outranked(1, epoch), "it is known"
    assert cluster.outranked == {1}
    cluster.observe_brokers(registered((1, 2), epoch))
    assert cluster.outranked == {1}
    cluster.observe_brokers(registered((1, 2), epoch + 1))
    assert cluster.outranked == frozenset()
    cluster.observe_outranked(2, epoch + 1)
    cluster.observe_accepted(1)
    assert cluster.outranked == {2}
    cluster.observe_accepted(2)
    assert cluster.outranked == frozenset()


@pytest.mark.seed("S4-65", "S4-68")
def test_partitions_that_are_met_late_are_decided_as_at_the_begin_of_a_term_each_with_another_leader_epoch() -> None:
    cluster = make_cluster(
        P((1, 2), 1, epoch=3, version=5),
        P((4, 2), 4),
        P((2, 4), 2),
        P((4,), NO_LEADER, (4,)),
        P((1, 3)),
        P((1, 2), 1),
        P((1, 2), 1),
    )
    cluster.rows[6] = replace(cluster.rows[6], state=PartitionState.NON_EXISTENT)
    decision = decided(cluster, partial(take_up, rows=range(7)), only=[0, 1, 2, 3, 4, 6])
    assert writes_of(decision) == {
        0: (1, (1, 2), 4, 6),
        1: (2, (2,), 2, 1),
        2: (2, (2,), 1, 1),
        3: (NO_LEADER, (4,), 1, 1),
    }
    states = {change.entity: (change.why, change.after.state.name) for change in decision.writes}
    assert (states[0], states[3]) == ((TAKEN_UP, "ONLINE"), (TAKEN_UP, "OFFLINE"))
    assert [refusal.entity for refusal in decision.refusals] == [3]


def fail(cluster: Cluster, broker: int, *rows: int, unclean: bool = False) -> Decision:
    """Observes that these rows are on a failed log directory of the broker, and decides on that."""
    assert cluster.observe_failed_dirs(broker, rows) == list(rows)
    decide = partial(log_directories_failed, failed={broker: rows}, unclean=lambda _: unclean)
    return carried_out(cluster, decide)


@pytest.mark.seed("S4-29", "S4-81")
def test_replicas_on_a_failed_directory_are_offline_and_others_of_the_broker_online() -> None:
    cluster = make_cluster(P((1, 2, 3), 1), P((2, 1, 3), 2), P((1, 2), 1), P((1,), 1, epoch=3))
    decision = fail(cluster, 1, 0, 1, 3)
    assert writes_of(decision) == {0: (2, (2, 3), 1, 1), 1: (2, (2, 3), 1, 1), 3: (NO_LEADER, (1,), 4, 1)}
    assert decision.refusals == [Refusal(3, "ONLINE", selectors.NO_LIVE_ISR)]
    assert (cluster.rows[2].leader, cluster.replica_states, cluster.leaderless) == (1, {}, {3})
    offline, online = ReplicaState.OFFLINE, ReplicaState.ONLINE
    assert [cluster.replica_state(i, 1) for i in range(4)] == [offline, offline, online, offline]
    assert [cluster.offline_replicas(i) for i in range(4)] == [(1,), (1,), (), (1,)]
    die(cluster, 1)
    come_back(cluster, 1)
    assert cluster.failed_dirs == {}
    assert [cluster.offline_replicas(i) for i in range(4)] == [()] * 4


@pytest.mark.seed("S4-81", "S4-82")
def test_an_unclean_election_takes_no_failed_replica() -> None:
    cluster = make_cluster(P((1, 2, 3), 1, (1,)))
    fail(cluster, 2, 0)
    assert writes_of(fail(cluster, 1, 0, unclean=True)) == {0: (3, (3,), 1, 1)}


@pytest.mark.seed("S4-81")
def test_a_failure_is_new_once_for_each_replica_that_is_assigned() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 3), 2))
    fail(cluster, 1, 0)
    assert cluster.observe_failed_dirs(1, [0]) == []
    assert cluster.observe_failed_dirs(1, [1]) == [], "the broker has no replica of it"
    assert cluster.observe_failed_dirs(2, [0, 1]) == [0, 1]
    assert cluster.failed(0) == {1, 2}
    die(cluster, 2)
    assert cluster.failed_dirs == {0: {1}}


@pytest.mark.seed("S4-81")
def test_no_election_chooses_a_failed_replica() -> None:
    cluster = make_cluster(P((1, 2, 3), 2, (2, 1)), P((1, 2, 3), 2, (2, 1)))
    cluster.observe_failed_dirs(1, [0])
    assert to_balance(cluster, 10, 100) == [1]
    assert list(writes_of(decided(cluster, partial(elect, rows=[0, 1], kind=ElectionType.PREFERRED)))) == [1]
    cluster.observe_shutting_down(2)
    shutdown = decided(cluster, partial(controlled_shutdown, broker=2))
    assert list(writes_of(shutdown)) == [1]
    assert shutdown.refusals == [Refusal(0, "ONLINE", selectors.NO_OTHER_ISR)]
    die(cluster, 2)
    death = carried_out(cluster, partial(broker_death, dead=[2]))
    assert {i: w[0] for i, w in writes_of(death).items()} == {0: NO_LEADER, 1: 1}
    assert cluster.rows[0].state is PartitionState.OFFLINE


@pytest.mark.seed("S4-81")
def test_a_new_partition_starts_without_its_failed_replica() -> None:
    cluster = make_cluster(P((1, 2), 1))
    [row] = cluster.observe_topic(topic("u", [(1, 2)], czxid=60))
    cluster.load_leadership([row], [None])
    cluster.observe_failed_dirs(1, [row])
    decision = carried_out(cluster, partial(log_directories_failed, failed={}))
    assert writes_of(decision) == {row: (2, (2,), 0, 0)}


@pytest.mark.seed("S4-81")
def test_failures_of_a_topic_that_is_gone_decide_nothing() -> None:
    cluster = make_cluster(P((1, 2), 1))
    cluster.observe_failed_dirs(1, [0])
    topic_gone(cluster, "t")
    assert cluster.failed_dirs == {}
    assert carried_out(cluster, partial(log_directories_failed, failed={1: [0]})).empty
