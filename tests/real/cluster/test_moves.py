"""Replicas and leaders move between real brokers under acks=all load: reassigned, throttled, drained, elected."""

from __future__ import annotations

import json
import uuid
from functools import partial
from typing import Any

import pytest

from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.nodes.entity_configs import read_entities
from state_machines.admin_rules.throttles import RATES
from state_machines.model.types import Assignment
from testing.znodes import create_topic, read_topic
from tests.kit.cluster.scene import TOPIC, Scene, leaders, succeeds, through_a_failover
from tests.kit.deadlines import eventually
from tests.real.cluster.test_replica_logs import unthrottled

pytestmark = pytest.mark.asyncio(loop_scope="package")

PARTITIONS = 12
RING = ((1, 2), (2, 3), (3, 1))


async def placed(stage: Scene, topic: str) -> dict[int, Assignment]:
    """Reads the assignments in the topic znode."""
    return (await read_topic(stage.w.zk, topic)).partitions


async def create(stage: Scene, replicas: tuple[int, ...]) -> str:
    """Creates a topic and waits until all partitions have leaders and are in sync."""
    topic = f"moves-{uuid.uuid4().hex[:6]}"
    await create_topic(stage.w.zk, topic, dict.fromkeys(range(PARTITIONS), replicas))
    await eventually(lambda: led(stage, topic, set(replicas)))
    return topic


async def led(stage: Scene, topic: str, isr: set[int]) -> bool:
    states = {name: state for name, (_, state) in (await stage.w.states()).items() if name[0] == topic}
    whole = all(state is not None and state.leader in isr and set(state.isr) == isr for state in states.values())
    return whole and len(states) == PARTITIONS


async def request(stage: Scene, topic: str, replicas: tuple[int, ...]) -> None:
    wanted = [{"topic": topic, "partition": p, "replicas": replicas} for p in range(PARTITIONS)]
    await stage.w.zk.create(paths.REASSIGN_PARTITIONS, json.dumps({"version": 1, "partitions": wanted}).encode())


async def moved(stage: Scene, topic: str, replicas: tuple[int, ...]) -> bool:
    """Returns whether the request is gone, and topic znode, ISRs and logs have the target alone."""
    if await stage.w.zk.exists(paths.REASSIGN_PARTITIONS) is not None:
        return False
    assert set((await placed(stage, topic)).values()) == {Assignment(replicas)}
    assert await led(stage, topic, set(replicas))
    assert stage.w.hosting(topic) == {(broker, p) for broker in replicas for p in range(PARTITIONS)}
    return True


@pytest.mark.kafka(
    "ReassignPartitionsCommandTest.testReassignment",
    "ReassignPartitionsCommandTest.testProduceAndConsumeWithReassignmentInProgress",
    "kafkatest.reassign_partitions_test",
)
@pytest.mark.seed("S4-51", "S4-54", "S4-57", "S4-59", "S4-60", "S4-61", "S4-77")
async def test_replicas_move_and_their_old_logs_are_deleted(stage: Scene) -> None:
    topic = await create(stage, RING[0])
    await request(stage, topic, RING[1])
    await eventually(lambda: moved(stage, topic, RING[1]), 60.0)
    await stage.proven()


@pytest.mark.kafka("kafkatest.reassign_partitions_test")
@pytest.mark.seed("S4-50", "S4-54")
async def test_a_reassignment_ends_after_a_destination_was_dead(stage: Scene) -> None:
    topic = await create(stage, RING[0])
    await stage.w.cluster.brokers[3].kill()
    await request(stage, topic, RING[1])
    await eventually(lambda: begun(stage, topic))
    await stage.w.cluster.revive(3)
    await eventually(lambda: moved(stage, topic, RING[1]), 60.0)
    await stage.proven()


async def begun(stage: Scene, topic: str) -> bool:
    return all(found.moving for found in (await placed(stage, topic)).values())


RATE = "50000000"


async def settings(stage: Scene, kind: str, *names: str) -> dict[str, dict[str, str]]:
    """Reads configurations from ZooKeeper."""
    found: dict[str, dict[str, str]] = {}
    for name, one in (await read_entities(stage.w.zk, kind, names)).items():
        assert not isinstance(one, MalformedNode)
        found[name] = one.config.entries
    return found


