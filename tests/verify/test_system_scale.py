"""Kafka's replica scale test: 50 topics of 34 partitions and three replicas are created, live through a bounce of every
broker, and are deleted; all are written and read meanwhile.
"""

from __future__ import annotations

import pytest
from aiokafka.admin import NewTopic

from metadata_store import paths
from tests.kit.cluster.endpoint import admin_client, errors_of
from tests.kit.deadlines import eventually
from tests.verify.system import System, system

BROKERS = 3
TOPICS = [f"replicas-{number:02}" for number in range(50)]
PARTITIONS = 34
REPLICAS = 3
RATE_PER_S = 300
HEAP_MB = 512


async def create(s: System) -> None:
    """Creates all topics by one request to the admin endpoint; its response waits for leaders of all partitions."""
    async with admin_client(s.at.address, request_timeout_ms=150_000) as admin:
        made = await admin.create_topics([NewTopic(name, PARTITIONS, REPLICAS) for name in TOPICS], timeout_ms=120_000)
    assert set(errors_of(made)) == {(name, 0) for name in TOPICS}


async def bounce(s: System) -> None:
    for broker in s.w.cluster.brokers.values():
        with s.times.taken("clean stop of a broker"):
            stopped = await broker.shut_down()
        assert stopped.first_try, broker.log_tail()
        s.times.note("its controlled shutdown as it saw it", f"{stopped.took_ms} ms")
        with s.times.taken("start of the broker to every replica in sync"):
            await broker.boot()
            await s.w.healed(120.0)


async def gone(s: System) -> bool:
    """Returns whether neither ZooKeeper nor a disk has anything of the topics."""
    listed = await s.w.zk.children(paths.TOPICS)
    asked = await s.w.zk.children(paths.DELETE_TOPICS)
    assert listed is not None
    assert asked is not None
    return not {*listed[0], *asked[0]} & set(TOPICS) and not any(s.w.hosting(topic) for topic in TOPICS)


@pytest.mark.kafka("kafkatest.replica_scale_test")
@pytest.mark.seed("S4-72", "S4-73", "S4-74", "S4-77")
async def test_thousands_of_replicas_live_through_a_bounce_of_every_broker_and_are_deleted(
    request: pytest.FixtureRequest,
) -> None:
    async with system(request.node.name, BROKERS, heap_mb=HEAP_MB) as s:
        with s.times.taken(f"creation of {len(TOPICS)} x {PARTITIONS} x {REPLICAS}"):
            await create(s)
        with s.times.taken("creation to every replica in sync"):
            await s.w.healed()
        async with s.loaded(dict.fromkeys(TOPICS, PARTITIONS), RATE_PER_S) as stage:
            await bounce(s)
            await s.proven(stage)
        with s.times.taken("deletion of all, with the tool"):
            await s.tool("kafka-topics", "--delete", "--topic", "replicas-[0-9]+")
            await eventually(lambda: gone(s), 60.0)
