"""The replica machine over the full product of its states, and what each legal transition does (S4-27..S4-38)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from state_machines.machines.draft import Draft
from state_machines.machines.replica import LEADS, ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Decision, Refusal
from state_machines.model.types import NO_LEADER, PartitionState, ReplicaState
from tests.core.model import P, decided, die, enter, make_cluster, writes_of

NEW, ONLINE, OFFLINE, STARTED, SUCCESSFUL, INELIGIBLE, NON_EXISTENT = (
    ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED,
    ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE, ReplicaState.NON_EXISTENT,
)  # fmt: skip

LEGAL = {
    (NON_EXISTENT, NEW),
    *((state, target) for target in (ONLINE, OFFLINE) for state in (NEW, ONLINE, OFFLINE, INELIGIBLE)),
    (OFFLINE, STARTED),
    (STARTED, SUCCESSFUL),
    (OFFLINE, INELIGIBLE),
    (STARTED, INELIGIBLE),
    (SUCCESSFUL, NON_EXISTENT),
}
"""Stated here once more, from the protocol's description and not from the machine's table."""

PRODUCT = [(state, target) for state in ReplicaState for target in ReplicaState]
FOLLOWER = 2


def cluster_of(*states: ReplicaState) -> Cluster:
    """Partitions 0, 1, ... led by broker 1, whose replica on broker 2 is in the given states; broker 3 follows."""
    cluster = make_cluster(*[P((1, 2, 3), leader=1, epoch=4, version=9)] * len(states))
    cluster.replica_states = {(i, FOLLOWER): state for i, state in enumerate(states) if state is not ONLINE}
    return cluster


def to(target: ReplicaState, rows: Iterable[int], broker: int = FOLLOWER) -> Callable[[Draft], None]:
    """Asks the machine for the replicas of ``rows`` on ``broker`` to go to ``target``."""

    def decide(draft: Draft) -> None:
        machine = ReplicaStateMachine(draft)
        if target is OFFLINE:
            machine.take_offline(broker, rows, "asked")
        else:
            ask = {
                NEW: machine.create, ONLINE: machine.bring_online, STARTED: machine.start_deletion,
                SUCCESSFUL: machine.complete_deletion, INELIGIBLE: machine.fail_deletion, NON_EXISTENT: machine.forget,
            }  # fmt: skip
            ask[target]([(i, broker) for i in rows], "asked")

    return decide


def told(decision: Decision) -> list[tuple[str, bool]]:
    """What the replica's own broker is told: StopReplica with its delete flag, LeaderAndIsr with its new flag."""
    stops = [("stop", move.delete) for move in decision.replica_moves if move.stop]
    return stops + [("order", move.state is NEW) for move in decision.replica_moves if move.order]


@pytest.mark.kafka(
    "ReplicaStateMachineTest.testInvalid*",
    "ReplicaStateMachineTest.testOfflineReplicaToReplicaDeletionIneligibleTransition",
    "ReplicaStateMachineTest.testReplicaDeletionStartedToReplicaDeletionIneligibleTransition",
)
@pytest.mark.seed("S4-27", "S4-28", "S4-29", "S4-30", "S4-38")
@pytest.mark.parametrize(("state", "target"), PRODUCT, ids=lambda s: s.name)
def test_full_product(state: ReplicaState, target: ReplicaState) -> None:
    """Every pair: a legal one arrives, an illegal one is refused by itself and the rest of its batch goes on."""
    willing = next(s for s, t in sorted(LEGAL) if t is target)
    cluster = cluster_of(willing, state, willing)
    before = cluster.rows[1]
    decision = enter(cluster, decided(cluster, to(target, [0, 1, 2])))
    assert cluster.replica_state(0, FOLLOWER) is target
    assert cluster.replica_state(2, FOLLOWER) is target
    if (state, target) in LEGAL:
        assert cluster.replica_state(1, FOLLOWER) is target
        assert decision.refusals == []
    else:
        why = f"illegal replica transition {state.name} -> {target.name}"
        assert decision.refusals == [Refusal(1, target.name, why)]
        assert cluster.replica_state(1, FOLLOWER) is state
        assert cluster.rows[1] is before
        assert all(move.entity != 1 for move in decision.replica_moves)