async def test_a_throttle_is_confirmed_by_each_broker_through_a_failover_and_lifted_without_a_trace(
    stage: Scene,
) -> None:
    before = await settings(stage, "brokers", "1", "2", "3"), await settings(stage, "topics", TOPIC)
    found: dict[str, Any] = await through_a_failover(
        stage, "throttle", "throttle", "set", "--all", "--rate", RATE, "--topic", TOPIC, "--reason", "a test"
    )
    assert found["step"] == "in force"
    confirmed = [(one["broker"], one["ok"]) for one in found["results"] if one["broker"] <= 3]
    assert confirmed == [(1, True), (2, True), (3, True)], "brokers that another test left assigned are down"
    throttled = await settings(stage, "brokers", "1", "2", "3")
    assert all(one[rate] == RATE for one in throttled.values() for rate in RATES)
    await stage.flows()
    [listed] = json.loads(await succeeds(stage.daemon, "throttle", "show", "-o", "json"))["items"]
    assert (listed["pid"], listed["reason"]) == (found["pid"], "a test")
    await succeeds(stage.daemon, "throttle", "lift", str(found["pid"]), "--wait")
    assert (await settings(stage, "brokers", "1", "2", "3"), await settings(stage, "topics", TOPIC)) == before
    await stage.proven()


async def test_a_throttle_that_a_bypass_left_is_nobodys_and_real_brokers_lose_it_when_it_is_cleared(
    stage: Scene,
) -> None:
    before = await settings(stage, "brokers", "1", "2", "3"), await settings(stage, "topics", TOPIC)
    words = ("throttle", "set", "--all", "--rate", RATE, "--topic", TOPIC, "--wait", "-o", "json")
    [begun] = json.loads(await succeeds(stage.daemon, *words))["items"]
    await succeeds(stage.daemon, "procedures", "bypass", str(begun["pid"]), "--yes")
    [left] = json.loads(await succeeds(stage.daemon, "throttle", "show", "-o", "json"))["items"]
    assert (left["kind"], set(left["brokers"]) >= {1, 2, 3}, left["topics"]) == ("nobody", True, [TOPIC])
    planned = json.loads(await succeeds(stage.daemon, "throttle", "clear", "--dry-run", "-o", "json"))["items"]
    assert {one["outcome"] for one in planned} == {"planned"}
    for broker in (1, 2, 3):
        assert not await unthrottled(stage, broker), "a dry run removes nothing"
    cleared = json.loads(await succeeds(stage.daemon, "throttle", "clear", "--yes", "-o", "json"))["items"]
    assert {one["outcome"] for one in cleared} == {"cleared"}
    for broker in (1, 2, 3):
        await eventually(partial(unthrottled, stage, broker))
    assert (await settings(stage, "brokers", "1", "2", "3"), await settings(stage, "topics", TOPIC)) == before
    assert json.loads(await succeeds(stage.daemon, "throttle", "show", "-o", "json"))["items"] == []
    await stage.proven()


async def led_by(stage: Scene, broker: int) -> int:
    """Counts the partitions under load that a broker leads."""
    found = leaders(await stage.w.states())
    return sum(leader == broker for (topic, _), leader in found.items() if topic == TOPIC)


async def drained(stage: Scene) -> list[int]:
    """Returns the drained brokers, as the daemon shows them."""
    [status] = json.loads(await succeeds(stage.daemon, "status", "-o", "json"))["items"]
    return list(status.get("drainedBrokers") or [])


async def test_a_drained_broker_leads_nothing_until_it_is_undrained(stage: Scene) -> None:
    out = await succeeds(stage.daemon, "drain", "2", "--wait", "--reason", "new disks", "-o", "json")
    assert json.loads(out)["items"][0]["state"] == "success"
    assert await led_by(stage, 2) == 0
    await stage.daemon.kill()
    await stage.daemon.boot()
    await stage.active()
    assert (await drained(stage), await led_by(stage, 2)) == ([2], 0)
    await stage.w.cluster.brokers[2].stop()
    await stage.w.cluster.revive(2)
    await stage.proven()
    assert await led_by(stage, 2) == 0
    await stage.w.cluster.brokers[1].kill()
    await eventually(lambda: led_by_one_of(stage, 3), 60.0)
    assert await led_by(stage, 2) == 0, "broker 3 can lead"
    await stage.w.cluster.revive(1)
    await stage.w.healed()
    await succeeds(stage.daemon, "undrain", "2")
    assert await drained(stage) == []
    await stage.proven()


async def led_by_one_of(stage: Scene, *brokers: int) -> bool:
    found = leaders(await stage.w.states())
    return all(leader in brokers for (topic, _), leader in found.items() if topic == TOPIC)


async def not_preferred(stage: Scene) -> int:
    """Counts the partitions under load that another than their first replica leads."""
    states = await stage.w.states()
    found = leaders(states)
    return sum(found[name] != replicas[0] for name, (replicas, _) in states.items() if name[0] == TOPIC)


async def test_all_partitions_are_led_by_their_preferred_replicas_after_one_command(stage: Scene) -> None:
    await succeeds(stage.daemon, "drain", "1", "--wait")
    await succeeds(stage.daemon, "undrain", "1")
    assert await not_preferred(stage)
    found = await through_a_failover(stage, "elect", "elect", "preferred", "--all", "--batch", "1")
    assert (found["state"], await not_preferred(stage)) == ("success", 0), found
    await stage.proven()
