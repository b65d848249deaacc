"""All daemons die under acks=all load, in both modes of ``controller.on_absence``."""

from __future__ import annotations

import pytest

from metadata_store.port import ANY_VERSION
from tests.kit.polling import eventually
from tests.real.cluster.scene import leaders, scene

IBPS = ("3.9-IV0", "2.7-IV1")


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77", "S4-86")
@pytest.mark.parametrize("ibp", IBPS)
async def test_a_broker_holds_the_role_while_every_daemon_is_dead(ibp: str) -> None:
    settings: dict[str, object] = {"controller.ibp": ibp}
    async with scene(settings=settings, ibp=ibp) as stage:
        second, epoch = await stage.standby(settings), await stage.active()
        await second.kill()
        await stage.daemon.kill()
        holder = await stage.w.broker_controls()
        assert await stage.w.epoch() == epoch + 1
        victim = next(b for b in stage.w.cluster.brokers if b != holder)
        await stage.w.cluster.brokers[victim].kill()
        await stage.w.leads_nothing(victim)
        await stage.flows()
        await second.boot()
        assert await stage.w.epoch() == epoch + 2
        assert await stage.metric("regent_interim_terms_total", second) == 1
        assert second.log_has(rf"the role was held by broker {holder}")
        await stage.w.cluster.revive(victim)
        await second.stop()
        await stage.daemon.boot()
        await stage.proven()
        led = leaders(await stage.w.states()).values()
        assert -1 not in led


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77", "S4-86")
@pytest.mark.parametrize("ibp", IBPS)
async def test_with_hold_no_broker_is_elected_until_a_daemon_is_back(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}, request_s_max=120, idempotent=False) as stage:
        cluster = stage.w.cluster
        settings = {"controller.ibp": ibp, **stage.w.hold()}
        await stage.restart_with(settings)
        second, epoch = await stage.standby(settings), await stage.active()
        await second.kill()
        await stage.daemon.kill()
        await stage.w.daemons_gone()
        assert (await stage.w.controller(), await stage.w.epoch()) == (stage.daemon.id, epoch), "/controller stays"

        await stage.w.zk.delete("/controller", ANY_VERSION)
        for broker in cluster.brokers.values():
            await eventually(lambda b=broker: b.log_has("NoAuth"), 20.0)  # type: ignore[misc]
        await cluster.brokers[1].stop()
        await cluster.brokers[1].boot()
        cluster.brokers[2].pause()
        await stage.w.registered(2, expected=False)
        cluster.brokers[2].resume()
        await stage.w.registered(2)
        await cluster.brokers[3].kill()
        await stage.w.registered(3, expected=False)
        assert (await stage.w.controller(), await stage.w.epoch()) == (None, epoch), "no broker is elected"

        await second.boot()
        assert await stage.w.epoch() == epoch + 1
        await stage.w.leads_nothing(3)
        await stage.flows()
        await cluster.revive(3)
        await stage.w.healed()
        await second.stop()
        await stage.daemon.boot()
        await stage.proven()
