"""Clients need a controller for producer ids and coordinators; operators see which client did what."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from testing.embedded.tools import Tools
from testing.znodes import create_topic, read_topic
from tests.kit.cluster.endpoint import endpoint
from tests.kit.cluster.scene import Scene, succeeds
from tests.kit.deadlines import eventually
from tests.real.cluster.test_admin_clients import fresh

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
                    batches = await asyncio.wait_for(consumers[0].getmany(timeout_ms=500), 100)
                    read += [record.value for records in batches.values() for record in records]
                await consumers[0].commit()
            else:
                async with asyncio.timeout(100):
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
            batches = await asyncio.wait_for(consumer.getmany(timeout_ms=500), 100)
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


async def procedures(stage: Scene, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await succeeds(stage.daemon, "procedures", *options, "-o", "json"))[
        "items"
    ]
    return found


async def test_operators_see_which_client_changed_what(stage: Scene, tmp_path: Path) -> None:
    name = fresh("recorded")
    async with endpoint(stage.daemon) as at:
        tools = Tools(at.address, tmp_path)
        made = await tools.run("kafka-topics", "--create", "--topic", name, "--replica-assignment", "1:2,2:3")
        assert made.out == f"Created topic {name}.\n", made
        wanted = {"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [3, 2]}]}
        (tmp_path / "moves.json").write_text(json.dumps(wanted))
        moves = "--reassignment-json-file", str(tmp_path / "moves.json"), "--execute"
        moved = await tools.run("kafka-reassign-partitions", *moves)
        assert moved.code == 0, moved
        again = await tools.run("kafka-topics", "--create", "--topic", name, "--if-not-exists")
        assert again.code == 0, again
        deleted = await tools.run("kafka-topics", "--delete", "--topic", name)
        assert deleted.code == 0, deleted
    mine = [item for item in await procedures(stage, "list") if name in item["result"]]
    assert [(item["kind"], item["state"], item["result"]) for item in mine] == [
        ("create-topics", "success", f"created 1 topic: {name}"),
        ("alter-partition-reassignments", "success", f"begun 1 partition: {name}-0 to [3, 2]"),
        ("delete-topics", "success", f"marked for deletion 1 topic: {name}"),
    ]
    for item in mine:
        assert (item["principal"], item["client"].partition(" at ")[2]) == ("User:ANONYMOUS", "127.0.0.1")
        assert item["client"].startswith("adminclient-") or item["client"].startswith("reassign-partitions-tool")
        assert item["submitted"]
    assert not [item for item in await procedures(stage, "list", "--live") if name in item["result"]]
    await stage.daemon.kill()
    await stage.daemon.boot()
    await stage.active()
    for item in mine:
        [shown] = await procedures(stage, "show", str(item["pid"]))
        assert (shown["kind"], shown["result"]) == (item["kind"], item["result"])
    await eventually(lambda: stage.gone(name), 60.0)
    await stage.proven()
