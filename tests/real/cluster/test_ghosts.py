"""Real brokers forget partitions that ZooKeeper lacks: of a deletion left half done, and of znodes removed by hand."""

from __future__ import annotations

import uuid

import pytest

from brokers.client import BrokerClient
from metadata_store import paths
from metadata_store.port import ANY_VERSION
from testing.znodes import create_topic, remove_by_hand
from tests.kit.polling import eventually
from tests.real.cluster.scene import Scene, agreed, succeeds
from tests.real.cluster.test_deletion import started

pytestmark = pytest.mark.asyncio(loop_scope="package")


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

    await eventually(only_what_is_there, 30.0)
    await agreed(stage.daemon)
    await stage.delete(half)
    await succeeds(stage.daemon, "strays", "--remove", "--topic", by_hand, "--yes")  # Kafka never deletes these logs
    await stage.proven()
