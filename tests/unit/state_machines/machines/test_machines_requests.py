"""What each transition writes and sends: LeaderAndIsr and StopReplica to replicas, UpdateMetadata to every broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest
from msgspec import Struct

from state_machines.machines import selectors
from state_machines.machines.draft import Decide, Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.machines.selectors import Election, NoLeader
from state_machines.model.cluster import Cluster
from state_machines.model.types import NO_LEADER, ReplicaState
from state_machines.propagation.propagation import Propagation
from tests.kit.kafka.model import P, decided, die, enter, make_cluster, writes_of

BROKERS = (1, 2, 3, 4)
NEW, ONLINE, OFFLINE, INELIGIBLE = (
    ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE,
)  # fmt: skip

Written = tuple[int, tuple[int, ...], int, int]
"""Leader, ISR, leader epoch and partition epoch."""
Requests = Mapping[int, bool]
"""A flag by broker: ``is_new`` of LeaderAndIsr, ``delete`` of StopReplica."""


class Step(Struct):
    """A transition of row 0 or one of its replicas. ``states``: exceptions of replicas; ``leaving``: shutting down."""

    partition: P
    draw: Callable[[Cluster], Decide]
    states: dict[int, ReplicaState] = {}
    dead: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()


def elected(rule: Callable[..., Election | NoLeader]) -> Callable[[Cluster], Decide]:
    """Elects the leader of row 0 by ``rule``."""
    controlled = rule is selectors.controlled_shutdown

    def draw(cluster: Cluster) -> Decide:
        known = {"registered": cluster.brokers, "shutting_down": cluster.shutting_down}
        selector = partial(rule, **known) if controlled else partial(rule, live=cluster.live)

        def decide(draft: Draft) -> None:
            assert PartitionStateMachine(draft).elect([0], selector) == []

        return decide

    return draw


def moved(method: str, broker: int) -> Callable[[Cluster], Decide]:
    """Draws a transition of the replica of row 0 on ``broker``."""

    def decide(draft: Draft) -> None:
        machine = ReplicaStateMachine(draft)
        if method == "take_offline":
            machine.take_offline(broker, [0], "a test")
        else:
            getattr(machine, method)([(0, broker)], "a test")

    return lambda _: decide


def case(
    name: str,
    step: Step,
    written: Written | None,
    leader_and_isr: Requests,
    stop_replica: Requests,
    metadata: bool,
    *seeds: str,
    kafka: pytest.MarkDecorator | None = None,
) -> object:
    """Returns a case with the rows of the checklist and the tests of Kafka's that it states."""
    marks = [pytest.mark.seed(*seeds), *([kafka] if kafka is not None else [])]
    return pytest.param(step, written, leader_and_isr, stop_replica, metadata, id=name, marks=marks)


def led(replicas: tuple[int, ...], leader: int, isr: tuple[int, ...] = ()) -> P:
    """States a partition at leader epoch 4 and partition epoch 9."""
    return P(replicas, leader, isr, epoch=4, version=9)


LED = led((1, 2, 3), 1)
BEHIND = led((1, 2, 3), 1, (1, 2))
SHRUNK = (1, (1, 2), 5, 10)
OTHERS = {1: False, 2: False}

