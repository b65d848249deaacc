"""Who is told of a transition: replicas by LeaderAndIsr and StopReplica, every broker by UpdateMetadata."""

from __future__ import annotations

from functools import partial

import pytest

from state_machines.machines import selectors
from state_machines.machines.draft import Decide, Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.machines.selectors import Selector
from state_machines.model.cluster import Cluster
from state_machines.model.types import NO_LEADER, ReplicaState
from state_machines.propagation.propagation import Propagation
from tests.core.model import P, decided, die, enter, make_cluster

BROKERS = (1, 2, 3, 4)


class Told:
    """What waits for each broker after a decision was carried out."""

    def __init__(self, cluster: Cluster, decide: Decide) -> None:
        propagation = Propagation(cluster)
        for broker in cluster.brokers:
            propagation.add(broker)
        decision = enter(cluster, decided(cluster, decide))
        propagation.propagate((*decision.moves, *decision.writes), decision.replica_moves)
        propagation.metadata_changed(decision.metadata)
        boxes = propagation.pending
        self.leader_and_isr = {b: box.lead for b, box in boxes.items() if box.lead}
        self.stop_replica = {b: box.stop for b, box in boxes.items() if box.stop}
        self.update_metadata = {
            b: rows
            for b, box in boxes.items()
            if (rows := propagation.feed.since(box.position, propagation.feed.number, 99)[0])
        }


def elect(selector: Selector, draft: Draft) -> None:
    assert PartitionStateMachine(draft).elect([0], selector) == []


EVERYBODY = {b: [0] for b in BROKERS}


@pytest.mark.kafka("PartitionStateMachineTest.testNewPartitionToOnlinePartitionTransition")
@pytest.mark.seed("S4-7", "S4-8", "S4-42")
def test_new_to_online() -> None:
    """Every live replica as new, every live broker the metadata."""
    cluster = make_cluster(P((1, 2, 5)), brokers=BROKERS)
    told = Told(cluster, lambda draft: elect(partial(selectors.initial, live=cluster.live), draft))
    assert told.leader_and_isr == {1: {0: True}, 2: {0: True}}
    assert told.update_metadata == EVERYBODY


@pytest.mark.kafka("PartitionStateMachineTest.testOfflinePartitionToOnlinePartitionTransition")
@pytest.mark.seed("S4-9", "S4-12", "S4-22", "S4-23")
def test_offline_election() -> None:
    """Every live assigned replica, whether it is in the ISR or not."""
    cluster = make_cluster(P((5, 1, 2), 5, (5, 1)), brokers=BROKERS)
    told = Told(cluster, lambda draft: elect(partial(selectors.offline, live=cluster.live), draft))
    assert told.leader_and_isr == {1: {0: False}, 2: {0: False}}
    assert told.update_metadata == EVERYBODY


@pytest.mark.seed("S4-15", "S4-22", "S4-23")
def test_reassigned_election() -> None:
    """By then the assignment is the target: its replicas are told, those that were moved away from are not."""
    cluster = make_cluster(P((2, 3), 1, (1, 2, 3)), brokers=BROKERS)
    told = Told(cluster, lambda draft: elect(partial(selectors.reassigned, live=cluster.live), draft))
    assert told.leader_and_isr == {2: {0: False}, 3: {0: False}}
    assert told.update_metadata == EVERYBODY


@pytest.mark.kafka("PartitionStateMachineTest.testOnlinePartitionToOnlineTransition")
@pytest.mark.seed("S4-18", "S4-22", "S4-23", "S4-71")
def test_preferred_election() -> None:
    """Every assigned replica."""
    cluster = make_cluster(P((1, 2, 3), 2), brokers=BROKERS)
    told = Told(cluster, lambda draft: elect(partial(selectors.preferred, live=cluster.live), draft))
    assert told.leader_and_isr == {b: {0: False} for b in (1, 2, 3)}
    assert told.update_metadata == EVERYBODY


@pytest.mark.kafka("PartitionStateMachineTest.testOnlinePartitionToOnlineTransitionForControlledShutdown")
@pytest.mark.seed("S4-21", "S4-22", "S4-23", "S4-72")
def test_controlled_shutdown_election() -> None:
    """Every live assigned replica, and the one that leaves: it follows until it ends (KAFKA-7482)."""
    cluster = make_cluster(P((1, 2, 5), 1, (1, 2)), brokers=BROKERS)
    cluster.observe_shutting_down(1)
    selector = partial(selectors.controlled_shutdown, registered=cluster.brokers, shutting_down={1})
    told = Told(cluster, lambda draft: elect(selector, draft))
    assert told.leader_and_isr == {1: {0: False}, 2: {0: False}}
    assert told.update_metadata == EVERYBODY
    assert told.stop_replica == {}


