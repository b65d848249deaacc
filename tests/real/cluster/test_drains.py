"""Real brokers are drained under acks=all load; the marks outlive daemon and broker."""

from __future__ import annotations

import json

import pytest

from tests.kit.polling import eventually
from tests.real.cluster.scene import TOPIC, Scene, leaders, succeeds

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def led_by(stage: Scene, broker: int) -> int:
    """Counts the partitions under load that a broker leads."""
    found = leaders(await stage.w.states())
    return sum(leader == broker for (topic, _), leader in found.items() if topic == TOPIC)


async def drained(stage: Scene) -> list[int]:
    """Returns the drained brokers, as the daemon shows them."""
    [status] = json.loads(await succeeds(stage.daemon, "status", "-o", "json"))["items"]
    return list(status.get("drainedBrokers") or [])


async def test_a_drained_broker_leads_nothing_until_it_is_undrained(stage: Scene) -> None:
    out = await succeeds(stage.daemon, "drain", "2", "--wait", "--reason", "new disks", "-o", "json")
    assert json.loads(out)["items"][0]["state"] == "success"
    assert await led_by(stage, 2) == 0
    await stage.daemon.kill()
    await stage.daemon.boot()
    await stage.active()
    assert (await drained(stage), await led_by(stage, 2)) == ([2], 0)
    await stage.w.cluster.brokers[2].stop()
    await stage.w.cluster.revive(2)
    await stage.proven()
    assert await led_by(stage, 2) == 0
    await stage.w.cluster.brokers[1].kill()
    await eventually(lambda: led_by_one_of(stage, 3), 60.0)
    assert await led_by(stage, 2) == 0, "broker 3 can lead"
    await stage.w.cluster.revive(1)
    await stage.w.healed()
    await succeeds(stage.daemon, "undrain", "2")
    assert await drained(stage) == []
    await stage.proven()


async def led_by_one_of(stage: Scene, *brokers: int) -> bool:
    found = leaders(await stage.w.states())
    return all(leader in brokers for (topic, _), leader in found.items() if topic == TOPIC)
