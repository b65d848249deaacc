"""What brokers go through under acks=all load, at both kinds of inter-broker protocol: ISR in ZooKeeper, and by RPC."""

from __future__ import annotations

import pytest

from tests.cluster.scene import Scene, leaders, scene
from tests.polling import eventually

IBPS = ("3.9-IV0", "2.7-IV1")


async def registered(stage: Scene, broker: int, *, expected: bool) -> bool:
    return (broker in await stage.w.cluster.registered()) is expected


def adopts(stage: Scene) -> int:
    """How often the daemon has entered ISRs that leaders changed by themselves or by its leave."""
    return stage.daemon.log_text().count("ISR changes of leaders")


@pytest.mark.kafka("kafkatest.replication_test", "kafkatest.round_trip_fault_test")
@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-47", "S4-48", "S4-49", "S4-72", "S4-73", "S4-74", "S4-76", "S4-77")
@pytest.mark.seed("S4-80", "S4-85")
@pytest.mark.parametrize("ibp", IBPS)
async def test_kill_stop_and_freeze_of_brokers(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}, partitions=60, idempotent=False) as stage:
        cluster, epoch = stage.w.cluster, await stage.active()
        await cluster.brokers[1].kill()
        await stage.w.leads_nothing(1)
        await cluster.revive(1)
        await stage.proven()

        for leaver in cluster.brokers.values():
            stopped = await leaver.shut_down()
            assert stopped.first_try, leaver.log_tail()
            assert leaver.id not in leaders(await stage.w.states()).values()
            await leaver.boot()
            await stage.proven()
        assert (adopts(stage) > 0) == (ibp == "3.9-IV0"), "below 2.7-IV2 leaders write the ISR themselves"

        frozen = cluster.brokers[2]
        frozen.pause()
        await eventually(lambda: registered(stage, 2, expected=False), 30.0)
        await stage.w.leads_nothing(2)
        await stage.flows()
        frozen.resume()
        await eventually(lambda: registered(stage, 2, expected=True), 30.0)
        await stage.proven()
        assert await stage.active() == epoch
        topics = await stage.w.store.load_topics()
        assert all((getattr(topic, "topic_id", None) is not None) == (ibp == "3.9-IV0") for topic in topics)


@pytest.mark.seed("S4-47", "S4-48", "S4-76", "S4-77", "S4-80", "S4-86")
@pytest.mark.parametrize("ibp", [*IBPS, "2.7-IV2", "3.3-IV3"])
async def test_a_broker_that_bounces_between_two_looks_gets_everything_again(ibp: str) -> None:
    """The daemon stands still meanwhile and sees one registration with another broker epoch (KAFKA-7235)."""
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
async def test_a_broker_with_another_ibp_than_the_daemon_is_named_and_served() -> None:
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
