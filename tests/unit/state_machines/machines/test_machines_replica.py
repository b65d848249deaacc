"""The replica machine over the full product of its states (S4-27..S4-38).

What each legal transition writes and sends is in test_machines_requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from msgspec.structs import replace

from state_machines.machines.draft import Draft
from state_machines.machines.replica import LEADS, ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Refusal
from state_machines.model.types import PartitionState, ReplicaState
from tests.kit.kafka.model import P, decided, die, enter, make_cluster, topic_gone, writes_of

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
    """Makes partitions 0, 1, ... led by broker 1, whose replicas on broker 2 are in the given states."""
    cluster = make_cluster(*[P((1, 2, 3), leader=1)] * len(states))
    cluster.replica_states = {(i, FOLLOWER): state for i, state in enumerate(states) if state is not ONLINE}
    return cluster


def to(target: ReplicaState, rows: Iterable[int], broker: int = FOLLOWER) -> Callable[[Draft], None]:
    """Draws the transition of the replicas of ``rows`` on ``broker`` to ``target``."""

    def decide(draft: Draft) -> None:
        machine = ReplicaStateMachine(draft)
        if target is OFFLINE:
            machine.take_offline(broker, rows, "a test")
        else:
            method = {
                NEW: machine.create, ONLINE: machine.bring_online, STARTED: machine.start_deletion,
                SUCCESSFUL: machine.complete_deletion, INELIGIBLE: machine.fail_deletion, NON_EXISTENT: machine.forget,
            }  # fmt: skip
            method[target]([(i, broker) for i in rows], "a test")

    return decide


@pytest.mark.kafka(
    "ReplicaStateMachineTest.testInvalid*",
    "ReplicaStateMachineTest.testOfflineReplicaToReplicaDeletionIneligibleTransition",
    "ReplicaStateMachineTest.testReplicaDeletionStartedToReplicaDeletionIneligibleTransition",
)
@pytest.mark.seed("S4-27", "S4-28", "S4-29", "S4-30", "S4-38")
@pytest.mark.parametrize(("state", "target"), PRODUCT, ids=lambda s: s.name)
def test_a_legal_transition_is_made_and_an_illegal_one_refused_alone(state: ReplicaState, target: ReplicaState) -> None:
    willing = next(s for s, t in sorted(LEGAL) if t is target)
    cluster = cluster_of(willing, state, willing)
    before = cluster.rows[1]
    decision = enter(cluster, decided(cluster, to(target, [0, 1, 2])))
    assert cluster.replica_state(0, FOLLOWER) is cluster.replica_state(2, FOLLOWER) is target
    legal = (state, target) in LEGAL
    assert ReplicaStateMachine.allows(state, target) == legal
    if legal:
        assert cluster.replica_state(1, FOLLOWER) is target
        assert decision.refusals == []
    else:
        why = f"illegal replica transition {state.name} -> {target.name}"
        assert decision.refusals == [Refusal(1, target.name, why)]
        assert cluster.replica_state(1, FOLLOWER) is state
        assert cluster.rows[1] is before
        assert all(move.entity != 1 for move in decision.replica_moves)


@pytest.mark.seed("S4-27", "S4-31")
def test_a_new_replica_is_refused_where_it_leads() -> None:
    cluster = cluster_of(ONLINE)
    cluster.replica_states[0, 1] = NON_EXISTENT
    decision = enter(cluster, decided(cluster, to(NEW, [0], broker=1)))
    assert decision.empty
    assert decision.refusals == [Refusal(0, "NEW", LEADS)]
    assert cluster.replica_state(0, 1) is NON_EXISTENT


@pytest.mark.kafka(
    "ReplicaStateMachineTest.testStartupOnlinePartition",
    "ReplicaStateMachineTest.testStartupOfflinePartition",
    "ReplicaStateMachineTest.testStartupWithReplicaWithoutLeader",
)
@pytest.mark.seed("S4-29", "S4-30", "S4-66")
def test_a_replica_is_online_offline_or_gone_with_its_broker_and_topic() -> None:
    cluster = make_cluster(P((1, 2), leader=1), P((4,)))
    assert cluster.replica_state(0, 1) is ONLINE
    assert cluster.replica_state(1, 4) is OFFLINE, "its partition never had a leader"
    assert cluster.replica_state(0, 3) is NON_EXISTENT, "not assigned"
    die(cluster, 1)
    assert cluster.replica_state(0, 1) is OFFLINE
    topic_gone(cluster, "t")
    assert cluster.replica_state(0, 2) is NON_EXISTENT


def test_rows_without_a_write_do_not_end_a_batch() -> None:
    """They are gone, never started, or have the replica outside of the ISR."""
    cluster = make_cluster(P((1, 2), 1), P((1, 2)), P((1, 2), 1, (1,)), P((1, 2), 1))
    cluster.rows[0] = replace(cluster.rows[0], state=PartitionState.NON_EXISTENT)
    cluster.replica_states[0, FOLLOWER] = ONLINE
    decision = decided(cluster, to(OFFLINE, range(4)))
    assert writes_of(decision) == {3: (1, (1,), 1, 1)}
    assert (decision.metadata, decision.doubted) == ([1, 2], frozenset({2}))


def test_the_trace_has_the_broker_of_a_replica() -> None:
    draft = Draft(cluster_of(ONLINE, STARTED))
    draft.trace = []
    ReplicaStateMachine(draft).take_offline(FOLLOWER, [0, 1], "a test")
    assert draft.trace == [(0, FOLLOWER, "ONLINE", "OFFLINE")]
