"""Inter-broker protocols: an upgrade under load, and the edges between versions of requests."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from testing.embedded.kafka import EmbeddedBroker
from testing.znodes import read_topic
from tests.kit.cluster.scene import TOPIC, Scene, leaders, scene
from tests.kit.deadlines import eventually
from tests.real.cluster.test_moves import RING, create, moved, request

OLD, NEW = "2.7-IV1", "3.9-IV0"


def raised(broker: EmbeddedBroker) -> None:
    """Configures the new protocol for the next start of a broker."""
    config = broker.folder / "server.properties"
    config.write_text(config.read_text().replace(OLD, NEW))


async def topic_id(stage: Scene) -> bytes | None:
    return (await read_topic(stage.w.zk, TOPIC)).topic_id


@pytest.mark.kafka(
    "ControllerIntegrationTest.testTopicIdCreatedOnUpgrade",
    "ControllerIntegrationTest.testTopicIdCreatedOnUpgradeMultiBrokerScenario",
)
@pytest.mark.seed("S4-76", "S4-77", "S4-80", "S4-85")
async def test_an_upgrade_of_the_ibp_gives_topic_ids_and_a_downgrade_keeps_them() -> None:
    async with scene(ibp=OLD, settings={"controller.ibp": OLD}) as stage:
        assert await topic_id(stage) is None
        for broker in stage.w.cluster.brokers.values():
            raised(broker)
            assert (await broker.shut_down()).first_try
            await broker.boot()
            await stage.proven()
        assert await stage.metric("regent_ibp_mismatch_brokers") == 3
        assert await topic_id(stage) is None, "the controller's own setting decides"

        await stage.restart_with({"controller.ibp": NEW})
        await stage.proven()
        given = await eventually(lambda: topic_id(stage), 30.0)
        await eventually(lambda: _agrees(stage), 30.0)
        await stage.w.cluster.brokers[1].kill()
        await stage.w.leads_nothing(1)
        await stage.w.cluster.revive(1)
        await stage.proven()

        await stage.restart_with({"controller.ibp": OLD})
        await stage.proven()
        assert await topic_id(stage) == given, "an id is never taken away"


async def _agrees(stage: Scene) -> bool:
    return await stage.metric("regent_ibp_mismatch_brokers") == 0


class Protocol(NamedTuple):
    """Whether topics have ids, and whether leaders request ISR changes from the controller."""

    topic_ids: bool
    requests_isr: bool


PROTOCOLS = {
    "2.4-IV1": Protocol(topic_ids=False, requests_isr=False),
    "2.7-IV1": Protocol(topic_ids=False, requests_isr=False),
    "2.8-IV1": Protocol(topic_ids=True, requests_isr=True),
    "3.2-IV0": Protocol(topic_ids=True, requests_isr=True),
}
"""From 2.7-IV2 on leaders send AlterPartition; from 3.2 on LeaderAndIsr has the recovery state."""


@pytest.mark.kafka("kafkatest.replication_test", "kafkatest.reassign_partitions_test")
@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-47", "S4-48", "S4-49", "S4-54", "S4-72", "S4-73", "S4-74", "S4-76")
@pytest.mark.seed("S4-77", "S4-78", "S4-80", "S4-85")
@pytest.mark.parametrize("ibp", PROTOCOLS)
async def test_deaths_clean_stops_reassignments_and_deletions_at_every_protocol(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}) as stage:
        epoch, cluster = await stage.active(), stage.w.cluster
        await cluster.brokers[1].kill()
        await stage.w.leads_nothing(1)
        await stage.flows()
        await cluster.revive(1)
        await stage.proven()

        for leaver in cluster.brokers.values():
            assert (await leaver.shut_down()).first_try, leaver.log_tail()
            assert leaver.id not in leaders(await stage.w.states()).values()
            await leaver.boot()
            await stage.proven()
        assert ("ISR changes of leaders" in stage.daemon.log_text()) == PROTOCOLS[ibp].requests_isr

        topic = await create(stage, RING[0])
        for target in RING[1:]:
            await request(stage, topic, target)
            await eventually(lambda target=target: moved(stage, topic, target), 60.0)  # type: ignore[misc]
        await stage.proven()

        await stage.delete(topic)
        await stage.proven()
        topics = await stage.w.store.load_topics()
        assert {getattr(found, "topic_id", None) is not None for found in topics} == {PROTOCOLS[ibp].topic_ids}
        assert await stage.metric("regent_ibp_mismatch_brokers") == 0
        assert await stage.active() == epoch
