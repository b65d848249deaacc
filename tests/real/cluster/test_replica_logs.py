"""Real brokers list the logs of their replicas, and have the throttles in force that are written for moves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from brokers.client import BrokerClient
from brokers.loads import sizes
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import encode_config
from metadata_store.codecs.notifications import encode_config_change
from metadata_store.nodes.entity_configs import read_entities
from metadata_store.port import ANY_VERSION
from state_machines.admin_rules.throttles import (
    BROKERS,
    RATES,
    TOPICS,
    Entity,
    restore,
    throttle,
    throttled_entities,
    unconfirmed,
)
from state_machines.decisions.strays import StrayReason, strays
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicAssignment, TopicPartition
from tests.kit.cluster.scene import TOPIC, Scene
from tests.kit.deadlines import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")

RATE_BYTES_PER_S = 50_000_000
Content = dict[Entity, dict[str, str]]


async def connect(stage: Scene, broker: int) -> BrokerClient:
    return await BrokerClient.connect("127.0.0.1", stage.w.cluster.brokers[broker].internal_port)


def on_disk(stage: Scene, broker: int, partition: TopicPartition) -> int:
    """Returns the bytes of a replica's segments."""
    folder = stage.w.cluster.brokers[broker].folder
    return sum(segment.stat().st_size for segment in folder.glob(f"data-*/{partition}/*.log"))


async def placed(stage: Scene) -> dict[TopicPartition, tuple[int, ...]]:
    """Reads the replicas of the topic under load."""
    states = await stage.w.states()
    return {TopicPartition(topic, p): replicas for (topic, p), (replicas, _) in states.items() if topic == TOPIC}


async def model(stage: Scene, without: str = "") -> Cluster:
    """Loads the model, with all its topics but one."""
    cluster = Cluster()
    states = await stage.w.states()
    for found in await stage.w.store.load_topics():
        if isinstance(found, TopicAssignment) and found.name != without:
            rows = cluster.observe_topic(found)
            names = (cluster.name(i) for i in rows)
            cluster.load_leadership(rows, [states[name.topic, name.partition][1] for name in names])
    return cluster


async def sized(stage: Scene, broker: int, replicas: Mapping[TopicPartition, tuple[int, ...]]) -> bool:
    """Checks a broker's report between two looks at its disk; a follower may truncate its log meanwhile."""
    own = [partition for partition, brokers in replicas.items() if broker in brokers]
    least = {partition: on_disk(stage, broker, partition) for partition in own}
    async with await connect(stage, broker) as client:
        found = await sizes(client, [*replicas, TopicPartition("absent", 0)], partitions_max=5)
    assert sorted(found) == sorted(own)
    for partition, size in found.items():
        assert 0 < least[partition] <= size.size_bytes <= on_disk(stage, broker, partition)
        assert size.directory.startswith(str(stage.w.cluster.brokers[broker].folder))
        assert size.offset_lag >= 0
    return True


async def test_sizes_are_those_of_the_segments_on_disk(stage: Scene) -> None:
    replicas = await placed(stage)
    for broker in stage.w.cluster.brokers:
        await eventually(partial(sized, stage, broker, replicas))


async def test_a_healthy_cluster_has_no_strays_and_all_logs_of_a_missing_topic_are_strays(stage: Scene) -> None:
    replicas = await placed(stage)
    reported = {}
    for broker in stage.w.cluster.brokers:
        async with await connect(stage, broker) as client:
            reported[broker] = await client.replica_logs(None)
    assert list(strays(reported, await model(stage), ())) == []
    found = list(strays(reported, await model(stage, without=TOPIC), ()))
    assert {stray.reason for stray in found} == {StrayReason.TOPIC_UNKNOWN}
    assert sorted((stray.topic, stray.partition, stray.broker) for stray in found) == sorted(
        (*partition, broker) for partition, brokers in replicas.items() for broker in brokers
    )


async def test_brokers_confirm_the_rates_of_throttled_moves_and_their_end(stage: Scene) -> None:
    moves = {TopicPartition(TOPIC, 0): Assignment((1, 2)).reassigned_to((2, 3))}
    before = await read(stage, throttled_entities(moves))
    planned = throttle(moves, RATE_BYTES_PER_S, before)
    assert not await confirmed(stage, 1)
    await write(stage, planned.writes)
    for broker in (1, 2, 3):
        await eventually(partial(confirmed, stage, broker))
    present = await read(stage, planned.writes)
    assert throttle(moves, RATE_BYTES_PER_S, present, planned.throttles).writes == {}
    await write(stage, restore(planned.throttles, present).writes)
    assert await read(stage, planned.writes) == before
    for broker in (1, 2, 3):
        await eventually(partial(unthrottled, stage, broker))


async def confirmed(stage: Scene, broker: int) -> bool:
    async with await connect(stage, broker) as client:
        return not unconfirmed(broker, RATE_BYTES_PER_S, await client.broker_configs(broker, RATES))


async def unthrottled(stage: Scene, broker: int) -> bool:
    async with await connect(stage, broker) as client:
        found = await client.broker_configs(broker, RATES)
    return not any(found.values())


async def read(stage: Scene, entities: Mapping[Entity, object] | tuple[Entity, ...]) -> Content:
    """Reads configurations; an entity without any is left out."""
    content: Content = {}
    for kind in (BROKERS, TOPICS):
        names = [entity.name for entity in entities if entity.kind == kind]
        for name, found in (await read_entities(stage.w.zk, kind, names)).items():
            assert not isinstance(found, MalformedNode)
            if found.config.entries:
                content[Entity(kind, name)] = found.config.entries
    return content


async def write(stage: Scene, writes: Mapping[Entity, dict[str, str]]) -> None:
    """Writes configurations and notifies brokers of them."""
    for entity, content in writes.items():
        path, data = paths.config(*entity), encode_config(content)
        if await stage.w.zk.exists(path) is None:
            await stage.w.zk.create(path, data)
        else:
            await stage.w.zk.set(path, data, ANY_VERSION)
        notification = encode_config_change(f"{entity.kind}/{entity.name}")
        await stage.w.zk.create(paths.CONFIG_CHANGE_PREFIX, notification, sequential=True)
