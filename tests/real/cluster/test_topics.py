"""Topics on real brokers: deleted under load, left half done, and assigned to brokers that do not exist."""

from __future__ import annotations

import uuid

import pytest

from brokers.client import BrokerClient
from metadata_store import paths
from metadata_store.port import ANY_VERSION
from state_machines.model.types import TopicAssignment
from testing.znodes import create_topic, read_topic, remove_by_hand
from tests.kit.cluster.scene import Scene, agreed, succeeds
from tests.kit.deadlines import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def started(stage: Scene, topic: str, replicas: dict[int, list[int]]) -> None:
    """Creates a topic and waits until each replica has its log and is in sync."""
    await create_topic(stage.w.zk, topic, replicas, config={"retention.ms": "60000"})
    wanted = {(broker, partition) for partition, brokers in replicas.items() for broker in brokers}
    await eventually(lambda: stage.w.hosting(topic) == wanted)
    await stage.w.healed()


async def mark(stage: Scene, topic: str) -> None:
    """Marks a topic for deletion, as tools of Kafka 2 do, and brokers for DeleteTopics."""
    await stage.w.zk.create(paths.deletion(topic), None)


@pytest.mark.kafka(
    "DeleteTopicTest.testDeleteTopicWithAllAliveReplicas", "DeleteTopicTest.testRecreateTopicAfterDeletion"
)
@pytest.mark.seed("S4-77", "S4-78")
async def test_a_deleted_topic_leaves_nothing_behind_and_its_name_is_free(stage: Scene) -> None:
    topic, epoch = f"short-lived-{uuid.uuid4().hex[:6]}", await stage.active()
    for replicas in ({0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1]}, {0: [3, 2], 1: [1, 3]}):
        await started(stage, topic, replicas)
        await stage.delete(topic)
    assert await stage.active() == epoch
    await stage.proven()


@pytest.mark.kafka(
    "DeleteTopicTest.testResumeDeleteTopicWithRecoveredFollower",
    "DeleteTopicTest.testResumeDeleteTopicOnControllerFailover",
)
@pytest.mark.seed("S4-77", "S4-78")
async def test_a_deletion_waits_for_a_broker_and_survives_the_daemon(stage: Scene) -> None:
    topic = f"doomed-{uuid.uuid4().hex[:6]}"
    await started(stage, topic, {0: [1, 2, 3], 1: [3, 1, 2]})
    await stage.w.cluster.brokers[3].kill()
    await mark(stage, topic)
    left = {(3, 0), (3, 1)}
    await eventually(lambda: stage.w.hosting(topic) == left, 60.0)
    await stage.daemon.kill()
    await stage.daemon.boot()
    await stage.active()
    assert await stage.w.zk.exists(paths.deletion(topic)) is not None
    await eventually(lambda: stage.w.hosting(topic) == left, 60.0)  # the failover may begin the deletion anew
    await stage.w.cluster.revive(3)
    await eventually(lambda: stage.gone(topic), 60.0)
    await stage.proven()


async def shown(stage: Scene, *topics: str) -> dict[int, dict[str, list[int]]]:
    """Returns the partitions of topics in each broker's metadata."""
    found: dict[int, dict[str, list[int]]] = {}
    for broker, process in stage.w.cluster.brokers.items():
        async with await BrokerClient.connect("127.0.0.1", process.internal_port) as client:
            told = (await client.metadata(topics)).topics
            found[broker] = {name: sorted(topic.partitions) for name, topic in told.items() if topic.partitions}
    return found


async def left_half_done(stage: Scene, topic: str) -> None:
    """Marks a topic, and deletes the state znodes of two partitions, as a controller that dies in their midst."""
    await stage.w.zk.create(paths.deletion(topic), None)
    for partition in (1, 2):
        await stage.w.zk.delete(paths.state(topic, partition), ANY_VERSION)
        await stage.w.zk.delete(paths.partition(topic, partition), ANY_VERSION)


async def test_a_new_term_ends_what_brokers_show_and_zookeeper_lacks(stage: Scene) -> None:
    half, by_hand = (f"{name}-{uuid.uuid4().hex[:6]}" for name in ("half", "by-hand"))
    await started(stage, half, {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    await started(stage, by_hand, {0: [1, 2]})
    await stage.daemon.kill()
    await left_half_done(stage, half)
    await remove_by_hand(stage.w.zk, by_hand)
    await stage.daemon.boot()
    await stage.active()
    await eventually(lambda: stage.gone(half), 60.0)
    await create_topic(stage.w.zk, half, {0: [1, 2, 3]})
    await stage.w.healed()

    async def only_what_is_there() -> bool:
        found = await shown(stage, half, by_hand)
        assert set(found) == {1, 2, 3}
        assert all(topics == {half: [0]} for topics in found.values()), found
        return True

    await eventually(only_what_is_there)
    await agreed(stage.daemon)
    await stage.delete(half)
    await succeeds(stage.daemon, "strays", "--remove", "--topic", by_hand, "--yes")  # Kafka never deletes these logs
    await stage.proven()


async def leader(stage: Scene, topic: str, partition: int = 0) -> int | None:
    """Reads the leader of a partition from ZooKeeper; None without a state znode."""
    [state] = await stage.w.store.load_states([(topic, partition)])
    return getattr(state, "leader", None)


@pytest.mark.seed("S4-88")
async def test_a_daemon_in_an_assignment_is_replaced_and_unknown_brokers_stay(
    stage: Scene,
) -> None:
    topic = f"strange-{uuid.uuid4().hex[:6]}"
    await create_topic(stage.w.zk, topic, {0: [1, 99], 1: [99], 2: [stage.daemon.id, 2], 3: [2, 3, 1]})
    await eventually(lambda: _is(stage, topic, {0: 1, 1: None, 3: 2}))

    async def replaced() -> TopicAssignment | None:
        found = await read_topic(stage.w.zk, topic)
        return found if stage.daemon.id not in found.partitions[2].replicas else None

    found = await eventually(replaced)
    assert found is not None
    assert len(set(found.partitions[2].replicas)) == 2
    assert [found.partitions[p].replicas for p in (0, 1, 3)] == [(1, 99), (99,), (2, 3, 1)], "nothing else is touched"
    await eventually(lambda: _is(stage, topic, {2: found.partitions[2].replicas[0]}))
    explained = await stage.daemon.get(f"/v1/topics/{topic}/partitions/1/explanation")
    assert "99" in str(explained)
    await agreed(stage.daemon)


async def _is(stage: Scene, topic: str, wanted: dict[int, int | None]) -> bool:
    found = {partition: await leader(stage, topic, partition) for partition in wanted}
    assert found == wanted
    return True
