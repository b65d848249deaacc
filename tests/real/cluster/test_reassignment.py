"""Replicas move between real brokers under acks=all load, requested by znode."""

from __future__ import annotations

import json
import uuid

import pytest

from metadata_store import paths
from state_machines.model.types import Assignment
from testing.znodes import create_topic, read_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="package")

PARTITIONS = 12
RING = ((1, 2), (2, 3), (3, 1))


async def placed(stage: Scene, topic: str) -> dict[int, Assignment]:
    """Reads the assignments in the topic znode."""
    return (await read_topic(stage.w.zk, topic)).partitions


async def create(stage: Scene, replicas: tuple[int, ...]) -> str:
    """Creates a topic and waits until all partitions have leaders and are in sync."""
    topic = f"moves-{uuid.uuid4().hex[:6]}"
    await create_topic(stage.w.zk, topic, dict.fromkeys(range(PARTITIONS), replicas))
    await eventually(lambda: led(stage, topic, set(replicas)), 30.0)
    return topic


async def led(stage: Scene, topic: str, isr: set[int]) -> bool:
    states = {name: state for name, (_, state) in (await stage.w.states()).items() if name[0] == topic}
    whole = all(state is not None and state.leader in isr and set(state.isr) == isr for state in states.values())
    return whole and len(states) == PARTITIONS


async def request(stage: Scene, topic: str, replicas: tuple[int, ...]) -> None:
    wanted = [{"topic": topic, "partition": p, "replicas": replicas} for p in range(PARTITIONS)]
    await stage.w.zk.create(paths.REASSIGN_PARTITIONS, json.dumps({"version": 1, "partitions": wanted}).encode())


async def moved(stage: Scene, topic: str, replicas: tuple[int, ...]) -> bool:
    """Returns whether the request is gone, and topic znode, ISRs and logs have the target alone."""
    if await stage.w.zk.exists(paths.REASSIGN_PARTITIONS) is not None:
        return False
    assert set((await placed(stage, topic)).values()) == {Assignment(replicas)}
    assert await led(stage, topic, set(replicas))
    assert stage.w.hosting(topic) == {(broker, p) for broker in replicas for p in range(PARTITIONS)}
    return True


@pytest.mark.kafka(
    "ReassignPartitionsCommandTest.testReassignment",
    "ReassignPartitionsCommandTest.testProduceAndConsumeWithReassignmentInProgress",
    "kafkatest.reassign_partitions_test",
)
@pytest.mark.seed("S4-51", "S4-54", "S4-57", "S4-59", "S4-60", "S4-61", "S4-77")
async def test_replicas_move_and_their_old_logs_are_deleted(stage: Scene) -> None:
    topic = await create(stage, RING[0])
    await request(stage, topic, RING[1])
    await eventually(lambda: moved(stage, topic, RING[1]), 60.0)
    await stage.proven()


@pytest.mark.kafka("kafkatest.reassign_partitions_test")
@pytest.mark.seed("S4-50", "S4-54")
async def test_a_reassignment_ends_after_a_destination_was_dead(stage: Scene) -> None:
    topic = await create(stage, RING[0])
    await stage.w.cluster.brokers[3].kill()
    await request(stage, topic, RING[1])
    await eventually(lambda: begun(stage, topic), 30.0)
    await stage.w.cluster.revive(3)
    await eventually(lambda: moved(stage, topic, RING[1]), 60.0)
    await stage.proven()


async def begun(stage: Scene, topic: str) -> bool:
    return all(found.moving for found in (await placed(stage, topic)).values())
