"""ZooKeeper is frozen, or restarted, under acks=all load."""

from __future__ import annotations

import asyncio

import pytest

from tests.real.cluster.scene import scene

IBPS = ("3.9-IV0", "2.7-IV1")


@pytest.mark.kafka("kafkatest.round_trip_fault_test")
@pytest.mark.seed("S4-75", "S4-77", "S4-86")
@pytest.mark.parametrize("ibp", IBPS)
async def test_no_acknowledged_record_is_lost_when_zookeeper_freezes_and_restarts(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}, request_s_max=120, idempotent=False) as stage:
        zookeeper, epoch = stage.w.cluster.zookeeper, await stage.active()
        zookeeper.pause()
        await asyncio.sleep(2.5)  # shorter than the session (6 s) and the lease (4.8 s)
        zookeeper.resume()
        await stage.settled()
        assert await stage.active() == epoch, "a pause within the lease costs nothing"

        await zookeeper.stop()
        await zookeeper.boot()
        await stage.settled()

        zookeeper.pause()
        await asyncio.sleep(10.0)  # longer than every session
        zookeeper.resume()
        await stage.settled()

        epoch = await stage.active()
        await zookeeper.kill()
        await asyncio.sleep(8.0)  # sessions end at the earliest one time-out after the server is back
        await zookeeper.boot()
        await stage.settled()
        assert await stage.active() == epoch, "an outage longer than the lease costs nothing where the session survives"


@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-77")
async def test_the_death_of_a_broker_during_an_outage_of_zookeeper_is_found_afterwards() -> None:
    async with scene(request_s_max=120, idempotent=False) as stage:
        zookeeper, victim = stage.w.cluster.zookeeper, 2
        zookeeper.pause()
        await stage.w.cluster.brokers[victim].kill()
        await asyncio.sleep(2.5)
        zookeeper.resume()
        await stage.w.reconnected()
        await stage.w.leads_nothing(victim)
        await stage.flows()
        await stage.w.cluster.revive(victim)
        await stage.settled()
