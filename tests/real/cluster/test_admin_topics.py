"""Topics created and grown by aiokafka's client at the admin endpoint and by Kafka's own tool at the brokers."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewPartitions, NewTopic

from brokers.client import BrokerClient
from testing.embedded.tools import Tools
from testing.znodes import read_topic
from tests.kit.polling import eventually
from tests.real.cluster.endpoint import admin_client, endpoint, errors_of
from tests.real.cluster.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="package")


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:6]}"


async def test_topics_that_an_admin_client_creates_and_expands_take_records_at_once(stage: Scene) -> None:
    name = fresh("made")
    async with endpoint(stage.daemon) as at:
        async with admin_client(at.address) as admin:
            topic = NewTopic(name, 6, 3, topic_configs={"retention.ms": "3600000"})
            assert errors_of(await admin.create_topics([topic])) == [(name, 0)]
            assert errors_of(await admin.create_topics([topic])) == [(name, 36)]
            assert errors_of(await admin.create_partitions({name: NewPartitions(9)})) == [(name, 0)]
        async with AIOKafkaProducer(bootstrap_servers=at.address, acks="all") as producer:
            for partition in range(9):
                async with asyncio.timeout(30):
                    await producer.send_and_wait(name, b"x", partition=partition)
    found = await read_topic(stage.w.zk, name)
    assert [sorted(found.partitions[p].replicas) for p in sorted(found.partitions)] == [[1, 2, 3]] * 9
    config = await stage.w.store.load_topic_configs([name])
    assert config[name].entries == {"retention.ms": "3600000"}  # type: ignore[union-attr]
    await stage.proven()


async def test_any_broker_is_a_bootstrap_server_while_the_endpoint_lives(stage: Scene, tmp_path: Path) -> None:
    name = fresh("anywhere")
    async with endpoint(stage.daemon) as at:

        async def listed_everywhere() -> bool:
            for broker in stage.w.cluster.brokers.values():
                async with await BrokerClient.connect("127.0.0.1", broker.client_port) as connected:
                    nodes = {node.id: node.port for node in (await connected.metadata([])).nodes}
                if nodes.get(stage.daemon.id) != at.port:
                    return False
            return True

        await eventually(listed_everywhere, 30.0)
        tools = Tools(",".join(stage.w.cluster.bootstrap), tmp_path)
        made = await tools.run("kafka-topics", "--create", "--topic", name, "--partitions", "3")
        assert (made.code, made.out) == (0, f"Created topic {name}.\n"), made
    await stage.proven()
