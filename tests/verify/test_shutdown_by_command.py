"""A real broker that works is shut down by command under acks=all load: it stays out of the ISRs, and may return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from testing.embedded.load import REQUEST_S_MAX
from tests.kit.polling import eventually
from tests.real.cluster.scene import TOPIC, Scene, leaders, scene, succeeds

BROKER = 3
STALL_S_MAX = REQUEST_S_MAX / 3
"""A record whose leader waits for the stopped broker waits until its request times out."""


async def test_a_broker_that_is_shut_down_by_command_may_stop_and_return() -> None:
    async with scene() as stage:
        stage.load.take_stall()
        await succeeds(stage.daemon, "shutdown", str(BROKER), "--accept", "single-replica")
        led = [topic for (topic, _), leader in leaders(await stage.w.states()).items() if leader == BROKER]
        assert TOPIC not in led
        await stage.w.cluster.brokers[BROKER].kill()
        await stage.flows()
        stall = stage.load.take_stall()
        assert stall.seconds < STALL_S_MAX, stall
        await stage.w.cluster.revive(BROKER)
        await stage.proven()


async def undo(stage: Scene) -> None:
    await succeeds(stage.daemon, "undrain", str(BROKER))


async def failover(stage: Scene) -> None:
    await stage.restart_with({})
    await stage.active()


@pytest.mark.parametrize("ending", [undo, failover])
async def test_what_is_kept_out_of_isrs_follows_again(ending: Callable[[Scene], Awaitable[None]]) -> None:
    async with scene() as stage:
        epochs = {
            name: state.leader_epoch
            for name, (_, state) in (await stage.w.states()).items()
            if state is not None and state.leader == BROKER
        }
        assert epochs
        await succeeds(stage.daemon, "shutdown", str(BROKER), "--accept", "single-replica")

        async def kept_out() -> bool:
            states = [(epoch, (await stage.w.states())[name][1]) for name, epoch in epochs.items()]
            return all(s is not None and s.leader_epoch == epoch + 2 and BROKER not in s.isr for epoch, s in states)

        await eventually(kept_out, 30.0)
        await ending(stage)
        await stage.proven()
