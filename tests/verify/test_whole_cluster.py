"""All brokers stop in order, or all processes are killed at once, and start again."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.polling import eventually
from tests.real.cluster.scene import Scene, leaders, scene


@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-49", "S4-72", "S4-73", "S4-74", "S4-77")
@pytest.mark.parametrize("ibp", ["3.9-IV0", "2.7-IV1"])
async def test_the_last_broker_in_sync_leads_first_after_all_brokers_stopped(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}, request_s_max=120, idempotent=False) as stage:
        epoch, brokers = await stage.active(), stage.w.cluster.brokers
        assert (await brokers[1].shut_down()).first_try
        assert (await brokers[2].shut_down()).first_try
        last = await brokers[3].shut_down()
        assert (last.tries, last.succeeded) == (3, False), "no broker is left to lead its partitions"
        await eventually(lambda: _led_by(stage, {-1}), 30.0)
        states = (await stage.w.states()).values()
        assert all(state is not None and state.isr == (3,) for _, state in states), "the last in sync is remembered"
        await brokers[1].boot()
        await eventually(lambda: _live(stage, [1]), 30.0)
        assert set(leaders(await stage.w.states()).values()) == {-1}, "it lacks records: it must not lead"
        await brokers[3].boot()
        await eventually(lambda: _led_by(stage, {3}), 30.0)
        await brokers[2].boot()
        await stage.proven()
        assert await stage.active() == epoch


async def _led_by(stage: Scene, wanted: set[int]) -> bool:
    return set(leaders(await stage.w.states()).values()) == wanted


async def _live(stage: Scene, wanted: list[int]) -> bool:
    brokers = (await stage.daemon.get("/v1/brokers"))["items"]
    return [broker["id"] for broker in brokers if broker["state"] == "live"] == wanted


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77")
async def test_a_cluster_killed_as_a_whole_loses_no_acknowledged_record() -> None:
    async with scene(request_s_max=120, idempotent=False) as stage:
        cluster = stage.w.cluster
        everything = [stage.daemon, cluster.zookeeper, *cluster.brokers.values()]
        await asyncio.gather(*(process.kill() for process in everything))
        await cluster.zookeeper.boot()
        await stage.daemon.boot(None)
        await asyncio.gather(*(cluster.revive(broker) for broker in cluster.brokers))
        await stage.w.reconnected()
        await stage.active(90.0)
        await stage.proven()