@pytest.mark.seed("S4-38")
def test_the_table_is_the_protocols() -> None:
    allowed = {(s, t) for s, t in PRODUCT if ReplicaStateMachine.allows(s, t)}
    assert allowed == LEGAL


@pytest.mark.kafka("ReplicaStateMachineTest.testNonexistentReplicaToNewReplicaTransition")
@pytest.mark.seed("S4-27", "S4-31")
def test_a_new_replica_follows_the_present_leader() -> None:
    cluster = cluster_of(NON_EXISTENT)
    decision = enter(cluster, decided(cluster, to(NEW, [0])))
    assert told(decision) == [("order", True)]
    assert decision.writes == []
    assert cluster.replica_state(0, FOLLOWER) is NEW


@pytest.mark.seed("S4-27", "S4-31")
def test_the_leader_cannot_be_a_new_replica() -> None:
    cluster = cluster_of(ONLINE)
    cluster.replica_states[0, 1] = NON_EXISTENT
    decision = enter(cluster, decided(cluster, to(NEW, [0], broker=1)))
    assert decision.empty
    assert decision.refusals == [Refusal(0, "NEW", LEADS)]
    assert cluster.replica_state(0, 1) is NON_EXISTENT


@pytest.mark.seed("S4-27", "S4-31")
def test_a_new_replica_without_a_leadership_is_told_nothing() -> None:
    cluster = make_cluster(P((1, 2)))
    cluster.replica_states[0, 2] = NON_EXISTENT
    assert told(decided(cluster, to(NEW, [0]))) == []


@pytest.mark.kafka("ReplicaStateMachineTest.testNewReplicaToOnlineReplicaTransition")
@pytest.mark.seed("S4-28", "S4-32")
def test_new_to_online_tells_nothing() -> None:
    decision = decided(cluster_of(NEW), to(ONLINE, [0]))
    assert told(decision) == []
    assert decision.writes == []


@pytest.mark.kafka(
    "ReplicaStateMachineTest.testOnlineReplicaToOnlineReplicaTransition",
    "ReplicaStateMachineTest.testOfflineReplicaToOnlineReplicaTransition",
    "ReplicaStateMachineTest.testReplicaDeletionIneligibleToOnlineReplicaTransition",
)
@pytest.mark.seed("S4-28", "S4-33")
@pytest.mark.parametrize("state", [ONLINE, OFFLINE, INELIGIBLE], ids=lambda s: s.name)
def test_online_again_is_told_the_present_leadership(state: ReplicaState) -> None:
    decision = decided(cluster_of(state), to(ONLINE, [0]))
    assert told(decision) == [("order", False)]
    assert decision.writes == [], "its leadership is told as it is"


@pytest.mark.kafka(
    "ReplicaStateMachineTest.testNewReplicaToOfflineReplicaTransition",
    "ReplicaStateMachineTest.testOnlineReplicaToOfflineReplicaTransition",
)
@pytest.mark.seed("S4-34", "S4-35", "S4-36")
@pytest.mark.parametrize("state", [NEW, ONLINE, OFFLINE, INELIGIBLE], ids=lambda s: s.name)
def test_offline_stops_the_replica_and_takes_it_out_of_the_isr(state: ReplicaState) -> None:
    decision = decided(cluster_of(state), to(OFFLINE, [0]))
    assert told(decision) == [("stop", False)]
    assert writes_of(decision) == {0: (1, (1, 3), 5, 10)}
    [change] = decision.writes
    assert change.after.state is PartitionState.ONLINE


@pytest.mark.seed("S4-34")
def test_a_replica_whose_broker_is_gone_cannot_be_stopped() -> None:
    cluster = cluster_of(ONLINE)
    die(cluster, FOLLOWER)
    decision = decided(cluster, to(OFFLINE, [0]))
    assert told(decision) == []
    assert writes_of(decision) == {0: (1, (1, 3), 5, 10)}


