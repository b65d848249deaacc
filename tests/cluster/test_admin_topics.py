"""Topics created and grown through the admin endpoint on real brokers: aiokafka's client, and Kafka's own tool."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from brokers.client import BrokerClient
from testing.embedded.tools import Tools
from testing.znodes import read_topic
from tests.cluster.endpoint import endpoint
from tests.cluster.scene import Scene
from tests.polling import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")

MANY = 12
"""Topics of one request; each later test checks them again."""


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:6]}"


async def assigned(stage: Scene, name: str) -> dict[int, tuple[int, ...]]:
    found = await read_topic(stage.w.zk, name)
    return {p: a.replicas for p, a in found.partitions.items()}


async def test_an_admin_client_creates_and_grows_topics_that_can_be_written_at_once(stage: Scene) -> None:
    name = fresh("made")
    async with endpoint(stage.daemon) as at:
        admin = AIOKafkaAdminClient(bootstrap_servers=at.address)
        await admin.start()
        try:
            made: Any = await admin.create_topics([NewTopic(name, 6, 3, topic_configs={"retention.ms": "3600000"})])
            assert [(topic, code) for topic, code, *_ in made.topic_errors] == [(name, 0)]
            again: Any = await admin.create_topics([NewTopic(name, 6, 3)])
            assert [code for _, code, *_ in again.topic_errors] == [36]
            grown: Any = await admin.create_partitions({name: NewPartitions(9)})
            assert [code for _, code, *_ in grown.topic_errors] == [0]
        finally:
            await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=at.address, acks="all") as producer:
            for partition in range(9):
                async with asyncio.timeout(30):
                    await producer.send_and_wait(name, b"x", partition=partition)
    found = await assigned(stage, name)
    assert sorted(found) == list(range(9))
    assert all(sorted(replicas) == [1, 2, 3] for replicas in found.values())
    config = await stage.w.store.load_topic_configs([name])
    assert config[name].entries == {"retention.ms": "3600000"}  # type: ignore[union-attr]
    await stage.proven()


@pytest.mark.kafka("TopicCommandTest.testCreate*", "TopicCommandTest.testAlter*", "TopicCommandTest.testDescribe*")
async def test_kafka_topics_creates_describes_and_alters(stage: Scene, tmp_path: Path) -> None:
    name = fresh("tool")
    async with endpoint(stage.daemon) as at:
        tools = Tools(at.address, tmp_path)
        made = await tools.run(
            "kafka-topics", "--create", "--topic", name, "--partitions", "4", "--replication-factor", "2",
            "--config", "cleanup.policy=compact",
        )  # fmt: skip
        assert (made.code, made.out) == (0, f"Created topic {name}.\n"), made
        twice = await tools.run("kafka-topics", "--create", "--topic", name)
        assert twice.code == 1
        assert f"Topic '{name}' already exists." in twice.out + twice.err
        quiet = await tools.run("kafka-topics", "--create", "--topic", name, "--if-not-exists")
        assert quiet.code == 0, quiet
        altered = await tools.run("kafka-topics", "--alter", "--topic", name, "--partitions", "6")
        assert altered.code == 0, altered
        shrunk = await tools.run("kafka-topics", "--alter", "--topic", name, "--partitions", "5")
        assert shrunk.code == 1, shrunk
        described = await tools.run("kafka-topics", "--describe", "--topic", name)
        assert described.code == 0, described
        head, *rows = described.out.splitlines()
        assert "PartitionCount: 6\tReplicationFactor: 2\t" in head
        assert "cleanup.policy=compact" in head
        assert len(rows) == 6
        assert all("Leader: none" not in row for row in rows)
        given = await tools.run(
            "kafka-topics", "--create", "--topic", fresh("given"), "--replica-assignment", "1:2,3:1"
        )
        assert given.code == 0, given
        wrong = await tools.run("kafka-topics", "--create", "--topic", fresh("wrong"), "--config", "retention.ms=soon")
        assert wrong.code == 1, wrong
    await stage.proven()


async def test_many_topics_in_one_request(stage: Scene) -> None:
    name = fresh("many")
    async with endpoint(stage.daemon) as at:
        admin = AIOKafkaAdminClient(bootstrap_servers=at.address)
        await admin.start()
        try:
            topics = [NewTopic(f"{name}-{number}", 3, 3) for number in range(MANY)]
            made: Any = await admin.create_topics(topics)
            assert {code for _, code, *_ in made.topic_errors} == {0}
        finally:
            await admin.close()
    assert all([len(await assigned(stage, f"{name}-{number}")) == 3 for number in range(MANY)])
    await stage.proven()


async def test_any_broker_is_a_bootstrap_server_while_the_endpoint_lives(stage: Scene, tmp_path: Path) -> None:
    name = fresh("anywhere")
    async with endpoint(stage.daemon) as at:

        async def listed_everywhere() -> bool:
            for broker in stage.w.cluster.brokers.values():
                async with await BrokerClient.connect("127.0.0.1", broker.client_port) as asking:
                    nodes = {node.id: node.port for node in (await asking.metadata([])).nodes}
                if nodes.get(stage.daemon.id) != at.port:
                    return False
            return True

        await eventually(listed_everywhere, 30.0)
        tools = Tools(",".join(stage.w.cluster.bootstrap), tmp_path)
        made = await tools.run("kafka-topics", "--create", "--topic", name, "--partitions", "3")
        assert (made.code, made.out) == (0, f"Created topic {name}.\n"), made
    await stage.proven()
