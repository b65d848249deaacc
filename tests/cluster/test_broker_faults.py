"""Brokers die, stop and bounce under acks=all load; regent is the controller."""

from __future__ import annotations

import pytest

from tests.cluster.scene import Scene, leaders
from tests.polling import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-47", "S4-48", "S4-76", "S4-77")
async def test_a_killed_broker_loses_its_leaders_and_gets_its_replicas_back(stage: Scene) -> None:
    victim = 2
    before = await stage.w.states()
    await stage.w.cluster.brokers[victim].kill()
    await stage.w.leads_nothing(victim)
    after = await stage.w.states()
    for name, (_, state) in before.items():
        now = after[name][1]
        assert state is not None
        assert now is not None
        if state.leader == victim:
            assert now.leader in state.isr, "a member of the last ISR leads"
            assert now.leader_epoch > state.leader_epoch
        assert victim not in now.isr
    await stage.flows()
    await stage.w.cluster.revive(victim)
    await stage.proven()


@pytest.mark.seed("S4-72", "S4-73", "S4-74", "S4-77")
async def test_a_stopping_broker_is_let_go_at_its_first_try_and_may_be_back_at_once(stage: Scene) -> None:
    leaver = 3
    broker = stage.w.cluster.brokers[leaver]
    assert leaver in leaders(await stage.w.states()).values()
    stage.load.take_stall()
    stopped = await broker.shut_down()
    assert stopped.first_try, broker.log_tail()
    assert leaver not in leaders(await stage.w.states()).values()
    await broker.boot()
    await stage.proven()
    assert not stage.daemon.log_has("resigned")


async def _whole(stage: Scene) -> bool:
    return not await stage.daemon.partitions("under-replicated", "offline")


@pytest.mark.seed("S4-49")
async def test_the_daemon_sees_the_cluster_heal_as_zookeeper_has_it(stage: Scene) -> None:
    await eventually(lambda: _whole(stage), 30.0)
    status = await stage.daemon.status()
    assert status is not None
    assert (status["offlinePartitions"], status["underReplicatedPartitions"]) == (0, 0)