@pytest.mark.kafka("ReplicaStateMachineTest.testNewReplicaToOfflineReplicaTransition")
@pytest.mark.seed("S4-36")
def test_offline_outside_of_the_isr_writes_nothing_but_is_told() -> None:
    cluster = make_cluster(P((1, 2, 3), leader=1, isr=(1, 3)))
    decision = decided(cluster, to(OFFLINE, [0]))
    assert decision.writes == []
    assert decision.metadata == [0], "every broker hears that the replica is offline"


@pytest.mark.kafka("ReplicaStateMachineTest.testOnlineReplicaToOfflineReplicaTransition")
@pytest.mark.seed("S4-35")
def test_a_leader_that_goes_leaves_none() -> None:
    cluster = make_cluster(P((1, 2), leader=1, epoch=4, version=9))
    assert writes_of(decided(cluster, to(OFFLINE, [0], broker=1))) == {0: (NO_LEADER, (2,), 5, 10)}


@pytest.mark.seed("S4-35")
def test_the_last_member_stays_in_the_isr() -> None:
    """An ISR is never emptied (KAFKA-708): who is in it has every acknowledged record."""
    cluster = make_cluster(P((1, 2), leader=1, isr=(1,), epoch=4, version=9))
    assert writes_of(decided(cluster, to(OFFLINE, [0], broker=1))) == {0: (NO_LEADER, (1,), 5, 10)}
    leaderless = make_cluster(P((1, 2), leader=NO_LEADER, isr=(1,), epoch=4, version=9))
    assert writes_of(decided(leaderless, to(OFFLINE, [0], broker=1))) == {}, "nothing would change: no write"


@pytest.mark.kafka(
    "ReplicaStateMachineTest.testOfflineReplicaToReplicaDeletionStartedTransition",
    "ReplicaStateMachineTest.testReplicaDeletionStartedToReplicaDeletionSuccessfulTransition",
    "ReplicaStateMachineTest.testReplicaDeletionSuccessfulToNonexistentReplicaTransition",
)
@pytest.mark.seed("S4-37")
def test_deletion_passes_through_its_states() -> None:
    cluster = cluster_of(OFFLINE)
    decision = enter(cluster, decided(cluster, to(STARTED, [0])))
    assert told(decision) == [("stop", True)]
    assert told(enter(cluster, decided(cluster, to(SUCCESSFUL, [0])))) == []
    assert told(enter(cluster, decided(cluster, to(NON_EXISTENT, [0])))) == []
    assert cluster.replica_state(0, FOLLOWER) is NON_EXISTENT


@pytest.mark.seed("S4-29", "S4-30")
def test_states_are_implied_by_registrations() -> None:
    cluster = make_cluster(P((1, 2), leader=1))
    assert cluster.replica_state(0, 1) is ONLINE
    assert cluster.replica_state(0, 3) is NON_EXISTENT, "not assigned"
    die(cluster, 1)
    assert cluster.replica_state(0, 1) is OFFLINE
    cluster.observe_topic_gone("t")
    assert cluster.replica_state(0, 2) is NON_EXISTENT


def test_one_draft_tells_a_replica_everything_that_was_drawn_for_it() -> None:
    """Stopped and then deleted in one decision is one StopReplica with deletion, not the last drawing alone."""
    cluster = cluster_of(ONLINE)

    def stop_and_delete(draft: Draft) -> None:
        to(OFFLINE, [0])(draft)
        to(STARTED, [0])(draft)
        to(INELIGIBLE, [0])(draft)

    decision = decided(cluster, stop_and_delete)
    assert told(decision) == [("stop", True)]
    assert [move.state for move in decision.replica_moves] == [INELIGIBLE]


def test_the_trace_names_replicas() -> None:
    draft = Draft(cluster_of(ONLINE, STARTED))
    draft.trace = []
    ReplicaStateMachine(draft).take_offline(FOLLOWER, [0, 1], "asked")
    assert [(t.entity, t.broker, t.state, t.target) for t in draft.trace] == [(0, FOLLOWER, "ONLINE", "OFFLINE")]
