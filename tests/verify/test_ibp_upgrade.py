"""An upgrade of the inter-broker protocol under acks=all load, brokers first, then the daemon."""

from __future__ import annotations

import pytest

from testing.embedded.kafka import EmbeddedBroker
from testing.znodes import read_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import TOPIC, Scene, scene

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
