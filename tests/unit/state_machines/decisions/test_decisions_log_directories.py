"""Replicas on failed log directories: offline although their broker lives (S4-29, S4-81)."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.decisions.broker_change import broker_death
from state_machines.decisions.controlled_shutdown import controlled_shutdown
from state_machines.decisions.leader_election import ElectionType, elect, to_balance
from state_machines.decisions.log_directories import log_directories_failed
from state_machines.machines import selectors
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Decision, Refusal
from state_machines.model.types import NO_LEADER, PartitionState, ReplicaState
from tests.kit.model import P, carried_out, come_back, decided, die, make_cluster, topic, topic_gone, writes_of


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
