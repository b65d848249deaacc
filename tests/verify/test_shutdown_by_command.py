"""A real broker that is shut down by command under acks=all load may be killed and return."""

from __future__ import annotations

from tests.cluster.scene import TOPIC, leaders, scene, succeeds


async def test_a_broker_that_is_shut_down_by_command_may_stop_and_return() -> None:
    async with scene() as stage:
        await succeeds(stage.daemon, "shutdown", "3")
        led = [topic for (topic, _), leader in leaders(await stage.w.states()).items() if leader == 3]
        assert TOPIC not in led
        await stage.w.cluster.brokers[3].kill()
        await stage.flows()
        await stage.w.cluster.revive(3)
        await stage.proven()
