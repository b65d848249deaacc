"""Supported inter-broker protocols at the edges between request versions, each through what a cluster lives through."""

from __future__ import annotations

import pytest

from state_machines.model.types import TopicAssignment
from tests.cluster.scene import Scene, leaders, scene
from tests.cluster.test_deletion import gone, mark
from tests.cluster.test_reassignment import RING, ask, create, moved
from tests.polling import eventually

WITH_TOPIC_IDS = {"2.4-IV1": False, "2.8-IV1": True, "3.2-IV0": True}
"""2.4-IV1: ISRs in ZooKeeper, no ids; 2.8-IV1: ids, and ISRs by AlterIsr; 3.2-IV0: LeaderAndIsr with recovery state."""


@pytest.mark.kafka("kafkatest.replication_test", "kafkatest.reassign_partitions_test")
@pytest.mark.seed("S4-44", "S4-46", "S4-48", "S4-54", "S4-76", "S4-77", "S4-78", "S4-80", "S4-85")
@pytest.mark.parametrize("ibp", WITH_TOPIC_IDS)
async def test_kill_clean_stop_reassignment_and_deletion(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}) as stage:
        epoch, cluster = await stage.active(), stage.w.cluster
        await cluster.brokers[1].kill()
        await stage.w.leads_nothing(1)
        await stage.flows()
        await cluster.revive(1)
        await stage.proven()

        stopped = await cluster.brokers[2].shut_down()
        assert stopped.first_try, cluster.brokers[2].log_tail()
        assert 2 not in leaders(await stage.w.states()).values()
        await cluster.brokers[2].boot()
        await stage.proven()

        topic = await create(stage, RING[0])
        for target in RING[1:]:
            await ask(stage, topic, target)
            await eventually(lambda target=target: moved(stage, topic, target), 60.0)  # type: ignore[misc]
        await stage.proven()

        await mark(stage, topic)
        await eventually(lambda: gone(stage, topic), 60.0)
        await stage.proven()
        assert await with_topic_ids(stage) == {WITH_TOPIC_IDS[ibp]}
        assert await stage.metric("regent_ibp_mismatch_brokers") == 0
        assert await stage.active() == epoch


async def with_topic_ids(stage: Scene) -> set[bool]:
    """Whether topics have ids, as a set of what was found."""
    topics = [found for found in await stage.w.store.load_topics() if isinstance(found, TopicAssignment)]
    return {found.topic_id is not None for found in topics}
