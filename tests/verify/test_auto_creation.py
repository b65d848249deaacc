"""Brokers create topics by themselves, with a daemon in their live list: with racks, and with too few brokers."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from state_machines.model.types import TopicAssignment
from testing.embedded.load import Load
from testing.znodes import read_topic
from tests.kit.cluster.scene import agreed, scene
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually

RACKS = ["a", "a", "b", "c"]


async def assignment(w: ClusterWorld, topic: str) -> TopicAssignment:
    return await read_topic(w.zk, topic)


@pytest.mark.seed("S4-77", "S4-88")
async def test_auto_created_topics_are_spread_over_racks_and_never_on_the_daemon() -> None:
    async with scene(brokers=4, racks=RACKS, partitions=24) as stage:
        created = await assignment(stage.w, "orders")
        racks = dict(enumerate(RACKS, start=1))
        spread = [len({racks[b] for b in a.replicas}) for a in created.partitions.values()]
        assert set(spread) <= {2, 3}, "never all replicas in one rack"
        assert spread.count(3) > len(spread) / 2
        assert {b for a in created.partitions.values() for b in a.replicas} == {1, 2, 3, 4}
        assert await stage.metric("regent_repaired_assignments_total") >= 1


@pytest.mark.seed("S4-77", "S4-88")
async def test_a_daemon_among_the_replicas_of_running_partitions_is_replaced() -> None:
    """Brokers choose the daemon as a replica for a moment after its end; Kafka's controller replaces none."""
    async with scene(brokers=4, racks=RACKS, partitions=24) as stage:
        daemon = stage.daemon
        await daemon.kill()
        await stage.w.broker_controls()
        again = Load(stage.w.cluster.bootstrap, {"late": 24}, rate_per_s=50)
        async with again:
            await daemon.boot()
            await stage.proven()

        async def mended() -> bool:
            late = await assignment(stage.w, "late")
            return all(daemon.id not in a.replicas and not a.moving for a in late.partitions.values())

        await eventually(mended, 60.0)


@pytest.mark.seed("S4-77", "S4-88")
async def test_more_replicas_than_brokers_wait_for_a_broker_instead_of_the_daemon() -> None:
    """A broker takes two brokers and the daemon for three and creates RF 3; the daemon deletes that topic."""
    async with world(2, partitions=3, replication=3) as w:
        daemon = w.daemon(flags=["--takeover"])
        await daemon.boot()
        consumer = AIOKafkaConsumer(bootstrap_servers=w.cluster.bootstrap, group_id="early", metadata_max_age_ms=1_000)
        joining = asyncio.create_task(consumer.start())
        consumer.subscribe(["orders"])
        try:
            await eventually(lambda: daemon.log_has("more replicas than there are brokers"), 60.0)
            third = w.cluster.add_broker(3)
            await third.boot()
            async with AIOKafkaProducer(bootstrap_servers=w.cluster.bootstrap, acks="all") as producer:
                await producer.send_and_wait("orders", b"one")
            await asyncio.wait_for(joining, 60)
            await eventually(lambda: bool(consumer.assignment()), 60.0)
        finally:
            joining.cancel()
            await consumer.stop()
        for topic in ("orders", "__consumer_offsets"):
            replicas = [set(a.replicas) for a in (await assignment(w, topic)).partitions.values()]
            assert replicas
            assert all(found == {1, 2, 3} for found in replicas)
        await w.healed()
        await agreed(daemon)
