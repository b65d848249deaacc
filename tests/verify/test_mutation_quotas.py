"""Quotas on mutations with Kafka's own tools and real brokers (kafkatest ``controller_mutation_quota_test``)."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from metadata_store.reads import topic_names
from testing.embedded.tools import Finished, Tools
from tests.kit.polling import eventually
from tests.real.cluster.endpoint import endpoint
from tests.real.cluster.scene import Scene, scene

REFUSED = "The throttling quota has been exceeded."
ALMOST_NOTHING = "controller_mutation_rate=0.0001"
"""The first call finds its bucket above zero; a partition is paid back in three hours."""


@pytest.mark.kafka(
    "kafkatest.controller_mutation_quota_test", "TopicCommandTest.test*DoesNotRetryThrottlingQuotaExceededException"
)
async def test_tools_are_throttled_while_their_client_has_a_quota(tmp_path: Path) -> None:
    async with scene() as stage:
        await throttled(stage, tmp_path)


async def throttled(stage: Scene, tmp_path: Path) -> None:
    name, client = f"quota-{uuid.uuid4().hex[:6]}", f"tool-{uuid.uuid4().hex[:6]}"
    identity = tmp_path / "client.properties"
    identity.write_text(f"client.id={client}\n", encoding="utf-8")
    async with endpoint(stage.daemon) as at:
        tools = Tools(at.address, tmp_path)

        async def topics(*arguments: str) -> Finished:
            return await tools.run("kafka-topics", "--command-config", str(identity), *arguments)

        async def quota(*change: str) -> None:
            done = await tools.run(
                "kafka-configs", "--alter", *change, "--entity-type", "clients", "--entity-name", client
            )
            assert done.code == 0, done

        await quota("--add-config", ALMOST_NOTHING)
        made = await topics("--create", "--topic", name, "--partitions", "4", "--replication-factor", "2")
        assert made.code == 0, made
        for refused in (
            await topics("--create", "--topic", f"{name}-2"),
            await topics("--alter", "--topic", name, "--partitions", "5"),
            await topics("--delete", "--topic", name),
        ):
            assert refused.code == 1, refused
            assert REFUSED in refused.out + refused.err, refused
        assert sorted(topic for topic in await topic_names(stage.w.zk) if topic.startswith(name)) == [name]
        other = await tools.run("kafka-topics", "--alter", "--topic", name, "--partitions", "5")
        assert other.code == 0, other
        await quota("--delete-config", "controller_mutation_rate")

        async def deleted() -> bool:
            return (await topics("--delete", "--topic", name)).code == 0

        await eventually(deleted, 60.0)
        made = await topics("--create", "--topic", name, "--partitions", "40")
        assert made.code == 0, made
    await stage.proven()
