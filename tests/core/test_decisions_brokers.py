"""Brokers die, return and bounce; a new controller takes over (S4-44..S4-49, S4-65..S4-68)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from state_machines.decisions.broker_change import BrokerDelta, broker_death, broker_return, compare
from state_machines.decisions.failover import absent_members, failover
from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Decision
from state_machines.model.types import NO_LEADER, Assignment, PartitionState, ReplicaState, TopicAssignment
from tests.core.model import (
    EPOCH,
    P,
    broker,
    carried_out,
    come_back,
    decided,
    die,
    enter,
    make_cluster,
    registered,
    shown,
    topic,
    writes_of,
)


def death(cluster: Cluster, *dead: int, unclean: Callable[[int], bool] | None = None) -> Decision:
    """The brokers are observed to be gone, and what follows is carried out."""
    die(cluster, *dead)
    allowed = unclean or (lambda _: False)
    return carried_out(cluster, partial(broker_death, dead=dead, unclean=allowed))


def states(cluster: Cluster) -> list[str]:
    return [row.state.name for row in cluster.rows]


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
def test_one_snapshot_says_who_is_new_dead_or_bounced(
    known: dict[int, int], found: dict[int, int], expected: BrokerDelta
) -> None:
    """A restart faster than the event is found by the broker epoch (KAFKA-7235)."""
    delta = compare({b: broker(b, e) for b, e in known.items()}, {b: broker(b, e) for b, e in found.items()})
    assert delta == expected
    assert delta.empty == (known == found)


def test_same_life_with_other_data_is_modified() -> None:
    delta = compare({1: broker(1)}, {1: broker(1, rack="b")})
    assert delta == BrokerDelta((), (), (), (1,))
    assert not delta.empty


@pytest.mark.seed("S4-44", "S4-45", "S4-46")
def test_death_moves_leaders_and_shrinks_isrs() -> None:
    """One leader election, one ISR that shrinks, one partition where nothing is written: broker 1 was behind."""
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2), P((2, 1), 2, (2,)), P((2, 3), 2))
    decision = death(cluster, 1)
    assert writes_of(decision) == {0: (2, (2,), 1, 1), 1: (2, (2,), 1, 1)}
    assert decision.metadata == [2], "broker 1 is listed as an offline replica of it"
    assert decision.replica_moves == [], "nobody is there to be stopped"
    assert decision.refusals == []
    assert states(cluster) == ["ONLINE"] * 4
    assert [cluster.replica_state(i, 1) for i in (0, 1, 2)] == [ReplicaState.OFFLINE] * 3


@pytest.mark.seed("S4-44", "S4-46")
def test_death_of_the_only_replica() -> None:
    cluster = make_cluster(P((1,), 1, epoch=4, version=6))
    decision = death(cluster, 1)
    assert writes_of(decision) == {0: (NO_LEADER, (1,), 5, 7)}
    assert [refusal.why for refusal in decision.refusals] == [selectors.NO_LIVE_ISR]
    assert states(cluster) == ["OFFLINE"]
    assert cluster.leaderless == {0}


@pytest.mark.seed("S4-44", "S4-45", "S4-46")
def test_leader_and_last_member_die_at_once() -> None:
    """Broker by broker in one write: 1 leaves the ISR and the lead, 2 stays as its last member (epoch + 1 each)."""
    cluster = make_cluster(P((1, 2, 3), 1, (1, 2)))
    assert writes_of(death(cluster, 1, 2)) == {0: (NO_LEADER, (2,), 2, 1)}
    come_back(cluster, 1)
    assert writes_of(carried_out(cluster, partial(broker_return, returned=[1]))) == {}, "1 may lack records"
    come_back(cluster, 2)
    assert writes_of(carried_out(cluster, partial(broker_return, returned=[2]))) == {0: (2, (2,), 3, 2)}


@pytest.mark.seed("S4-45")
def test_death_tries_every_leaderless_partition_again() -> None:
    cluster = make_cluster(P((3,), 3), P((4, 3)))
    die(cluster, 3)
    assert writes_of(carried_out(cluster, partial(broker_death, dead=[3]))) == {0: (NO_LEADER, (3,), 1, 1)}
    come_back(cluster, 3)
    assert writes_of(death(cluster, 1)) == {0: (3, (3,), 2, 2), 1: (3, (3,), 0, 0)}


@pytest.mark.seed("S4-45", "S4-82")
def test_unclean_where_the_topic_allows_it() -> None:
    cluster = make_cluster(P((1, 2), 1, (1,)))
    decision = death(cluster, 1, unclean=lambda _: True)
    assert writes_of(decision) == {0: (2, (2,), 1, 1)}
    assert decision.writes[0].after.recovering
    assert decision.writes[0].why == selectors.OFFLINE_UNCLEAN


def test_a_leader_outside_of_the_assignment_is_missed_too() -> None:
    """A state znode that somebody wrote by hand: without an election the partition would stay dead for ever."""
    cluster = make_cluster(P((1, 2), leader=3, isr=(1, 2, 3)))
    assert writes_of(death(cluster, 3)) == {0: (1, (1, 2), 1, 1)}


@pytest.mark.seed("S4-47", "S4-48", "S4-49")
def test_return_elects_and_tells_metadata() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1,), 1), P((3,), 3), P((1, 4)))
    death(cluster, 1)
    come_back(cluster, 1)
    decision = carried_out(cluster, partial(broker_return, returned=[1]))
    assert writes_of(decision) == {1: (1, (1,), 2, 2), 3: (1, (1,), 0, 0)}
    assert decision.metadata == [0], "what is not written is told all the same: its replica is online again"
    assert cluster.replica_state(0, 1) is ReplicaState.ONLINE
    assert states(cluster) == ["ONLINE"] * 4


@pytest.mark.seed("S4-49")
def test_return_starts_what_never_had_a_live_replica() -> None:
    cluster = make_cluster(P((4, 5)))
    assert states(cluster) == ["NEW"]
    come_back(cluster, 5)
    assert writes_of(carried_out(cluster, partial(broker_return, returned=[5]))) == {0: (5, (5,), 0, 0)}


@pytest.mark.seed("S4-44", "S4-48")
def test_bounce_is_a_death_and_a_return() -> None:
    """The broker lost what its former life was told: its partitions move away, then it is online again."""
    cluster = make_cluster(P((1, 2), 1), P((1,), 1))
    die(cluster, 1)
    first = carried_out(cluster, partial(broker_death, dead=[1]))
    come_back(cluster, 1, epoch=300)
    second = carried_out(cluster, partial(broker_return, returned=[1]))
    assert writes_of(first) == {0: (2, (2,), 1, 1), 1: (NO_LEADER, (1,), 1, 1)}
    assert writes_of(second) == {1: (1, (1,), 2, 2)}


def test_a_returned_broker_is_no_longer_shutting_down() -> None:
    cluster = make_cluster(P((1, 2), 1))
    cluster.observe_shutting_down(1)
    assert (1 in cluster.live, 1 in cluster.brokers) == (False, True)
    cluster.observe_brokers({**cluster.brokers, 1: broker(1, epoch=300)})
    assert 1 in cluster.live
    cluster.observe_brokers(registered((1, 2, 3), epoch=300))
    assert cluster.shutting_down == frozenset()


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68")
def test_failover_first_the_replicas_then_the_leaders() -> None:
    """Kafka's order, so Kafka's epochs: the dead leader leaves the ISR (+1), then the election (+1), in one write."""
    cluster = make_cluster(
        P((4, 2), 4, epoch=10, version=20),
        P((2, 4), 2, epoch=10, version=20),
        P((4,), 4, epoch=10, version=20),
        P((4,), NO_LEADER, (4,), epoch=10, version=20),
        P((3, 4)),
        P((1, 2), 1, epoch=10, version=20),
    )
    assert states(cluster) == ["OFFLINE", "ONLINE", "OFFLINE", "OFFLINE", "NEW", "ONLINE"]
    draft = Draft(cluster)
    draft.trace = []
    failover(draft)
    decision = enter(cluster, draft.finish())
    assert writes_of(decision) == {
        0: (2, (2,), 12, 21),
        1: (2, (2,), 11, 21),
        2: (NO_LEADER, (4,), 11, 21),
        4: (3, (3,), 0, 0),
    }
    order = [("replica" if t.broker is not None else "partition") for t in draft.trace]
    assert order == sorted(order, reverse=True), "replicas before partitions"
    assert {refusal.entity for refusal in decision.refusals} == {2, 3}
    assert all(change.after.controller_epoch == EPOCH for change in decision.writes)


@pytest.mark.seed("S4-65", "S4-68")
def test_failover_of_a_healthy_cluster_writes_nothing() -> None:
    assert decided(make_cluster(*[P((1, 2, 3), 1)] * 5), failover).empty


def test_failover_with_unclean_election() -> None:
    cluster = make_cluster(P((4, 2), 4, (4,), epoch=10))
    decision = decided(cluster, partial(failover, unclean=lambda _: True))
    assert writes_of(decision) == {0: (2, (2,), 12, 1)}


def test_absent_members_are_sought_in_isrs_only() -> None:
    cluster = make_cluster(P((1, 4), 1, (1,)), P((1, 4, 5), 1), P((5, 1), 1))
    assert absent_members(Draft(cluster), range(3)) == {4: [1], 5: [1, 2]}


def test_partitions_that_vanished_are_left_alone() -> None:
    cluster = make_cluster(P((1, 2), 1))
    cluster.observe_topic(topic("u", [(1, 3)]))
    cluster.load_leadership([1], [P((1, 3), 1).leadership()])
    cluster.observe_topic_gone("t")
    assert list(writes_of(death(cluster, 1))) == [1]
    assert list(writes_of(death(cluster, 3))) == [1]
    assert cluster.rows[0].state is PartitionState.NON_EXISTENT


def test_brokers_outside_of_every_assignment_die_quietly() -> None:
    assert death(make_cluster(P((1, 2), 1)), 3).empty


def test_many_partitions_are_decided_in_one_pass() -> None:
    """The same answers for 3,000 partitions as for each alone."""
    replicas = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    cluster = make_cluster(*[P(replicas[n % 3], replicas[n % 3][0]) for n in range(3000)])
    decision = death(cluster, 1)
    alone = [death(make_cluster(P(r, r[0])), 1).writes[0] for r in replicas]
    assert len(decision.writes) == 3000
    for change in decision.writes:
        assert shown(change) == shown(alone[change.entity % 3])


def test_an_assignment_that_names_a_broker_twice_is_not_decided_twice() -> None:
    found = TopicAssignment("t", None, {0: Assignment((1, 1, 2))}, 0, 1)
    cluster = make_cluster()
    cluster.load_leadership(cluster.observe_topic(found), [P((1, 2), 1).leadership()])
    assert writes_of(death(cluster, 1)) == {0: (2, (2,), 1, 1)}


def test_a_broker_obeys_a_higher_epoch_until_its_life_ends_or_it_accepts_a_request() -> None:
    cluster = make_cluster(P((1, 2, 3), 1))
    epoch = cluster.brokers[1].epoch
    assert not cluster.observe_outranked(1, epoch - 1), "a former life said so"
    assert not cluster.observe_outranked(9, epoch), "it is not registered"
    assert cluster.observe_outranked(1, epoch)
    assert not cluster.observe_outranked(1, epoch), "it is no news"
    assert cluster.outranked == {1}
    cluster.observe_brokers(registered((1, 2), epoch))
    assert cluster.outranked == {1}
    come_back(cluster, 1)
    assert cluster.outranked == frozenset()
    cluster.observe_outranked(2, epoch)
    cluster.observe_accepted(2)
    assert cluster.outranked == frozenset()
