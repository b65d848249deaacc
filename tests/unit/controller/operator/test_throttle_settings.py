"""Throttle settings in ZooKeeper: each has the procedure that owns it, and what nobody owns can be removed."""

from __future__ import annotations

import json
from unittest import mock

import pytest

from controller.http.documents import NotActive
from controller.operator import throttle_settings
from controller.operator.health import throttles_held, throttles_in_force
from controller.operator.present import StatusReader
from controller.operator.throttle_settings import ClearRequest, ThrottleSetting
from controller.operator.throttles import ThrottleView
from metadata_store import paths
from metadata_store.acl import ADMIN, READ, Acl
from metadata_store.errors import NotConnected
from state_machines.admin_rules.throttles import FOLLOWER_REPLICAS, LEADER_RATE
from state_machines.decisions.plan_progress import ReassignPlan
from tests.kit.kafka.plans import LISTS, RATES, applied, config, moves
from tests.kit.kafka.reassignments import alter
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.procedures.test_throttle_kind import ALL, begun, lifted, set_rates, view
from tests.unit.controller.operator.test_view_procedures import view_of

READ_ONLY = Acl(READ | ADMIN, "world", "anyone")


async def left(w: KafkaWorld, kind: str, name: str, **settings: str) -> None:
    """Has another tool leave settings, beside one that throttles nothing."""
    entries = {setting.replace("_", "."): value for setting, value in settings.items()}
    data = json.dumps({"version": 1, "config": {"retention.ms": "5", **entries}}).encode()
    path = paths.config(kind, name)
    if await w.operator.exists(path) is None:
        await w.operator.create(path, data)
    else:
        await w.operator.set(path, data, -1)


async def leave_some(w: KafkaWorld) -> None:
    await left(w, "brokers", "4", leader_replication_throttled_rate="9")
    await left(w, "topics", "b", follower_replication_throttled_replicas="0:1,1:2")


def seen(found: list[ThrottleSetting]) -> list[tuple[str, str, str | None]]:
    return [(one.entity, one.setting, one.outcome) for one in found]


@in_world(*ALL)
async def test_each_setting_is_listed_with_its_owner_or_nobody(w: KafkaWorld) -> None:
    await begun(w)
    pid = (await set_rates(w, 1, topics=["a"])).pid
    await leave_some(w)
    await left(w, "topics", "quiet", leader_replication_throttled_replicas="")
    own, rest = await view(w).listed()
    assert (own.pid, own.settings_total, {one.owner for one in own.settings}) == (pid, 4, {f"throttle {pid}"})
    assert {(one.entity, one.setting) for one in own.settings} == {
        *(("broker 1", name) for name in RATES),
        *(("topic a", name) for name in LISTS),
    }
    assert (rest.pid, rest.kind, rest.brokers, rest.topics, rest.settings_total) == (None, "nobody", [4], ["b"], 2)
    assert [(one.entity, one.value, one.replicas, one.owner) for one in rest.settings] == [
        ("broker 4", "9", None, "nobody"),
        ("topic b", "0:1,1:2", 2, "nobody"),
    ]


@in_world(*ALL)
async def test_a_bypassed_throttle_leaves_settings_that_are_listed_and_removed(w: KafkaWorld) -> None:
    await begun(w)
    pid = (await set_rates(w, 1, 2, topics=["a"])).pid
    await view_of(w).bypass(pid, "uid 0")
    await w.settle()
    [rest] = await view(w).listed()
    assert (rest.kind, rest.brokers, rest.topics) == ("nobody", [1, 2], ["a"])
    planned = await view(w).clear(ClearRequest(dry_run=True), "uid 0")
    assert {one.outcome for one in planned} == {"planned"}
    assert config(w, "brokers", "1") == dict.fromkeys(RATES, "5000"), "a dry run removes nothing"
    found = await view(w).clear(ClearRequest(), "uid 0")
    assert (len(found), {one.outcome for one in found}) == (6, {"cleared"})
    assert config(w, "brokers", "1") == config(w, "topics", "a") == {}
    assert await view(w).clear(ClearRequest(), "uid 0") == []
    assert await view(w).listed() == []


