"""Brokers and the daemon die, stop, freeze and bounce under acks=all load."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from cli.exit_codes import Exit
from state_machines.model.types import Leadership
from testing.znodes import create_topic, expand_topic, read_topic
from tests.kit.cluster.scene import TOPIC, Scene, leaders, regent, succeeds
from tests.kit.deadlines import eventually

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
    await eventually(lambda: _shrunk(stage, victim))
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


STALLED_EXIT = 75


@pytest.mark.kafka("kafkatest.replication_test")
@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77", "S4-79", "S4-85")
async def test_a_killed_daemon_starts_topics_that_were_created_before_its_restart(stage: Scene) -> None:
    """With ``hold`` no broker is the controller meanwhile, however long the restart takes."""
    zk, hold = stage.w.zk, stage.w.hold()
    await stage.restart_with(hold)
    try:
        epoch = await stage.active()
        await stage.daemon.kill()
        await create_topic(zk, "born-orphan", {0: [1, 2, 3], 1: [2, 3, 1]})
        await stage.daemon.boot()
        assert await stage.active() == epoch + 1
        await stage.w.led("born-orphan", 2)
        created = await read_topic(zk, "born-orphan")
        assert created.topic_id is not None, "a topic id is given where the creator gave none"
        states = await stage.w.states()
        assert {states["born-orphan", p][1].controller_epoch for p in (0, 1)} == {epoch + 1}  # type: ignore[union-attr]
        await stage.proven()
    finally:
        await stage.restart_with(hold | {"controller.on_absence": "brokers"})


@pytest.mark.seed("S4-79")
async def test_partitions_added_in_the_topic_znode_start(stage: Scene) -> None:
    zk, topic = stage.w.zk, f"grows-{uuid.uuid4().hex[:6]}"
    await create_topic(zk, topic, {0: [1, 2, 3]})
    await stage.w.led(topic, 1)
    await expand_topic(zk, topic, (3, 1, 2), (2, 1, 3))
    await stage.w.led(topic, 3)
    states = await stage.w.states()
    assert [states[topic, p][1].leader for p in (1, 2)] == [3, 2]  # type: ignore[union-attr]
    await stage.proven()


@pytest.mark.kafka("kafkatest.replication_test")
@pytest.mark.seed("S4-77", "S4-86")
async def test_a_stopped_daemon_releases_the_role_at_once(stage: Scene) -> None:
    epoch = await stage.active()
    await stage.daemon.stop()
    assert stage.daemon.exit_code == 0
    assert await stage.w.controller() != stage.daemon.id, "it waits for no end of a session"
    await stage.w.broker_controls()
    assert await stage.w.epoch() == epoch + 1
    await stage.flows()
    await stage.daemon.boot()
    assert await stage.active() == epoch + 2
    await stage.proven()


@pytest.mark.seed("S4-77", "S4-86")
async def test_a_daemon_survives_a_short_freeze_and_a_long_one_ends_its_process(stage: Scene) -> None:
    epoch = await stage.active()
    stage.daemon.pause()
    await asyncio.sleep(0.5)  # the freeze itself, far below the limit of 2.5 s
    stage.daemon.resume()
    assert await stage.active() == epoch
    await stage.proven()
    stage.daemon.pause()
    await asyncio.sleep(3.0)  # beyond the limit, and within the session
    stage.daemon.resume()
    assert await stage.daemon.ended(within_s=30)
    assert stage.daemon.exit_code == STALLED_EXIT
    assert stage.daemon.log_has("the event loop stood still")
    await stage.daemon.boot()
    assert await stage.active() > epoch
    await stage.proven()


async def is_marked(stage: Scene) -> bool:
    [status] = json.loads(await succeeds(stage.daemon, "status", "-o", "json"))["items"]
    return bool(status.get("drainedBrokers") == [2])


@pytest.mark.seed("S2-4", "S2-13", "S2-33", "S2-37")
async def test_a_waiting_drain_ends_with_its_result_after_a_kill_in_its_middle(stage: Scene) -> None:
    await succeeds(stage.daemon, "pause")
    waiting = asyncio.create_task(regent(stage.daemon, "drain", "2", "--wait", "--timeout", "120", "-o", "json"))
    await eventually(lambda: is_marked(stage), 60.0)
    led = [name for name, leader in leaders(await stage.w.states()).items() if leader == 2]
    await stage.daemon.kill()
    await stage.daemon.boot()
    await stage.active()
    assert not waiting.done()
    await succeeds(stage.daemon, "resume")
    code, out, err = await waiting
    assert code == Exit.DONE, err
    [ended] = json.loads(out)["items"]
    assert (ended["kind"], ended["state"]) == ("drain", "success")
    assert ended["result"] == f"{len(led)} of {len(led)} leaders moved"
    assert 2 not in [leader for (topic, _), leader in leaders(await stage.w.states()).items() if topic == TOPIC]
    await succeeds(stage.daemon, "undrain", "2")
    await stage.proven()
