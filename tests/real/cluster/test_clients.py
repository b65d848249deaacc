"""Clients need a controller for producer ids and for coordinators of groups and transactions."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from testing.znodes import create_topic, read_topic
from tests.real.cluster.scene import Scene

REQUESTS_AT_RANDOM_MAX = 40

pytestmark = pytest.mark.asyncio(loop_scope="package")

RECORDS = 20


async def assert_no_daemon_hosts(stage: Scene, topic: str) -> None:
    found = await read_topic(stage.w.zk, topic)
    for assignment in found.partitions.values():
        assert set(assignment.replicas) <= stage.w.cluster.brokers.keys()
        assert len(set(assignment.replicas)) == len(stage.w.cluster.brokers)


@pytest.mark.seed("S4-77", "S4-88")
async def test_a_group_commits_on_an_offsets_topic_without_the_daemon_as_replica(stage: Scene) -> None:
    topic, group = f"read-{uuid.uuid4().hex[:6]}", f"group-{uuid.uuid4().hex[:6]}"
    await create_topic(stage.w.zk, topic, {p: [1 + p % 3, 1 + (p + 1) % 3, 1 + (p + 2) % 3] for p in range(3)})
    async with AIOKafkaProducer(bootstrap_servers=stage.w.cluster.bootstrap, acks="all") as producer:
        for number in range(RECORDS):
            await producer.send_and_wait(topic, b"%d" % number, partition=number % 3)
    read: list[bytes] = []
    for members in (1, 2):  # the second round begins where the first one committed
        consumers = [
            AIOKafkaConsumer(
                topic, bootstrap_servers=stage.w.cluster.bootstrap, group_id=group,
                auto_offset_reset="earliest", enable_auto_commit=False,
            )
            for _ in range(members)
        ]  # fmt: skip
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        try:
            if members == 1:
                while len(read) < RECORDS:
                    batches = await asyncio.wait_for(consumers[0].getmany(timeout_ms=500), 30)
                    read += [record.value for records in batches.values() for record in records]
                await consumers[0].commit()
            else:
                async with asyncio.timeout(60):
                    while not all(consumer.assignment() for consumer in consumers):
                        await asyncio.gather(*(consumer.getmany(timeout_ms=200) for consumer in consumers))
                again = [await consumer.getmany(timeout_ms=500) for consumer in consumers]
                assert not any(again), "everything was committed"
        finally:
            await asyncio.gather(*(consumer.stop() for consumer in consumers))
    assert sorted(read) == sorted(b"%d" % number for number in range(RECORDS))
    await assert_no_daemon_hosts(stage, "__consumer_offsets")
    await stage.proven()


@pytest.mark.seed("S4-77", "S4-87", "S4-88")
async def test_transactions_commit_and_abort_and_producer_ids_are_allocated_once(stage: Scene) -> None:
    topic, before = f"paid-{uuid.uuid4().hex[:6]}", await stage.w.producer_ids()
    await create_topic(stage.w.zk, topic, {0: [2, 3, 1]})
    spot = TopicPartition(topic, 0)
    async with AIOKafkaProducer(
        bootstrap_servers=stage.w.cluster.bootstrap, transactional_id=f"tx-{uuid.uuid4().hex[:6]}"
    ) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"committed", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"end", partition=0)
    seen: list[bytes] = []
    async with AIOKafkaConsumer(
        bootstrap_servers=stage.w.cluster.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([spot])
        while b"end" not in seen:
            batches = await asyncio.wait_for(consumer.getmany(timeout_ms=500), 30)
            seen += [record.value for records in batches.values() for record in records]
    assert seen == [b"committed", b"end"]
    await assert_no_daemon_hosts(stage, "__transaction_state")
    await stage.w.cluster.brokers[2].shut_down()
    await stage.w.cluster.brokers[2].boot()
    after = before
    for _ in range(REQUESTS_AT_RANDOM_MAX):  # producers request ids from random brokers, also the fresh one
        async with AIOKafkaProducer(bootstrap_servers=stage.w.cluster.bootstrap, enable_idempotence=True) as one:
            await one.send_and_wait(topic, b"more", partition=0)
        after = await stage.w.producer_ids()
        if after.start > before.end:
            break
    assert after.start > before.end, "a fresh broker got a block of its own"
    assert (after.start % 1_000, after.end - after.start) == (0, 999)
    await stage.proven()
