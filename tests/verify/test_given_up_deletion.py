"""A deletion that waits for a broker that stays away ends by a command; the broker deletes its logs at its return."""

from __future__ import annotations

import uuid

from metadata_store import paths
from testing.znodes import create_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import scene, succeeds
from tests.real.cluster.test_deletion import mark, started


async def test_the_wait_for_a_dead_broker_ends_by_command_and_its_logs_go_when_it_returns() -> None:
    async with scene() as stage:
        topic = f"abandoned-{uuid.uuid4().hex[:6]}"
        await started(stage, topic, {0: [1, 2, 3], 1: [3, 1, 2]})
        await stage.w.cluster.brokers[3].kill()
        await stage.w.leads_nothing(3)
        await mark(stage, topic)
        left = {(3, 0), (3, 1)}
        await eventually(lambda: stage.w.hosting(topic) == left, 60.0)
        told = await succeeds(stage.daemon, "status")
        assert f"regent deletions give-up {topic} --broker 3" in " ".join(told.split())
        assert "its topic is being deleted" in await succeeds(stage.daemon, "explain", topic, "0")
        await succeeds(stage.daemon, "deletions", "give-up", topic, "--broker", "3", "--yes")
        assert await stage.w.zk.exists(paths.topic(topic)) is None
        assert stage.w.hosting(topic) == left
        await create_topic(stage.w.zk, topic, {0: [1, 2]})
        await stage.w.cluster.revive(3)
        await eventually(lambda: stage.w.hosting(topic) == {(1, 0), (2, 0)}, 60.0)
        await stage.delete(topic)
        await stage.proven()
