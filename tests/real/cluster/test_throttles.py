"""Real brokers are throttled, confirm their rates by DescribeConfigs, and lose the throttle without a trace."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from metadata_store.codecs.base import Malformed
from metadata_store.nodes.entity_configs import read_entities
from state_machines.admin_rules.throttles import RATES
from tests.kit.polling import eventually
from tests.real.cluster.kept_waiting import through_a_failover
from tests.real.cluster.scene import TOPIC, Scene, succeeds
from tests.real.cluster.test_replica_logs import unthrottled

pytestmark = pytest.mark.asyncio(loop_scope="package")

RATE = "50000000"


async def settings(stage: Scene, kind: str, *names: str) -> dict[str, dict[str, str]]:
    """Reads configurations from ZooKeeper."""
    found: dict[str, dict[str, str]] = {}
    for name, one in (await read_entities(stage.w.zk, kind, names)).items():
        assert not isinstance(one, Malformed)
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
        await eventually(partial(unthrottled, stage, broker), 30.0)
    assert (await settings(stage, "brokers", "1", "2", "3"), await settings(stage, "topics", TOPIC)) == before
    assert json.loads(await succeeds(stage.daemon, "throttle", "show", "-o", "json"))["items"] == []
    await stage.proven()
