"""Real brokers delete topics under load on another topic: logs disappear, and the name may be used again."""

from __future__ import annotations

import uuid

import pytest

from metadata_store import paths
from testing.znodes import create_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import Scene

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.seed("S4-77", "S4-78")]


async def started(stage: Scene, topic: str, replicas: dict[int, list[int]]) -> None:
    """Creates a topic and waits until each replica has its log and is in sync."""
    await create_topic(stage.w.zk, topic, replicas, config={"retention.ms": "60000"})
    wanted = {(broker, partition) for partition, brokers in replicas.items() for broker in brokers}
    await eventually(lambda: stage.w.hosting(topic) == wanted, 30.0)
    await stage.w.healed()


async def mark(stage: Scene, topic: str) -> None:
    """Marks a topic for deletion, as tools of Kafka 2 do, and brokers for DeleteTopics."""
    await stage.w.zk.create(paths.deletion(topic), None)


@pytest.mark.kafka(
    "DeleteTopicTest.testDeleteTopicWithAllAliveReplicas", "DeleteTopicTest.testRecreateTopicAfterDeletion"
)
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
