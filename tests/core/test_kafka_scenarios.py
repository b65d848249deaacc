"""What Kafka's own controller tests pin down and no other test shows: the controller moves, restarts, ids, counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from unittest import mock

import pytest

from brokers.listener.controller_listener import NotController
from controller.engine.event_kinds import EventKind
from controller.engine.event_queue import Event
from controller.operator.counts import Counted, Deletions, imbalance
from controller.operator.role_status import StatusReader
from controller.operator.sampling import gauges_of
from controller.role.mode import Mode
from metadata_store import paths
from metadata_store.codecs.features import FeatureRange, Features, decode_features, encode_features
from state_machines.model.types import Assignment, ReplicaState, TopicPartition
from tests.core.carried_kit import create, created, topic
from tests.core.controller_parts import LEADER_AND_ISR, UPDATE_METADATA
from tests.core.controller_world import World, world
from tests.core.daemon_world import daemon, epoch, ruling
from tests.core.reassignment_kit import alter, ask_by_znode, caught_up, told, written
from tests.core.virtual_time import in_virtual_time

OLD_IBP = "2.7-IV1"


async def running(w: World, ibp: str = "3.9") -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.begin_term(ibp)
    await w.told()
    w.wires.frames.clear()


def offline(w: World, broker: int) -> dict[tuple[str, int], tuple[int, ...]]:
    """Offline replicas as a broker was last told them."""
    return {
        (t.topic_name, p.partition_index): tuple(p.offline_replicas)
        for request in w.wires.heard(broker, UPDATE_METADATA)
        for t in request.topic_states
        for p in t.partition_states
    }


def live(w: World, broker: int) -> set[int]:
    """Brokers of the live list that a broker was told last."""
    return {b.id_ for b in w.wires.heard(broker, UPDATE_METADATA)[-1].live_brokers} & {1, 2, 3}


# -- another controller was elected, and the watches are late


async def create_topic(w: World) -> None:
    with pytest.raises(NotController):
        await created(w, create(topic("new", 1, 1)))


async def topic_appears(w: World) -> None:
    await w.topic("new", (1, 2))
    w.term.queue.signal(EventKind.TOPIC_CHANGE)


async def delete_topic(w: World) -> None:
    await w.mark("t")
    w.term.queue.signal(EventKind.TOPIC_DELETION)


async def elect_preferred(w: World) -> None:
    await w.ask_for_preferred(("behind", 0))
    w.term.queue.signal(EventKind.PREFERRED_ELECTION)


async def reassign(w: World) -> None:
    with pytest.raises(NotController):
        await alter(w, {("t", 0): (3, 1)})


async def reassign_by_znode(w: World) -> None:
    await ask_by_znode(w, {("t", 0): (3, 1)})
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
@in_virtual_time
async def test_whose_epoch_was_raised_meanwhile_writes_nothing(asked: Callable[[World], Awaitable[None]]) -> None:
    """What happened is known to it, the other controller is not: the write itself finds out."""
    async with world() as w:
        await w.topic("behind", (1, 2), leaders=True, led_by=2)
        await running(w)
        before, assigned = w.led(), w.assignments()
        w.server.hold_watches(w.active.zk.session_id)
        await w.operator.set(paths.CONTROLLER_EPOCH, b"99", -1)
        await asked(w)
        assert "/controller_epoch" in await w.active.ended()
        assert w.counters.fenced == 1
        assert w.led() == before
        assert {name: w.assignments()[name] for name in assigned} == assigned
        assert w.node(paths.state("new", 0)) is None
        assert w.wires.frames == [], "and nobody heard of it"


@pytest.mark.kafka("ControllerFailoverTest.testHandleIllegalStateException")
@pytest.mark.kafka("ControllerEventManagerTest.testEventThatThrowsException")
@in_virtual_time
async def test_an_error_ends_the_term_is_timed_and_the_next_one_has_a_higher_epoch() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        term, claimed = await d.serving(), epoch(w)
        handled = d.daemon.counters.events["broker_change"].count
        with mock.patch("controller.handlers.broker_change.compare", side_effect=ValueError("a bug")):
            w.die(1)
            await term.finished.wait()
        assert d.daemon.counters.events["broker_change"].count == handled + 1
        assert await d.serving() is not term
        assert epoch(w) == claimed + 1
        assert w.led()["t", 0] == (2, (2, 3))


# -- all brokers down, and what brokers show


@pytest.mark.kafka("ControllerIntegrationTest.testControllerEpochPersistsWhenAllBrokersDown")
@pytest.mark.kafka("ControllerIntegrationTest.testControllerMoveIncrementsControllerEpoch")
@in_virtual_time
async def test_the_epoch_outlives_everybody_and_grows_with_each_term() -> None:
    async with world() as w:
        await running(w)
        assert epoch(w) == 1
        await w.active.crash()
        w.die(1, 2, 3)
        assert epoch(w) == 1
        await w.begin_term()
        assert epoch(w) == 2


@pytest.mark.kafka("ControllerIntegrationTest.testMetadataPropagationForOfflineReplicas")
@pytest.mark.seed("S4-65", "S4-68")
@in_virtual_time
async def test_a_controller_that_comes_before_all_brokers_tells_them_what_is_offline() -> None:
    async with world() as w:
        await w.topic("gone", (1, 2), leaders=True)
        w.die(1, 2, 3)
        await w.begin_term()
        leader, isr = w.led()["gone", 0]
        assert (leader, len(isr)) == (-1, 1), "no ISR is ever empty"
        await w.boot(3)
        await w.told()
        assert w.wires.last_word(3, UPDATE_METADATA)["gone", 0][0] == -1
        assert offline(w, 3) == {("gone", 0): (1, 2)}
        [found] = {
            tuple(p.isr) for r in w.wires.heard(3, UPDATE_METADATA) for t in r.topic_states for p in t.partition_states
        }
        assert found == isr


@pytest.mark.kafka("ControllerIntegrationTest.testMetadataPropagationOnBrokerChange")
@in_virtual_time
async def test_replicas_of_a_broker_are_shown_offline_while_it_is_away_and_not_after() -> None:
    async with world() as w:
        await running(w)
        w.die(1)
        await w.told()
        assert all(offline(w, b) == {("t", 0): (1,), ("t", 1): (1,)} for b in (2, 3))
        assert {isr for _, isr in w.led().values()} == {(2, 3)}
        await w.boot(1)
        await w.told()
        assert all(offline(w, b) == {("t", 0): (), ("t", 1): ()} for b in (1, 2, 3))


@pytest.mark.kafka("ControllerChannelManagerTest.testUpdateMetadataIncludesLiveOrShuttingDownBrokers")
@in_virtual_time
async def test_a_broker_that_shuts_down_stays_in_the_live_list_until_it_is_gone() -> None:
    async with world() as w:
        await running(w)
        await w.controlled_shutdown(1)
        await w.told()
        assert live(w, 1) == live(w, 2) == {1, 2, 3}
        w.die(1)
        await w.told()
        assert live(w, 2) == {2, 3}


@pytest.mark.kafka("DeleteTopicTest.testDeleteTopicDuringAddPartition")
@pytest.mark.seed("S4-78")
@in_virtual_time
async def test_a_topic_that_is_deleted_while_it_grows_goes_as_a_whole() -> None:
    async with world() as w:
        await running(w)
        w.server.hold_watches(w.active.zk.session_id)
        await w.expand("t", (3, 1))
        await w.mark("t")
        w.server.release_watches(w.active.zk.session_id)
        await w.told()
        await w.told()
        assert w.znodes_of("t") == []
        assert w.term.cluster.topic("t") is None


@pytest.mark.kafka("ControllerIntegrationTest.testPartitionReassignment")
@pytest.mark.seed("S4-54", "S4-61")
@in_virtual_time
async def test_a_replica_moves_by_znode_in_three_leader_epochs() -> None:
    async with world() as w:
        await w.topic("single", (1,), leaders=True)
        await running(w)
        before = w.states["single", 0].leader_epoch
        timed = w.counters.events["reassign_partitions"].count
        await ask_by_znode(w, {("single", 0): (2,)})
        await caught_up(w)
        held = w.states["single", 0]
        assert (held.leader, held.isr, held.leader_epoch) == (2, (2,), before + 3)
        assert written(w, "single") == Assignment((2,))
        assert w.node(paths.REASSIGN_PARTITIONS) is None
        assert w.counters.events["reassign_partitions"].count > timed


@pytest.mark.kafka("ControllerEventManagerTest.testEventQueueTime")
@in_virtual_time
async def test_how_long_events_waited_is_counted() -> None:
    async with world() as w:
        await running(w)
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
@in_virtual_time
async def test_the_feature_znode_as_it_was_found(before: Features | None, ibp: str) -> None:
    """Below IBP 2.7 features are switched off and forgotten, from it on they are on and kept."""
    async with world() as w:
        if before is not None:
            await w.operator.create(paths.FEATURE, encode_features(before))
        await w.begin_term(ibp)
        node = w.node(paths.FEATURE)
        assert node is not None
        kept = {} if ibp == "2.6" or before is None else before.features
        assert decode_features(paths.FEATURE, node.data) == Features(1, ibp != "2.6", kept)


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionVersion2KeepWorkingWhenControllerDowngradeToPre28IBP")
@pytest.mark.seed("S4-80", "S4-85")
@in_virtual_time
async def test_leaders_ask_by_id_though_the_controller_is_at_an_older_ibp() -> None:
    async with world() as w:
        await running(w, OLD_IBP)
        for version, isr in ((2, (1, 2)), (3, (1, 2, 3))):
            found = await w.alter_partition(1, w.proposal("t", 0, isr), version=version)
            assert [p.error for p in found.partitions] == [0]
            assert w.led()["t", 0] == (1, isr)


@pytest.mark.kafka("ReassignPartitionsCommandTest.testReassignmentCompletionDuringPartialUpgrade")
@pytest.mark.seed("S4-54")
@in_virtual_time
async def test_a_leader_of_an_older_ibp_completes_a_reassignment_by_its_notification() -> None:
    async with world() as w:
        await running(w)
        await w.topic("u", (1, 2), leaders=True)
        await told(w)
        await alter(w, {("u", 0): (2, 3)})
        await told(w)
        await w.leader_writes("u", 0, (1, 2, 3))
        await told(w)
        assert written(w, "u").moving, "at this IBP nobody watches state znodes"
        await w.notify(TopicPartition("u", 0))
        await told(w)
        assert (written(w, "u"), w.led()["u", 0]) == (Assignment((2, 3)), (2, (2, 3)))


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
@in_virtual_time
async def test_an_id_is_given_once_and_outlives_everything_but_its_topic() -> None:
    async with world() as w:
        await w.topic("old", (1, 2), topic_id=None, leaders=True)
        await w.begin_term(OLD_IBP)
        await w.told()
        assert w.assignment("old").topic_id is None
        await w.active.crash()
        w.knows = {broker: {"old": None} for broker in (1, 2, 3)}
        await w.begin_term()
        await w.told()
        given = w.assignment("old").topic_id
        assert given is not None
        [heard] = {t.topic_id.bytes for r in w.wires.heard(1, LEADER_AND_ISR)[-1:] for t in r.topic_states}
        assert heard == given, "brokers that run it without an id hear it"
        for ibp in (OLD_IBP, "3.9"):
            await w.active.crash()
            await w.begin_term(ibp)
            await w.expand("old", (2, 3))
            await w.told()
            target = (1, 3) if ibp == OLD_IBP else (1, 2)
            await alter(w, {("old", 0): target})
            if ibp == OLD_IBP:
                await w.leader_writes("old", 0, (1, 2, 3))
            else:
                await w.alter_partition(1, w.proposal("old", 0, (1, 2, 3), topic=given))
            await told(w)
            assert (written(w, "old"), w.assignment("old").topic_id) == (Assignment(target), given)
            known = w.term.cluster.topic("old")
            assert known is not None
            assert known.topic_id == given
        await w.mark("old")
        await w.told()
        assert w.node(paths.topic("old")) is None
        assert given not in w.term.cluster.topic_ids


@pytest.mark.kafka(
    "ControllerIntegrationTest.testTopicIdsAreNotAdded",
    "ControllerIntegrationTest.testTopicIdMigrationAndHandlingWithOlderVersion",
    "ControllerIntegrationTest.testNoTopicIdPersistsThroughControllerReelection",
)
@pytest.mark.seed("S4-85")
@in_virtual_time
async def test_below_ibp_2_8_nothing_gives_an_id() -> None:
    async with world() as w:
        await w.topic("old", (1, 2), topic_id=None)
        for _ in range(2):
            await w.begin_term(OLD_IBP)
            await w.expand("old", (2, 3))
            await w.told()
            assert w.assignment("old").topic_id is None
            await w.active.crash()
        await w.begin_term(OLD_IBP)
        await w.mark("old")
        await w.told()
        assert w.node(paths.topic("old")) is None


# -- counts


def offline_partitions(w: World) -> int:
    """The gauge that alerts look at."""
    owner = mock.Mock(counters=w.counters, lease=None, zk=None, mode=Mode.ACTIVE, heartbeat_s=0.0)
    return gauges_of(owner, w.term, StatusReader(mock.Mock()), 0).offline_partitions


@pytest.mark.kafka(
    "PartitionStateMachineTest.testUpdatingOfflinePartitionsCount",
    "PartitionStateMachineTest.testNoOfflinePartitionsChangeForTopicsBeingDeleted",
    "PartitionStateMachineTest.testUpdatingOfflinePartitionsCountDuringTopicDeletion",
)
@in_virtual_time
async def test_offline_partitions_are_counted_and_those_that_are_deleted_are_not() -> None:
    async with world() as w:
        await w.topic("single", (1,), (1,), (2,), leaders=True)
        await running(w)
        counts = [offline_partitions(w)]
        w.die(1)
        await w.told()
        counts.append(offline_partitions(w))
        await w.mark("single")
        await w.told()
        counts.append(offline_partitions(w))
        assert w.node(paths.deletion("single")) is not None, "it waits for broker 1"
        w.die(2)
        await w.told()
        counts.append(offline_partitions(w))
        await w.boot(1, 2)
        await w.told()
        counts.append(offline_partitions(w))
        assert counts == [0, 2, 0, 0, 0]
        assert w.node(paths.topic("single")) is None


@pytest.mark.kafka(
    "ControllerContextTest.testPreferredReplicaImbalanceMetric",
    "ControllerContextTest.testPreferredReplicaImbalanceMetricOnConcurrentTopicDeletion",
)
@in_virtual_time
async def test_who_is_not_led_by_its_preferred_replica_is_counted_until_it_is_deleted() -> None:
    async with world(auto_leader_rebalance_enable=False) as w:
        await w.topic("a", (1, 2, 3), (1, 2, 3), (1, 2, 3), leaders=True)
        await w.topic("b", (1, 2, 3), (3, 2, 1), leaders=True, led_by=3)
        await w.begin_term()
        await w.told()

        def count() -> int:
            found = Counted().of(w.term.cluster)
            assert found is not None
            return imbalance(found, Deletions.of(w.term.cluster))

        counts = [count()]
        w.die(1)
        await w.told()
        counts.append(count())
        await w.boot(1)
        await w.told()
        w.wires.silent.add(2)
        await w.mark("b")
        await asyncio.sleep(0.1)
        await w.settle()
        counts.append(count())
        await w.mark("a")
        await asyncio.sleep(0.1)
        await w.settle()
        counts.append(count())
        w.wires.speak(2)
        await w.told()
        counts.append(count())
        assert counts == [1, 4, 3, 0, 0]
        assert not w.led()


@pytest.mark.kafka(
    "ReplicaStateMachineTest.testStartupOnlinePartition",
    "ReplicaStateMachineTest.testStartupOfflinePartition",
    "ReplicaStateMachineTest.testStartupWithReplicaWithoutLeader",
)
@pytest.mark.seed("S4-29", "S4-66")
@in_virtual_time
async def test_replicas_begin_a_term_online_or_offline() -> None:
    async with world(2, 3) as w:
        await w.topic("led", (2, 1), leaders=True)
        await w.topic("never-led", (1,))
        await w.begin_term()
        cluster = w.term.cluster
        led, never = cluster.find("led", 0), cluster.find("never-led", 0)
        assert led is not None
        assert never is not None
        assert [cluster.replica_state(led, b) for b in (2, 1)] == [ReplicaState.ONLINE, ReplicaState.OFFLINE]
        assert cluster.replica_state(never, 1) is ReplicaState.OFFLINE