@pytest.mark.seed("S4-24")
def test_a_partition_that_is_marked_offline() -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=BROKERS)
    told = Told(cluster, lambda draft: PartitionStateMachine(draft).take_offline([0], "marked"))
    assert (told.leader_and_isr, told.stop_replica) == ({}, {})


@pytest.mark.seed("S4-31")
def test_a_new_replica() -> None:
    """It alone hears the present leader and ISR, as new; every broker the metadata."""
    cluster = make_cluster(P((1, 2, 3), 1, (1, 2)), brokers=BROKERS)
    cluster.replica_states[0, 3] = ReplicaState.NON_EXISTENT
    told = Told(cluster, lambda draft: ReplicaStateMachine(draft).create([(0, 3)], "added"))
    assert told.leader_and_isr == {3: {0: True}}
    assert told.update_metadata == EVERYBODY


@pytest.mark.seed("S4-32")
def test_a_new_replica_that_is_online() -> None:
    cluster = make_cluster(P((1, 2, 3), 1), brokers=BROKERS)
    cluster.replica_states[0, 3] = ReplicaState.NEW
    told = Told(cluster, lambda draft: ReplicaStateMachine(draft).bring_online([(0, 3)], "caught up"))
    assert (told.leader_and_isr, told.update_metadata) == ({}, {})


@pytest.mark.seed("S4-33")
@pytest.mark.parametrize("state", [ReplicaState.ONLINE, ReplicaState.OFFLINE], ids=lambda s: s.name)
def test_a_replica_that_is_online_again(state: ReplicaState) -> None:
    """It alone hears the present leader and ISR; every broker the metadata."""
    cluster = make_cluster(P((1, 2, 3), 1, (1, 2)), brokers=BROKERS)
    cluster.replica_states[0, 3] = state
    told = Told(cluster, lambda draft: ReplicaStateMachine(draft).bring_online([(0, 3)], "back"))
    assert told.leader_and_isr == {3: {0: False}}
    assert told.update_metadata == EVERYBODY


@pytest.mark.seed("S4-34", "S4-35", "S4-36")
def test_a_replica_that_goes_offline() -> None:
    """StopReplica without deletion to it, the smaller ISR to all other replicas, the metadata to everybody."""
    cluster = make_cluster(P((1, 2, 3), 1), brokers=BROKERS)
    told = Told(cluster, lambda draft: ReplicaStateMachine(draft).take_offline(3, [0], "leaves"))
    assert told.stop_replica == {3: {0: False}}
    assert told.leader_and_isr == {1: {0: False}, 2: {0: False}}
    assert told.update_metadata == EVERYBODY


@pytest.mark.seed("S4-34", "S4-36")
def test_a_replica_on_a_dead_broker_outside_of_the_isr() -> None:
    """Nothing is written, nobody can be stopped; every broker hears that the replica is offline."""
    cluster = make_cluster(P((1, 2, 3), 1, (1, 2)), brokers=BROKERS)
    die(cluster, 3)
    told = Told(cluster, lambda draft: ReplicaStateMachine(draft).take_offline(3, [0], "died"))
    assert (told.stop_replica, told.leader_and_isr) == ({}, {})
    assert told.update_metadata == {b: [0] for b in (1, 2, 4)}


@pytest.mark.seed("S4-35")
def test_a_leader_that_goes_offline_is_not_told_that_nobody_leads() -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=BROKERS)
    told = Told(cluster, lambda draft: ReplicaStateMachine(draft).take_offline(1, [0], "leaves"))
    assert cluster.rows[0].leader == NO_LEADER
    assert told.leader_and_isr == {2: {0: False}}
    assert told.stop_replica == {1: {0: False}}


@pytest.mark.kafka("ReplicaStateMachineTest.testOfflineReplicaToReplicaDeletionStartedTransition")
@pytest.mark.seed("S4-37")
def test_a_replica_that_is_deleted() -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=BROKERS)
    cluster.replica_states[0, 2] = ReplicaState.OFFLINE
    told = Told(cluster, lambda draft: ReplicaStateMachine(draft).start_deletion([(0, 2)], "deleted"))
    assert told.stop_replica == {2: {0: True}}
    assert told.leader_and_isr == {}
