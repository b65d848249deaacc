"""Brokers die, stop and bounce under acks=all load; regent is the controller."""

from __future__ import annotations

import uuid

import pytest

from state_machines.model.types import Leadership
from testing.znodes import create_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import TOPIC, Scene, leaders

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def leads_nothing(stage: Scene, broker: int) -> bool:
    """Returns whether other brokers lead all partitions of the load."""
    return all(now not in {broker, -1} for (topic, _), now in leaders(await stage.w.states()).items() if topic == TOPIC)


async def state(stage: Scene, topic: str) -> Leadership:
    [found] = await stage.w.store.load_states([(topic, 0)])
    assert isinstance(found, Leadership)
    return found


@pytest.mark.kafka("kafkatest.replication_test", "kafkatest.replication_replica_failure_test")
@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-47", "S4-48", "S4-49", "S4-76", "S4-77")
async def test_a_killed_broker_loses_its_leaders_and_gets_its_replicas_back(stage: Scene) -> None:
    victim, single = 2, f"single-{uuid.uuid4().hex[:6]}"
    await create_topic(stage.w.zk, single, {0: [victim]})
    await stage.w.healed()
    before = {name: found for name, (_, found) in (await stage.w.states()).items()}
    await stage.w.cluster.brokers[victim].kill()
    await eventually(lambda: leads_nothing(stage, victim), 60.0)
    for (topic, partition), (_, now) in (await stage.w.states()).items():
        was = before[topic, partition]
        assert was is not None
        assert now is not None
        if topic == TOPIC and was.leader == victim:
            assert now.leader in was.isr, "a member of the last ISR leads"
            assert now.leader_epoch > was.leader_epoch
    await eventually(lambda: _shrunk(stage, victim), 30.0)
    lost = await state(stage, single)
    assert (lost.leader, lost.isr) == (-1, (victim,)), "the last member of an ISR stays in it"
    await stage.flows()
    await stage.w.cluster.revive(victim)
    await stage.proven()
    back = await state(stage, single)
    assert (back.leader, back.isr) == (victim, (victim,))
    assert back.leader_epoch > lost.leader_epoch
    await stage.delete(single)


async def _shrunk(stage: Scene, victim: int) -> bool:
    return all(
        found is not None and victim not in found.isr
        for (topic, _), (_, found) in (await stage.w.states()).items()
        if topic == TOPIC
    )


@pytest.mark.kafka("kafkatest.replication_test")
@pytest.mark.seed("S4-72", "S4-73", "S4-74", "S4-77")
async def test_a_controlled_shutdown_succeeds_at_its_first_try_and_the_broker_may_return_at_once(stage: Scene) -> None:
    leaver, epoch = 3, await stage.active()
    broker = stage.w.cluster.brokers[leaver]
    assert leaver in leaders(await stage.w.states()).values()
    stopped = await broker.shut_down()
    assert stopped.first_try, broker.log_tail()
    assert await leads_nothing(stage, leaver)
    await broker.boot()
    await stage.proven()
    assert await stage.active() == epoch
