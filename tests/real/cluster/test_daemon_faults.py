"""The daemon is stopped, killed and frozen under acks=all load."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from testing.znodes import create_topic, expand_topic, read_topic
from tests.real.cluster.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="package")

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
    holder = await stage.w.broker_controls(within_s=4.0)  # far below the session of 6 s
    assert holder in stage.w.cluster.brokers
    assert await stage.w.epoch() == epoch + 1
    await stage.flows()
    await stage.daemon.boot()
    assert await stage.active() == epoch + 2
    await stage.proven()


@pytest.mark.seed("S4-77", "S4-86")
async def test_a_daemon_survives_a_short_freeze_and_a_long_one_ends_its_process(stage: Scene) -> None:
    epoch = await stage.active()
    stage.daemon.pause()
    await asyncio.sleep(1.0)  # the freeze itself, far below the limit of 2.5 s
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
