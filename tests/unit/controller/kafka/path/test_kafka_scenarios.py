"""Tests of Kafka's controller that no other test shows: another controller, restarts, ids and counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from unittest import mock

import pytest

from brokers.listener.controller_listener import NotController
from controller.daemon.state import Mode
from controller.kafka.path.events import Event, EventKind
from controller.operator.counts import Counted, Deletions, imbalance
from controller.operator.gauges import gauges_of
from controller.operator.present import StatusReader
from metadata_store import paths
from metadata_store.codecs.cluster import FeatureRange, Features, decode_features, encode_features
from state_machines.model.types import Assignment, TopicPartition
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.calls import create, created, topic
from tests.kit.kafka.daemons import daemon, epoch, regent_has_role
from tests.kit.kafka.parts import LEADER_AND_ISR, UPDATE_METADATA
from tests.kit.kafka.reassignments import alter, caught_up, propagated, request_by_znode, written
from tests.kit.kafka.world import KafkaWorld, in_world, world

OLD_IBP = "2.7-IV1"


async def running(w: KafkaWorld, ibp: str = "3.9") -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.serve(ibp)
    w.wires.frames.clear()


# -- another controller was elected, and the watches are late


async def create_topic(w: KafkaWorld) -> None:
    with pytest.raises(NotController):
        await created(w, create(topic("new", 1, 1)))


async def topic_appears(w: KafkaWorld) -> None:
    await w.topic("new", (1, 2))
    w.term.queue.signal(EventKind.TOPIC_CHANGE)


async def delete_topic(w: KafkaWorld) -> None:
    await w.mark("t")
    w.term.queue.signal(EventKind.TOPIC_DELETION)


async def elect_preferred(w: KafkaWorld) -> None:
    await w.request_preferred(("behind", 0))
    w.term.queue.signal(EventKind.PREFERRED_ELECTION)


async def reassign(w: KafkaWorld) -> None:
    with pytest.raises(NotController):
        await alter(w, {("t", 0): (3, 1)})


async def reassign_by_znode(w: KafkaWorld) -> None:
    await request_by_znode(w, {("t", 0): (3, 1)})
    w.term.queue.signal(EventKind.REASSIGN_PARTITIONS)


MOVES = {
    "CreateTopics": create_topic,
    "a topic appears": topic_appears,
    "topic deletion": delete_topic,
    "preferred election": elect_preferred,
    "reassignment": reassign,
    "reassignment by znode": reassign_by_znode,
}


@pytest.mark.kafka(
    "ControllerIntegrationTest.testControllerMoveOnTopicCreation",
    "ControllerIntegrationTest.testControllerMoveOnTopicDeletion",
    "ControllerIntegrationTest.testControllerMoveOnPreferredReplicaElection",
    "ControllerIntegrationTest.testControllerMoveOnPartitionReassignment",
)
@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("asked", MOVES.values(), ids=MOVES)
@in_world()
async def test_a_controller_whose_epoch_was_raised_writes_and_sends_nothing(
    w: KafkaWorld, asked: Callable[[KafkaWorld], Awaitable[None]]
) -> None:
    """The event is known to it, the other controller is not: the write itself is fenced."""
    await w.topic("behind", (1, 2), leaders=True, led_by=2)
    await running(w)
    before, assigned = w.leaders(), w.assignments()
    w.server.hold_watches(w.active.zk.session_id)
    await w.operator.set(paths.CONTROLLER_EPOCH, b"99", -1)
    await asked(w)
    assert "/controller_epoch" in await w.active.ended()
    assert w.counters.fenced == 1
    assert w.leaders() == before
    assert {name: w.assignments()[name] for name in assigned} == assigned
    assert w.node(paths.state("new", 0)) is None
    assert w.wires.frames == []


@pytest.mark.kafka("ControllerFailoverTest.testHandleIllegalStateException")
@pytest.mark.kafka("ControllerEventManagerTest.testEventThatThrowsException")
@in_virtual_time
async def test_an_error_in_a_handler_is_timed_and_ends_the_term_and_the_next_has_a_higher_epoch() -> None:
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
        term, claimed = await d.serving(), epoch(w)
        handled = d.daemon.counters.events["broker_change"].count
        with mock.patch("controller.kafka.brokers.broker_change.compare", side_effect=ValueError("a bug")):
            w.die(1)
            await term.finished.wait()
        assert d.daemon.counters.events["broker_change"].count == handled + 1
        assert await d.serving() is not term
        assert epoch(w) == claimed + 1
        assert w.leaders()["t", 0] == (2, (2, 3))


# -- all brokers down, and what brokers show


@pytest.mark.kafka("ControllerIntegrationTest.testControllerEpochPersistsWhenAllBrokersDown")
@pytest.mark.kafka("ControllerIntegrationTest.testControllerMoveIncrementsControllerEpoch")
@in_world(before=running)
async def test_the_controller_epoch_outlives_all_brokers_and_grows_with_each_term(w: KafkaWorld) -> None:
    assert epoch(w) == 1
    await w.active.crash()
    w.die(1, 2, 3)
    assert epoch(w) == 1
    await w.begin_term()
    assert epoch(w) == 2


@pytest.mark.kafka("ControllerIntegrationTest.testMetadataPropagationForOfflineReplicas")
@pytest.mark.seed("S4-65", "S4-68")
@in_world()
async def test_a_broker_that_starts_after_the_controller_gets_offline_replicas_and_an_isr(w: KafkaWorld) -> None:
    await w.topic("gone", (1, 2), leaders=True)
    w.die(1, 2, 3)
    await w.begin_term()
    leader, isr = w.leaders()["gone", 0]
    assert (leader, len(isr)) == (-1, 1), "no ISR is ever empty"
    await w.boot(3)
    await w.propagated()
    assert w.wires.last_sent(3, UPDATE_METADATA)["gone", 0][0] == -1
    assert w.wires.offline(3) == {("gone", 0): (1, 2)}
    [found] = {
        tuple(p.isr) for r in w.wires.requests(3, UPDATE_METADATA) for t in r.topic_states for p in t.partition_states
    }
    assert found == isr


@pytest.mark.kafka("DeleteTopicTest.testDeleteTopicDuringAddPartition")
@pytest.mark.seed("S4-78")
@in_world(before=running)
async def test_a_topic_that_is_deleted_while_it_grows_goes_as_a_whole(w: KafkaWorld) -> None:
    w.server.hold_watches(w.active.zk.session_id)
    await w.expand("t", (3, 1))
    await w.mark("t")
    w.server.release_watches(w.active.zk.session_id)
    await w.propagated()
    await w.propagated()
    assert w.znodes_of("t") == []
    assert w.term.cluster.topic("t") is None


@pytest.mark.kafka("ControllerIntegrationTest.testPartitionReassignment")
@pytest.mark.seed("S4-54", "S4-61")
@in_world()
async def test_a_replica_moves_by_znode_in_three_leader_epochs(w: KafkaWorld) -> None:
    await w.topic("single", (1,), leaders=True)
    await running(w)
    before = w.states["single", 0].leader_epoch
    timed = w.counters.events["reassign_partitions"].count
    await request_by_znode(w, {("single", 0): (2,)})
    await caught_up(w)
    held = w.states["single", 0]
    assert (held.leader, held.isr, held.leader_epoch) == (2, (2,), before + 3)
    assert written(w, "single") == Assignment((2,))
    assert w.node(paths.REASSIGN_PARTITIONS) is None
    assert w.counters.events["reassign_partitions"].count > timed


@pytest.mark.kafka("ControllerEventManagerTest.testEventQueueTime")
@in_world(before=running)
async def test_the_queue_time_of_events_is_counted(w: KafkaWorld) -> None:
    handled = w.counters.queue_time.count
    w.term.queue.signal(EventKind.TOPIC_CHANGE)
    late = Event(EventKind.RECONNECTED)
    late.enqueued_s -= 5.0
    w.term.queue.post(late)
    await w.settle()
    assert w.counters.queue_time.count >= handled + 2
    assert 5.0 <= w.counters.queue_time.max_s < 60.0


# -- /feature, and IBPs that brokers and controllers do not share

FEATURES = {"f": FeatureRange(3, 1)}


@pytest.mark.kafka("ControllerIntegrationTest.testControllerFeatureZNodeSetup*")
@pytest.mark.seed("S4-85")
@pytest.mark.parametrize("ibp", ["2.6", OLD_IBP])
@pytest.mark.parametrize("before", [None, Features(1, False), Features(1, True, FEATURES)], ids=["none", "off", "on"])
@in_world()
async def test_the_feature_znode_is_enabled_from_ibp_2_7_and_emptied_below(
    w: KafkaWorld, before: Features | None, ibp: str
) -> None:
    if before is not None:
        await w.operator.create(paths.FEATURE, encode_features(before))
    await w.begin_term(ibp)
    node = w.node(paths.FEATURE)
    assert node is not None
    kept = {} if ibp == "2.6" or before is None else before.features
    assert decode_features(paths.FEATURE, node.data) == Features(1, ibp != "2.6", kept)


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionVersion2KeepWorkingWhenControllerDowngradeToPre28IBP")
@pytest.mark.seed("S4-80", "S4-85")
@in_world()
async def test_an_isr_is_changed_by_topic_id_under_a_controller_at_an_older_ibp(w: KafkaWorld) -> None:
    await running(w, OLD_IBP)
    for version, isr in ((2, (1, 2)), (3, (1, 2, 3))):
        found = await w.alter_partition(1, w.proposal("t", 0, isr), version=version)
        assert [p.error for p in found.partitions] == [0]
        assert w.leaders()["t", 0] == (1, isr)


@pytest.mark.kafka("ReassignPartitionsCommandTest.testReassignmentCompletionDuringPartialUpgrade")
@pytest.mark.seed("S4-54")
@in_world(before=running)
async def test_a_leader_of_an_older_ibp_completes_a_reassignment_by_its_notification(w: KafkaWorld) -> None:
    await w.topic("u", (1, 2), leaders=True)
    await propagated(w)
    await alter(w, {("u", 0): (2, 3)})
    await propagated(w)
    await w.leader_writes("u", 0, (1, 2, 3))
    await propagated(w)
    assert written(w, "u").moving, "at this IBP state znodes have no watch"
    await w.notify(TopicPartition("u", 0))
    await propagated(w)
    assert (written(w, "u"), w.leaders()["u", 0]) == (Assignment((2, 3)), (2, (2, 3)))


# -- topic ids


@pytest.mark.kafka(
    "ControllerIntegrationTest.testTopicIdMigrationAndHandling",
    "ControllerIntegrationTest.testTopicIdPersistsThroughControllerReelection",
    "ControllerIntegrationTest.testTopicIdPersistsThroughControllerRestart",
    "ControllerIntegrationTest.testTopicIdCreatedOnUpgrade",
    "ControllerIntegrationTest.testTopicIdCreatedOnUpgradeMultiBrokerScenario",
    "ControllerIntegrationTest.testTopicIdUpgradeAfterReassigningPartitions",
)
@pytest.mark.seed("S4-85")
@in_world()
async def test_a_topic_id_is_given_once_and_outlives_all_but_its_topic(w: KafkaWorld) -> None:
    await w.topic("old", (1, 2), topic_id=None, leaders=True)
    await w.serve(OLD_IBP)
    assert w.assignment("old").topic_id is None
    await w.active.crash()
    w.knows = {broker: {"old": None} for broker in (1, 2, 3)}
    await w.serve()
    given = w.assignment("old").topic_id
    assert given is not None
    [sent] = {t.topic_id.bytes for r in w.wires.requests(1, LEADER_AND_ISR)[-1:] for t in r.topic_states}
    assert sent == given, "brokers that run it without an id get it"
    for ibp in (OLD_IBP, "3.9"):
        await w.active.crash()
        await w.begin_term(ibp)
        await w.expand("old", (2, 3))
        await w.propagated()
        target = (1, 3) if ibp == OLD_IBP else (1, 2)
        await alter(w, {("old", 0): target})
        if ibp == OLD_IBP:
            await w.leader_writes("old", 0, (1, 2, 3))
        else:
            await w.alter_partition(1, w.proposal("old", 0, (1, 2, 3), topic=given))
        await propagated(w)
        assert (written(w, "old"), w.assignment("old").topic_id) == (Assignment(target), given)
        known = w.term.cluster.topic("old")
        assert known is not None
        assert known.topic_id == given
    await w.mark("old")
    await w.propagated()
    assert w.node(paths.topic("old")) is None
    assert given not in w.term.cluster.topic_ids


@pytest.mark.kafka(
    "ControllerIntegrationTest.testTopicIdsAreNotAdded",
    "ControllerIntegrationTest.testTopicIdMigrationAndHandlingWithOlderVersion",
    "ControllerIntegrationTest.testNoTopicIdPersistsThroughControllerReelection",
)
@pytest.mark.seed("S4-85")
@in_world()
async def test_a_topic_gets_no_id_below_ibp_2_8(w: KafkaWorld) -> None:
    await w.topic("old", (1, 2), topic_id=None)
    for _ in range(2):
        await w.begin_term(OLD_IBP)
        await w.expand("old", (2, 3))
        await w.propagated()
        assert w.assignment("old").topic_id is None
        await w.active.crash()
    await w.begin_term(OLD_IBP)
    await w.mark("old")
    await w.propagated()
    assert w.node(paths.topic("old")) is None


# -- counts


def offline_partitions(w: KafkaWorld) -> int:
    """Returns the gauge of the alert."""
    owner = mock.Mock(counters=w.counters, lease=None, zk=None, mode=Mode.ACTIVE, heartbeat_s=0.0)
    return gauges_of(owner, w.term, StatusReader(mock.Mock())).offline_partitions


@pytest.mark.kafka(
    "PartitionStateMachineTest.testUpdatingOfflinePartitionsCount",
    "PartitionStateMachineTest.testNoOfflinePartitionsChangeForTopicsBeingDeleted",
    "PartitionStateMachineTest.testUpdatingOfflinePartitionsCountDuringTopicDeletion",
)
@in_world()
async def test_offline_partitions_are_counted_unless_they_are_being_deleted(w: KafkaWorld) -> None:
    await w.topic("single", (1,), (1,), (2,), leaders=True)
    await running(w)
    counts = [offline_partitions(w)]
    w.die(1)
    await w.propagated()
    counts.append(offline_partitions(w))
    await w.mark("single")
    await w.propagated()
    counts.append(offline_partitions(w))
    assert w.node(paths.deletion("single")) is not None, "it waits for broker 1"
    w.die(2)
    await w.propagated()
    counts.append(offline_partitions(w))
    await w.boot(1, 2)
    await w.propagated()
    counts.append(offline_partitions(w))
    assert counts == [0, 2, 0, 0, 0]
    assert w.node(paths.topic("single")) is None


@pytest.mark.kafka(
    "ControllerContextTest.testPreferredReplicaImbalanceMetric",
    "ControllerContextTest.testPreferredReplicaImbalanceMetricOnConcurrentTopicDeletion",
)
@in_world(auto_leader_rebalance_enable=False)
async def test_partitions_that_their_preferred_replica_does_not_lead_are_counted_until_they_are_deleted(
    w: KafkaWorld,
) -> None:
    await w.topic("a", (1, 2, 3), (1, 2, 3), (1, 2, 3), leaders=True)
    await w.topic("b", (1, 2, 3), (3, 2, 1), leaders=True, led_by=3)
    await w.serve()

    def count() -> int:
        found = Counted().of(w.term.cluster)
        assert found is not None
        return imbalance(found, Deletions.of(w.term.cluster))

    counts = [count()]
    w.die(1)
    await w.propagated()
    counts.append(count())
    await w.boot(1)
    await w.propagated()
    w.wires.silent.add(2)
    await w.mark("b")
    await asyncio.sleep(0.1)
    await w.settle()
    counts.append(count())
    await w.mark("a")
    await asyncio.sleep(0.1)
    await w.settle()
    counts.append(count())
    w.wires.respond(2)
    await w.propagated()
    counts.append(count())
    assert counts == [1, 4, 3, 0, 0]
    assert not w.leaders()