ELECTIONS = [
    case(
        "new: live replicas are new, brokers get the metadata",
        Step(P((1, 2, 5)), elected(selectors.initial)),
        (1, (1, 2), 0, 0), {1: True, 2: True}, {}, True, "S4-6", "S4-7", "S4-8", "S4-42",
        kafka=pytest.mark.kafka("PartitionStateMachineTest.testNewPartitionToOnlinePartitionTransition"),
    ),
    case(
        "offline: each live replica, in the ISR or not",
        Step(led((5, 1, 2), 5, (5, 1)), elected(selectors.offline)),
        (1, (1,), 5, 10), {1: False, 2: False}, {}, True, "S4-9", "S4-12", "S4-22", "S4-23",
        kafka=pytest.mark.kafka("PartitionStateMachineTest.testOfflinePartitionToOnlinePartitionTransition"),
    ),
    case(
        "reassigned: the targets, which are the assignment by then",
        Step(led((2, 3), 1, (1, 2, 3)), elected(selectors.reassigned)),
        (2, (1, 2, 3), 5, 10), {2: False, 3: False}, {}, True, "S4-15", "S4-22", "S4-23",
    ),
    case(
        "preferred: each assigned replica",
        Step(led((1, 2, 3), 2), elected(selectors.preferred)),
        (1, (1, 2, 3), 5, 10), {1: False, 2: False, 3: False}, {}, True, "S4-18", "S4-22", "S4-23", "S4-71",
        kafka=pytest.mark.kafka("PartitionStateMachineTest.testOnlinePartitionToOnlineTransition"),
    ),
    case(
        "controlled shutdown: the broker that leaves follows until it ends (KAFKA-7482)",
        Step(led((1, 2, 5), 1, (1, 2)), elected(selectors.controlled_shutdown), leaving=(1,)),
        (2, (2,), 5, 10), {1: False, 2: False}, {}, True, "S4-21", "S4-22", "S4-23", "S4-72",
        kafka=pytest.mark.kafka(
            "PartitionStateMachineTest.testOnlinePartitionToOnlineTransitionForControlledShutdown",
            "ControllerChannelManagerTest.testLeaderAndIsrRequestSentToLiveOrShuttingDownBrokers",
        ),
    ),
]  # fmt: skip

