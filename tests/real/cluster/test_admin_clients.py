"""Clients use the admin endpoint before real brokers as their only bootstrap server, also for topics."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import NewPartitions, NewTopic

from brokers.client import BrokerCallFailed, BrokerClient
from testing.embedded.tools import Tools
from testing.znodes import create_topic, read_topic
from tests.kit.cluster.endpoint import EndpointProcess, admin_client, endpoint, errors_of
from tests.kit.cluster.scene import TOPIC, Scene
from tests.kit.deadlines import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")

RECORDS = 20
BETWEEN_BROKERS = {4, 5, 6, 7, 56, 58, 67}
CALLS = {19: (0, 7), 20: (0, 6), 37: (0, 3), 43: (0, 2), 45: (0, 0), 46: (0, 0), 51: (0, 0), 57: (0, 1)}


async def client(at: EndpointProcess) -> BrokerClient:
    return await BrokerClient.connect("127.0.0.1", at.port)


async def test_metadata_at_the_endpoint_names_the_daemon_as_controller(stage: Scene) -> None:
    async with endpoint(stage.daemon) as at:
        nodes = {*stage.w.cluster.brokers, stage.daemon.id}

        async def named() -> bool:
            async with await client(at) as connected:
                found = await connected.metadata([TOPIC])
                return found.controller_id == stage.daemon.id

        await eventually(named, 20.0)
        async with await client(at) as connected:
            offered = connected.api_versions
            assert not BETWEEN_BROKERS & offered.keys()
            assert {key: offered[key] for key in CALLS} == CALLS
            seen, described = await connected.metadata(), await connected.describe_cluster()
            assert seen.controller_id == described.controller_id == stage.daemon.id
            assert {n.id for n in seen.nodes} == {n.id for n in described.nodes} == nodes
            assert [(n.host, n.port) for n in seen.nodes if n.id == stage.daemon.id] == [("127.0.0.1", at.port)]
            assert len(seen.topics[TOPIC].partitions) == len(stage.load.spots)
            assert await connected.broker_configs(stage.daemon.id) == {}
            assert await connected.log_dirs() == {"-": 0}
    await stage.proven()


async def test_clients_with_the_endpoint_as_bootstrap_server_find_leaders_and_coordinators(stage: Scene) -> None:
    topic, group = f"found-{uuid.uuid4().hex[:6]}", f"group-{uuid.uuid4().hex[:6]}"
    await create_topic(stage.w.zk, topic, {0: [1, 2, 3]})
    async with endpoint(stage.daemon) as at:
        async with AIOKafkaProducer(bootstrap_servers=at.address, acks="all", enable_idempotence=True) as producer:
            for number in range(RECORDS):
                await producer.send_and_wait(topic, b"%d" % number, partition=0)
        read: list[bytes] = []
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=at.address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            async with asyncio.timeout(100):
                while len(read) < RECORDS:
                    batches = await consumer.getmany(timeout_ms=500)
                    read += [record.value for records in batches.values() for record in records]
            await consumer.commit()
        assert read == [b"%d" % number for number in range(RECORDS)]
        async with admin_client(at.address) as admin:
            assert topic in await admin.list_topics()
            listed = await admin.list_consumer_groups()
            assert [name for name, *_ in listed].count(group) == 1, "no group is listed twice"
    await stage.proven()


async def test_a_broker_that_dies_behind_the_endpoint_ends_the_connections_of_its_clients_only(stage: Scene) -> None:
    async with endpoint(stage.daemon) as at:
        askers = [await client(at) for _ in range(12)]
        for dial_for in askers:
            await dial_for.metadata([TOPIC])
        await stage.w.cluster.brokers[1].kill()
        lost = 0
        for dial_for in askers:
            try:
                await dial_for.metadata([TOPIC])
            except BrokerCallFailed:
                lost += 1
            finally:
                dial_for.close()
        assert lost < len(askers), "brokers are chosen at random"

        async def served() -> bool:
            async with await client(at) as connected:
                return bool((await connected.metadata([TOPIC])).topics)

        await eventually(served, 20.0)
        await stage.w.cluster.revive(1)
    await stage.proven()


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
                async with asyncio.timeout(100):
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

        await eventually(listed_everywhere)
        tools = Tools(",".join(stage.w.cluster.bootstrap), tmp_path)
        made = await tools.run("kafka-topics", "--create", "--topic", name, "--partitions", "3")
        assert (made.code, made.out) == (0, f"Created topic {name}.\n"), made
    await stage.proven()
