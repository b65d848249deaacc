"""ZooKeeper and brokers freeze, bounce or restart under acks=all load."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.cluster.scene import Scene, scene
from tests.kit.deadlines import eventually

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


@pytest.mark.kafka("kafkatest.replication_test", "kafkatest.round_trip_fault_test")
@pytest.mark.seed("S4-44", "S4-46", "S4-48", "S4-76", "S4-77", "S4-80", "S4-85")
@pytest.mark.parametrize("ibp", IBPS)
async def test_a_frozen_broker_leads_nothing_until_it_registers_again(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}, partitions=60, idempotent=False) as stage:
        frozen, epoch = stage.w.cluster.brokers[2], await stage.active()
        frozen.pause()
        await stage.w.registered(2, expected=False)
        await stage.w.leads_nothing(2)
        await stage.flows()
        frozen.resume()
        await stage.w.registered(2)
        await stage.proven()
        assert await stage.active() == epoch


@pytest.mark.seed("S4-47", "S4-48", "S4-76", "S4-77", "S4-80", "S4-86")
@pytest.mark.parametrize("ibp", [*IBPS, "2.7-IV2", "3.3-IV3"])
async def test_a_broker_that_restarts_while_the_daemon_is_frozen_receives_all_metadata_again(ibp: str) -> None:
    """The daemon sees one registration with another broker epoch (KAFKA-7235)."""
    patient = {"controller.ibp": ibp, "zookeeper.session_timeout_ms": 20_000, "controller.loop_stall_ms_max": 9_900}
    async with scene(ibp=ibp, settings=patient, properties={"controlled.shutdown.enable": "false"}) as stage:
        bounced, epoch = stage.w.cluster.brokers[3], await stage.active()
        stage.daemon.pause()
        await bounced.stop()
        await bounced.boot()
        stage.daemon.resume()
        await eventually(lambda: stage.daemon.log_has(r"broker 3 is gone \(restarted before its session ended\)"), 20.0)
        assert await stage.active() == epoch
        await stage.proven()


@pytest.mark.seed("S4-85")
async def test_brokers_with_another_ibp_than_the_daemon_are_counted_and_served() -> None:
    async with scene(settings={"controller.ibp": "3.6-IV2"}) as stage:
        await eventually(lambda: _mismatches(stage, 3), 30.0)
        await stage.w.cluster.brokers[3].stop()
        await eventually(lambda: _mismatches(stage, 2), 30.0)
        await stage.w.cluster.brokers[3].boot()
        await eventually(lambda: _mismatches(stage, 3), 30.0)
        status = await stage.daemon.status()
        assert status is not None
        assert any("another IBP" in warning for warning in status["warnings"]), status["warnings"]
        await stage.proven()


async def _mismatches(stage: Scene, expected: int) -> bool:
    return await stage.metric("regent_ibp_mismatch_brokers") == expected
