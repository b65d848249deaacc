"""Every daemon is dead, under acks=all load, in both modes."""

from __future__ import annotations

import pytest

from cli.demo.process import RegentProcess
from metadata_store.port import ANY_VERSION
from tests.cluster.scene import Scene, leaders, scene
from tests.polling import eventually

IBPS = ("3.9-IV0", "2.7-IV1")


async def both_daemons(stage: Scene, settings: dict[str, object]) -> list[RegentProcess]:
    second = stage.w.daemon(settings=settings)
    await second.boot("standby")
    return [stage.daemon, second]


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77", "S4-86")
@pytest.mark.parametrize("ibp", IBPS)
async def test_brokers_go_on_with_kafkas_controller_until_a_daemon_is_back(ibp: str) -> None:
    settings: dict[str, object] = {"controller.ibp": ibp}
    async with scene(settings=settings, ibp=ibp) as stage:
        daemons = await both_daemons(stage, settings)
        epoch = await stage.active()
        for daemon in reversed(daemons):
            await daemon.kill()
        holder = await stage.w.broker_controls()
        assert await stage.w.epoch() == epoch + 1
        victim = next(b for b in stage.w.cluster.brokers if b != holder)
        await stage.w.cluster.brokers[victim].kill()
        await stage.w.leads_nothing(victim)
        await stage.flows()
        await daemons[1].boot()
        assert await stage.w.epoch() == epoch + 2
        assert await stage.metric("regent_interim_terms_total", daemons[1]) == 1
        assert daemons[1].log_has(rf"the role was held by broker {holder}")
        await stage.w.cluster.revive(victim)
        await daemons[1].stop()
        await stage.daemon.boot()
        await stage.proven()
        led = leaders(await stage.w.states()).values()
        assert -1 not in led


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77", "S4-86")
@pytest.mark.parametrize("ibp", IBPS)
async def test_with_hold_nobody_is_elected_whatever_happens_and_a_daemon_heals_it(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}, request_s_max=120, idempotent=False) as stage:
        cluster = stage.w.cluster
        settings: dict[str, object] = {
            "controller.ibp": ibp,
            "controller.on_absence": "hold",
            "zookeeper.digest_file": str(stage.w.digest_file()),
        }
        await stage.daemon.stop()
        stage.daemon.configure(settings)
        await stage.daemon.boot()
        daemons = await both_daemons(stage, settings)
        epoch = await stage.active()
        for daemon in reversed(daemons):
            await daemon.kill()
        await stage.w.daemons_gone()
        assert (await stage.w.controller(), await stage.w.epoch()) == (stage.daemon.id, epoch), "/controller stays"

        await stage.w.zk.delete("/controller", ANY_VERSION)
        for broker in cluster.brokers.values():
            await eventually(lambda b=broker: b.log_has("NoAuth"), 20.0)  # type: ignore[misc]
        await cluster.brokers[1].stop()
        await cluster.brokers[1].boot()
        cluster.brokers[2].pause()
        await eventually(lambda: registered(stage, 2, expected=False), 30.0)
        cluster.brokers[2].resume()
        await eventually(lambda: registered(stage, 2, expected=True), 30.0)
        await cluster.brokers[3].kill()
        await eventually(lambda: registered(stage, 3, expected=False), 30.0)
        assert (await stage.w.controller(), await stage.w.epoch()) == (None, epoch), "nobody is elected"

        await daemons[1].boot()
        assert await stage.w.epoch() == epoch + 1
        await stage.w.leads_nothing(3)
        await stage.flows()
        await cluster.revive(3)
        await stage.w.healed()
        await daemons[1].stop()
        await stage.daemon.boot()
        await stage.proven()


async def registered(stage: Scene, broker: int, *, expected: bool) -> bool:
    return (broker in await stage.w.cluster.registered()) is expected
