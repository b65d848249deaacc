"""Controlled shutdown of a broker (S4-19..S4-21, S4-72..S4-74)."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.decisions.broker_change import broker_death
from state_machines.decisions.controlled_shutdown import controlled_shutdown, remaining
from state_machines.machines import selectors
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Decision
from state_machines.model.types import NO_LEADER, ReplicaState
from tests.core.model import P, carried_out, come_back, die, make_cluster, writes_of


def shut_down(cluster: Cluster, broker: int) -> Decision:
    cluster.observe_shutting_down(broker)
    return carried_out(cluster, partial(controlled_shutdown, broker=broker))


def stopped(decision: Decision) -> list[tuple[int, int, bool]]:
    return [(move.entity, move.broker, move.delete) for move in decision.replica_moves if move.stop]


@pytest.mark.seed("S4-19", "S4-20", "S4-72", "S4-73", "S4-74")
def test_leads_move_and_followers_stop() -> None:
    cluster = make_cluster(P((1, 2, 3), 1), P((2, 1), 2), P((2, 1), 2, (2,)), P((2, 3), 2))
    decision = shut_down(cluster, 1)
    assert writes_of(decision) == {0: (2, (2, 3), 1, 1), 1: (2, (2,), 1, 1)}
    assert stopped(decision) == [(1, 1, False), (2, 1, False)], "what it led becomes a follower until the process ends"
    assert decision.metadata == [2]
    assert remaining(cluster, 1) == []
    assert cluster.replica_state(1, 1) is ReplicaState.OFFLINE
    assert cluster.stopped(1, 1)
    assert not cluster.stopped(0, 1)


@pytest.mark.kafka("ControllerIntegrationTest.testControlledShutdown")
@pytest.mark.seed("S4-19", "S4-72")
def test_last_replica_keeps_its_lead_and_is_reported() -> None:
    """Three brokers go one after the other; the last one is told that it still leads."""
    cluster = make_cluster(P((1, 2, 3), 1))
    assert writes_of(shut_down(cluster, 2)) == {0: (1, (1, 3), 1, 1)}
    assert remaining(cluster, 2) == []
    die(cluster, 2)
    assert carried_out(cluster, partial(broker_death, dead=[2])).writes == []
    assert writes_of(shut_down(cluster, 1)) == {0: (3, (3,), 2, 2)}
    assert remaining(cluster, 1) == []
    die(cluster, 1)
    assert carried_out(cluster, partial(broker_death, dead=[1])).writes == []
    last = shut_down(cluster, 3)
    assert last.writes == []
    assert [refusal.why for refusal in last.refusals] == [selectors.NO_OTHER_ISR]
    assert remaining(cluster, 3) == [0]
    assert cluster.rows[0].leader == 3


@pytest.mark.seed("S4-72")
def test_single_replicas_are_left_alone() -> None:
    cluster = make_cluster(P((1,), 1), P((1, 2)))
    decision = shut_down(cluster, 1)
    assert decision.empty
    assert decision.refusals == []
    assert remaining(cluster, 1) == [], "nothing that could be led elsewhere"


@pytest.mark.seed("S4-20", "S4-72")
def test_all_that_shut_down_leave_the_isr() -> None:
    cluster = make_cluster(P((1, 2, 3), 1), P((3, 2), 3))
    shut_down(cluster, 2)
    decision = shut_down(cluster, 1)
    assert writes_of(decision) == {0: (3, (3,), 2, 2)}
    assert cluster.rows[1].isr == (3,)


@pytest.mark.seed("S4-72", "S4-74")
def test_a_repeated_request_writes_nothing_more() -> None:
    """The broker tries again when its first answer was lost."""
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2))
    shut_down(cluster, 1)
    again = shut_down(cluster, 1)
    assert again.writes == []
    assert stopped(again) == [(0, 1, False), (1, 1, False)], "by now it follows both"


@pytest.mark.seed("S4-19", "S4-45")
def test_a_broker_that_shuts_down_is_not_elected() -> None:
    cluster = make_cluster(P((3, 1, 2), 3))
    shut_down(cluster, 1)
    die(cluster, 3)
    assert writes_of(carried_out(cluster, partial(broker_death, dead=[3]))) == {0: (2, (2,), 2, 2)}


@pytest.mark.seed("S4-46", "S4-48")
def test_it_ends_and_comes_back() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1,), 1), P((2, 1), 2))
    shut_down(cluster, 1)
    die(cluster, 1)
    assert writes_of(carried_out(cluster, partial(broker_death, dead=[1]))) == {1: (NO_LEADER, (1,), 1, 1)}
    assert cluster.replica_states == {}, "the exceptions of a former life end with it"
    come_back(cluster, 1)
    assert [cluster.replica_state(i, 1) for i in range(3)] == [ReplicaState.ONLINE] * 3
    assert 1 in cluster.live
