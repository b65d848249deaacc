"""A hand-back that cannot come about is undone: the role is taken back and the reason is told."""

from __future__ import annotations

import pytest

from controller.role import own_znodes as own
from tests.cluster.scene import Scene, scene
from tests.polling import eventually

PATIENCE_MS = 6_000


@pytest.mark.seed("S4-77", "S4-86")
async def test_a_broker_that_does_not_learn_of_the_new_controller_undoes_the_handback() -> None:
    slow_to_die = {"zookeeper.session.timeout.ms": 20_000}
    settings = {"controller.handback_timeout_ms": PATIENCE_MS, "controller.drain_timeout_ms": 1_000}
    async with scene(settings=settings, properties=slow_to_die, idempotent=False) as stage:
        epoch, deaf = await stage.active(), stage.w.cluster.brokers[2]
        deaf.pause()
        begun = await stage.daemon.post("/v1/role/handback", {"reason": "a test"})
        assert begun["items"][0]["state"] == "running"
        await eventually(lambda: _ended(stage), 60.0)
        undone = await operation(stage)
        assert (undone["state"], undone["kind"]) == ("failed", "handback")
        assert "broker 2" in undone["message"]
        assert "taken back" in undone["message"]
        await stage.active()
        assert await stage.w.epoch() > epoch
        flag = await stage.w.zk.get(own.ROLE)
        assert flag is not None
        assert own.decode_role(flag.data).holder == "regent"
        deaf.resume()
        await stage.proven()


async def operation(stage: Scene) -> dict[str, str]:
    items = (await stage.daemon.get("/v1/role/operation"))["items"]
    return dict(items[0])


async def _ended(stage: Scene) -> bool:
    return (await operation(stage))["state"] != "running"
