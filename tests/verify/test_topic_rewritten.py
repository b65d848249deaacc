"""An older tool rewrites a topic znode without the topic id, under load: real brokers see one id only."""

from __future__ import annotations

import json

import pytest

from metadata_store import paths
from metadata_store.port import ANY_VERSION
from testing.znodes import read_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import TOPIC, Scene, leaders, scene

REFUSED = "INCONSISTENT_TOPIC_ID"


async def rewrite(stage: Scene) -> None:
    """Writes the assignment alone, in the first version of the format, as CMAK does."""
    found = await read_topic(stage.w.zk, TOPIC)
    partitions = {str(p): assignment.replicas for p, assignment in found.partitions.items()}
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    await stage.w.zk.set(paths.topic(TOPIC), data, ANY_VERSION)


async def topic_id(stage: Scene) -> bytes | None:
    return (await read_topic(stage.w.zk, TOPIC)).topic_id


async def bounce_leader(stage: Scene, broker: int) -> None:
    """Kills a broker that leads partitions; other replicas lead until it is back in every ISR."""
    assert broker in leaders(await stage.w.states()).values()
    await stage.w.cluster.brokers[broker].kill()
    await stage.w.leads_nothing(broker)
    await stage.flows()
    await stage.w.cluster.revive(broker)
    await stage.proven()


@pytest.mark.seed("S4-85", "S4-44", "S4-65")
async def test_a_topic_that_loses_its_id_keeps_it_through_deaths_of_leaders_and_a_failover() -> None:
    """Daemons hold the role: Kafka's controller would give a topic without an id another one than its logs have."""
    async with scene(request_s_max=120) as stage:
        await stage.restart_with(stage.w.hold())
        known = await topic_id(stage)
        assert known is not None

        async def restored() -> bool:
            return await topic_id(stage) == known

        # while the daemon runs, it writes back the id that it knows
        await rewrite(stage)
        await eventually(restored, 30.0)
        one, another, _ = stage.w.cluster.brokers
        await bounce_leader(stage, another)

        # while no daemon runs and all brokers but one restart, the next term has the id from that one
        await stage.daemon.kill()
        await rewrite(stage)
        assert await topic_id(stage) is None
        for broker in set(stage.w.cluster.brokers) - {one}:
            await stage.w.cluster.brokers[broker].kill()
            await stage.w.cluster.revive(broker)
        await stage.daemon.boot()
        await stage.active()
        await eventually(restored, 30.0)
        await stage.proven()
        await bounce_leader(stage, one)
        logs = [broker.log_text() for broker in stage.w.cluster.brokers.values()]
        assert [line for log in logs for line in log.splitlines() if REFUSED in line] == []