@in_world(*ALL)
async def test_what_a_procedure_owns_stays_and_all_other_settings_of_the_entity_too(w: KafkaWorld) -> None:
    await begun(w)
    pid = (await set_rates(w, 1)).pid
    await leave_some(w)
    assert seen(await view(w).clear(ClearRequest(topics=["b"]), "uid 0")) == [("topic b", FOLLOWER_REPLICAS, "cleared")]
    assert config(w, "topics", "b") == {"retention.ms": "5"}
    named = await view(w).clear(ClearRequest(brokers=[1]), "uid 0")
    assert [one.why for one in named] == [f"throttle {pid} takes it back at its end: regent end {pid}"] * 2
    assert seen(await view(w).clear(ClearRequest(), "uid 0")) == [("broker 4", LEADER_RATE, "cleared")]
    assert config(w, "brokers", "1") == dict.fromkeys(RATES, "5000")
    await lifted(w)
    assert config(w, "brokers", "1") == {}, "the throttle still knows its former values"


@in_world(*ALL)
async def test_settings_that_another_clients_reassignment_may_need_stay(w: KafkaWorld) -> None:
    await begun(w)
    await leave_some(w)
    await alter(w, {("b", 0): (3, 4)})
    await w.settle()
    kept = await view(w).clear(ClearRequest(), "uid 0")
    assert seen(kept) == [("broker 4", LEADER_RATE, "kept"), ("topic b", FOLLOWER_REPLICAS, "kept")]
    assert {one.why for one in kept} == {throttle_settings.FOREIGN}


@in_world(*ALL)
async def test_settings_of_a_plans_own_topics_need_no_other_client(w: KafkaWorld) -> None:
    await begun(w)
    await leave_some(w)
    await applied(w, ReassignPlan(moves()[-1:]))
    assert seen(await view(w).clear(ClearRequest(), "uid 0")) == [
        ("broker 4", LEADER_RATE, "cleared"),
        ("topic b", FOLLOWER_REPLICAS, "cleared"),
    ]


@in_world(*ALL)
async def test_a_setting_that_changes_meanwhile_or_is_closed_stays(w: KafkaWorld) -> None:
    await begun(w)
    await leave_some(w)
    await w.operator.set_acls(paths.config("topics", "b"), [READ_ONLY], -1)
    read = throttle_settings.standing

    async def late(zk: object) -> object:
        found = await read(w.term.zk)
        data = b'{"version":1,"config":{"leader.replication.throttled.rate":"10"}}'
        await w.operator.set(paths.config("brokers", "4"), data, -1)
        return found

    with mock.patch.object(throttle_settings, "standing", late):
        kept = await view(w).clear(ClearRequest(), "uid 0")
    assert [one.outcome for one in kept] == ["kept", "kept"]
    assert [one.why.split(":")[0] for one in kept] == [
        "another client wrote it meanwhile, or the connection was lost",
        "ZooKeeper refused it (NO_AUTH)",
    ]
    assert config(w, "brokers", "4") == {LEADER_RATE: "10"}


@in_world(*ALL)
async def test_a_status_counts_settings_without_an_owner_and_none_of_a_procedure_that_began_or_ended(
    w: KafkaWorld,
) -> None:
    await begun(w)
    reader = StatusReader(w.dial)
    await set_rates(w, 1)
    await leave_some(w)

    async def counted() -> int:
        reader._configs_due_s = 0.0
        await reader.refresh(w.active.role, w.term.cluster, lambda: throttles_held(w.term))
        return reader.unowned(lambda: throttles_held(w.term))

    assert await counted() == 2
    told = "2 throttle settings without an owner: regent throttle show, regent throttle clear"
    assert throttles_in_force(w.term, 2)[0] == told
    await lifted(w)
    assert reader.unowned(lambda: throttles_held(w.term)) == 2, "settings of the throttle that ended are not counted"
    await view(w).clear(ClearRequest(), "uid 0")
    assert await counted() == 0


@in_world(*ALL)
async def test_without_zookeeper_nothing_is_listed_as_throttled_by_nobody(w: KafkaWorld) -> None:
    await begun(w)
    with (
        mock.patch.object(throttle_settings, "find_throttled", side_effect=NotConnected("lost")),
        pytest.raises(NotActive, match=r"cannot be read: .*lost"),
    ):
        await view(w).listed()
    none = ThrottleView(lambda: w.term, view_of(w), lambda: None)
    with pytest.raises(NotActive, match="no ZooKeeper session"):
        await none.listed()
    unusable = paths.config("topics", "a")
    await w.operator.set(unusable, b'{"throttled.replicas":1}', -1)
    [rest] = await view(w).listed()
    assert [(one.entity, one.owner) for one in rest.settings] == [("topic a", "unknown")]
    assert unusable in rest.settings[0].why