REPLICAS = [
    case(
        "a new replica follows the present leader",
        Step(BEHIND, moved("create", 3), {3: ReplicaState.NON_EXISTENT}),
        None, {3: True}, {}, True, "S4-27", "S4-31",
        kafka=pytest.mark.kafka("ReplicaStateMachineTest.testNonexistentReplicaToNewReplicaTransition"),
    ),
    case(
        "a new replica of a partition that never started",
        Step(P((1, 2)), moved("create", 2), {2: ReplicaState.NON_EXISTENT}),
        None, {}, {}, False, "S4-27", "S4-31",
    ),
    case(
        "new to online",
        Step(LED, moved("bring_online", 3), {3: NEW}),
        None, {}, {}, False, "S4-28", "S4-32",
        kafka=pytest.mark.kafka("ReplicaStateMachineTest.testNewReplicaToOnlineReplicaTransition"),
    ),
    *(
        case(
            f"{state.name.lower()} to online: the present leadership",
            Step(BEHIND, moved("bring_online", 3), {3: state}),
            None, {3: False}, {}, True, "S4-28", "S4-33",
            kafka=kafka,
        )
        for state, kafka in [
            (ONLINE, pytest.mark.kafka("ReplicaStateMachineTest.testOnlineReplicaToOnlineReplicaTransition")),
            (OFFLINE, pytest.mark.kafka("ReplicaStateMachineTest.testOfflineReplicaToOnlineReplicaTransition")),
            (
                INELIGIBLE,
                pytest.mark.kafka("ReplicaStateMachineTest.testReplicaDeletionIneligibleToOnlineReplicaTransition"),
            ),
        ]
    ),
    *(
        case(
            f"{state.name.lower()} to offline: it stops and leaves the ISR",
            Step(LED, moved("take_offline", 3), {3: state}),
            SHRUNK, OTHERS, {3: False}, True, "S4-34", "S4-35", "S4-36",
            kafka=pytest.mark.kafka(
                "ReplicaStateMachineTest.testNewReplicaToOfflineReplicaTransition",
                "ReplicaStateMachineTest.testOnlineReplicaToOfflineReplicaTransition",
            ),
        )
        for state in (NEW, ONLINE, OFFLINE, INELIGIBLE)
    ),
    case(
        "offline outside of the ISR",
        Step(BEHIND, moved("take_offline", 3)),
        None, {}, {3: False}, True, "S4-34", "S4-36",
    ),
    case(
        "offline with its broker",
        Step(LED, moved("take_offline", 3), dead=(3,)),
        SHRUNK, OTHERS, {}, True, "S4-34", "S4-35",
        kafka=pytest.mark.kafka("ControllerChannelManagerTest.testStopReplicaSentOnlyToLiveAndShuttingDownBrokers"),
    ),
    case(
        "offline with its broker, outside of the ISR",
        Step(BEHIND, moved("take_offline", 3), dead=(3,)),
        None, {}, {}, True, "S4-34", "S4-36",
    ),
    case(
        "the leader goes offline: the partition is left without one",
        Step(LED, moved("take_offline", 1)),
        (NO_LEADER, (2, 3), 5, 10), {2: False, 3: False}, {1: False}, True, "S4-35",
        kafka=pytest.mark.kafka("ReplicaStateMachineTest.testOnlineReplicaToOfflineReplicaTransition"),
    ),
    case(
        "the last member goes offline: it stays in the ISR (KAFKA-708)",
        Step(led((1, 2), 1, (1,)), moved("take_offline", 1)),
        (NO_LEADER, (1,), 5, 10), {2: False}, {1: False}, True, "S4-35",
    ),
    case(
        "the last member of a leaderless partition goes offline: no write for an epoch alone",
        Step(led((1, 2), NO_LEADER, (1,)), moved("take_offline", 1)),
        None, {}, {1: False}, True, "S4-35",
    ),
    case(
        "deletion started",
        Step(LED, moved("start_deletion", 3), {3: OFFLINE}),
        None, {}, {3: True}, False, "S4-37",
        kafka=pytest.mark.kafka("ReplicaStateMachineTest.testOfflineReplicaToReplicaDeletionStartedTransition"),
    ),
    case(
        "deletion successful",
        Step(LED, moved("complete_deletion", 3), {3: ReplicaState.DELETION_STARTED}),
        None, {}, {}, False, "S4-37",
        kafka=pytest.mark.kafka("ReplicaStateMachineTest.testReplicaDeletionStartedToReplicaDeletionSuccessfulTransition"),
    ),
    case(
        "deleted",
        Step(LED, moved("forget", 3), {3: ReplicaState.DELETION_SUCCESSFUL}),
        None, {}, {}, False, "S4-37",
        kafka=pytest.mark.kafka("ReplicaStateMachineTest.testReplicaDeletionSuccessfulToNonexistentReplicaTransition"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("step", "written", "leader_and_isr", "stop_replica", "metadata"), [*ELECTIONS, *REPLICAS])
def test_a_transition_writes_and_sends(
    step: Step, written: Written | None, leader_and_isr: Requests, stop_replica: Requests, metadata: bool
) -> None:
    cluster = make_cluster(step.partition, brokers=BROKERS)
    die(cluster, *step.dead)
    for broker in step.leaving:
        cluster.observe_shutting_down(broker)
    cluster.replica_states.update({(0, broker): state for broker, state in step.states.items()})
    propagation = Propagation(cluster)
    for broker in cluster.brokers:
        propagation.add(broker)
    decision = enter(cluster, decided(cluster, step.draw(cluster)))
    propagation.propagate((*decision.moves, *decision.writes), decision.replica_moves)
    propagation.metadata_changed(decision.metadata)
    assert writes_of(decision) == ({} if written is None else {0: written})
    assert {b: p.lead for b, p in propagation.pending.items() if p.lead} == {
        b: {0: n} for b, n in leader_and_isr.items()
    }
    assert {b: p.stop for b, p in propagation.pending.items() if p.stop} == {b: {0: d} for b, d in stop_replica.items()}
    sent = {b: propagation.feed.backlog(p.position) for b, p in propagation.pending.items()}
    assert sent == dict.fromkeys(cluster.brokers, int(metadata))
    assert decision.refusals == []
