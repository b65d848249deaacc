"""Operators' throttles in the controller's world: each broker confirms, and none costs another throttle its value."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from controller.http.documents import ViewRefused
from controller.http.procedures import Procedure
from controller.kafka.procedures import throttle as kind
from controller.kafka.procedures.reassign import encode_plan
from controller.kafka.procedures.throttle import NAME, ThrottleOrder, encode_order, order_of
from controller.kafka.procedures.throttle_settings import REASSIGN, held_elsewhere, throttles_of
from controller.operator.throttles import LiftRequest, ThrottleRequest, ThrottleView
from controller.procedures.requests import ProcedureRefused
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.acl import ADMIN, OPEN, READ, Acl
from metadata_store.records.codec import unsealed
from state_machines.admin_rules.throttles import Entity, Throttle
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.kit.kafka.plans import (
    LISTS,
    OPS,
    RATES,
    applied,
    commanded,
    config,
    finished,
    moves,
    moving,
    record,
    running,
    throttled,
)
from tests.kit.kafka.reassignments import caught_up
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.operator.test_view_procedures import view_of

ALL = (1, 2, 3, 4)
READ_ONLY = Acl(READ | ADMIN, "world", "anyone")


def view(w: KafkaWorld) -> ThrottleView:
    return ThrottleView(lambda: w.term, view_of(w), lambda: w.active.role.zk)


async def begun(w: KafkaWorld) -> None:
    await running(w)
    w.knows = {broker: {} for broker in ALL}


async def set_rates(w: KafkaWorld, *brokers: int, rate: int = 5_000, **more: Any) -> Procedure:
    request = ThrottleRequest(brokers=list(brokers), rate_bytes_per_s=rate, **more)
    found = await view(w).set_rates(request, "uid 0")
    await passes(w, 2)
    return await view_of(w).one(found.pid, 0)


async def passes(w: KafkaWorld, seconds: float) -> None:
    await w.settle()
    await asyncio.sleep(seconds)
    await w.settle()


async def lifted(w: KafkaWorld, *pids: int) -> None:
    await view(w).lift(LiftRequest(pids=list(pids), all_throttles=not pids, reason="done"), "uid 0")
    await passes(w, 2)


@in_world(*ALL)
async def test_a_throttle_is_set_confirmed_by_each_broker_and_lifted(w: KafkaWorld) -> None:
    await begun(w)
    found = await set_rates(w, 3, 1, topics=["a"], reason="the link is full")
    assert (found.step, found.ended, found.reason) == ("in force", False, "the link is full")
    assert [(one.broker, one.ok, one.text) for one in found.results] == [(1, True, "in force"), (3, True, "in force")]
    assert found.detail == ("brokers [1, 3] at 5000 bytes/s; all replicas of topics ['a']; 2 of 2 brokers confirmed it")
    assert config(w, "brokers", "1") == config(w, "brokers", "3") == dict.fromkeys(RATES, "5000")
    assert config(w, "topics", "a") == dict.fromkeys(LISTS, "*")
    [listed] = await view(w).listed()
    assert (listed.pid, listed.kind, listed.rate_bytes_per_s, listed.brokers) == (found.pid, "throttle", 5_000, [1, 3])
    await lifted(w)
    assert throttled(w) == set()
    assert await view(w).listed() == []
    assert record(w, found.pid).state is State.SUCCESS
    assert (await view_of(w).one(found.pid, 0)).detail.endswith("; it was lifted")
    ending = record(w, found.pid).ending
    assert (ending.act, ending.principal, ending.reason) == ("cancel", "uid 0", "done")


@in_world(*ALL)
async def test_brokers_that_do_not_confirm_are_queried_again_and_reported_and_the_throttle_stands(
    w: KafkaWorld,
) -> None:
    await begun(w)
    del w.knows[2]
    w.reports[3] = {RATES[0]: "7"}
    found = await set_rates(w, 1, 2, 3)
    assert (found.step, [one.ok for one in found.results]) == ("confirm on brokers", [True, False, False])
    again = "it is queried again, and has not reported the rate yet"
    causes = ["nobody listens", f"broker 3 has {RATES[0]} = '7' in force where 5000 is set"]
    assert [one.text for one in found.results][1:] == [f"{again}: {cause}" for cause in causes]
    [listed] = await view(w).listed()
    assert listed.results == found.results
    await passes(w, kind.QUERIES.tries_max * 2)
    found = await view_of(w).one(found.pid, 0)
    assert (found.step, [one.ok for one in found.results]) == ("in force", [True, False, False])
    assert w.queried.count(2) >= kind.QUERIES.tries_max
    assert w.queried.count(1) == 1
    assert [one.text for one in found.results][1:] == causes
    assert config(w, "brokers", "2") == dict.fromkeys(RATES, "5000")


@in_world(*ALL)
async def test_a_broker_that_is_silent_for_a_while_confirms_later(w: KafkaWorld) -> None:
    await begun(w)
    del w.knows[2]
    found = await set_rates(w, 1, 2)
    w.knows[2] = {}
    await passes(w, 3)
    found = await view_of(w).one(found.pid, 0)
    assert [one.ok for one in found.results] == [True, True]


@in_world(*ALL)
async def test_a_throttle_that_is_lifted_while_a_broker_is_silent_waits_for_no_further_try(w: KafkaWorld) -> None:
    await begun(w)
    del w.knows[2]
    found = await set_rates(w, 1, 2)
    assert found.step == "confirm on brokers"
    await lifted(w, found.pid)
    assert (record(w, found.pid).state, throttled(w)) == (State.SUCCESS, set())
    queried = len(w.queried)
    await passes(w, kind.QUERIES.tries_max * 2)
    assert len(w.queried) == queried, "no broker is queried any more"
    assert w.term is not None
    assert w.term.procedures.causes(found.pid) == {}, "nothing is kept of a procedure that has ended"


@in_world(*ALL)
async def test_a_setting_that_another_client_changed_meanwhile_stays(w: KafkaWorld) -> None:
    await begun(w)
    await set_rates(w, 1, 2)
    data = b'{"version":1,"config":{"leader.replication.throttled.rate":"1"}}'
    await w.operator.set(paths.config("brokers", "1"), data, -1)
    await lifted(w)
    assert config(w, "brokers", "1") == {"leader.replication.throttled.rate": "1"}
    assert config(w, "brokers", "2") == {}


@in_world(*ALL)
async def test_one_configuration_that_zookeeper_refuses_keeps_no_other_from_being_set_and_restored(
    w: KafkaWorld,
) -> None:
    await begun(w)
    theirs = b'{"version":1,"config":{"leader.replication.throttled.rate":"1"}}'
    await w.operator.create(paths.config("brokers", "2"), b'{"version":1,"config":{}}', acl=[READ_ONLY])
    found = await set_rates(w, 1, 2, 3)
    assert "broker 2: ZooKeeper refused it (NO_AUTH)" in found.error
    assert throttled(w) == {"brokers 1", "brokers 3"}
    await closed_to_writers(w, "2", closed=False)
    await passes(w, 60)
    assert throttled(w) == {"brokers 1", "brokers 2", "brokers 3"}
    assert record(w, found.pid).error == ""
    await w.operator.set(paths.config("brokers", "1"), theirs, -1)
    await closed_to_writers(w, "2", closed=True)
    await lifted(w)
    assert throttled(w) == {"brokers 1", "brokers 2"}, "3 is restored, and 1 stays as another client has it"
    await closed_to_writers(w, "2", closed=False)
    await passes(w, 60)
    assert throttled(w) == {"brokers 1"}
    ended = record(w, found.pid)
    assert ended.state is State.SUCCESS
    assert "broker 1" in ended.result.decode().partition("brokers confirmed it")[2], "a note of the first round"


async def closed_to_writers(w: KafkaWorld, broker: str, *, closed: bool) -> None:
    await w.operator.set_acls(paths.config("brokers", broker), [READ_ONLY] if closed else OPEN, -1)


async def test_a_throttle_or_a_plan_holds_each_of_its_settings() -> None:
    held = [Throttle(Entity("brokers", str(broker)), name, None, "7", ("7",)) for broker in (1, 2) for name in RATES]
    order = encode_order(ThrottleOrder((1, 2), 7, throttles=tuple(held)))
    plan = encode_plan(ReassignPlan(moves(), throttles=tuple(held)))
    for kind_name, data in ((NAME, order), (REASSIGN, plan)):
        live = [Record(5, kind_name, State.RUNNABLE, 0, 1, 1, data=data)]
        for one in held:
            said = held_elsewhere(live, 6, [(Entity("brokers", "9"), RATES[0]), (one.entity, one.setting)])
            assert said == f"{kind_name} 5 throttles {one.entity} already ({one.setting})"
        assert held_elsewhere(live, 5, [(held[0].entity, held[0].setting)]) is None, "it is its own"
        assert held_elsewhere(live, 6, [(Entity("brokers", "9"), RATES[0])]) is None


@in_world(*ALL)
async def test_a_throttle_is_refused_where_another_throttle_or_a_plan_holds_a_setting(w: KafkaWorld) -> None:
    await begun(w)
    first = await set_rates(w, 1)
    with pytest.raises(ViewRefused, match=rf"throttle {first.pid} throttles broker 1 already"):
        await set_rates(w, 2, 1)
    assert (await set_rates(w, 2)).step == "in force"
    await lifted(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=1, rate_bytes_per_s=7_000))
    with pytest.raises(ViewRefused, match=rf"reassign {pid} throttles broker 1 already"):
        await set_rates(w, 1)
    [listed] = await view(w).listed()
    assert (listed.kind, listed.rate_bytes_per_s, listed.brokers) == ("reassign", 7_000, [1, 2, 3, 4])
    with pytest.raises(ViewRefused, match="are no throttles of operators"):
        await lifted(w, pid)


@in_world(*ALL)
async def test_of_two_throttles_at_the_same_time_one_is_undone_and_takes_nothing_from_the_other(w: KafkaWorld) -> None:
    await begun(w)
    engine = w.term.procedures.engine
    orders = [encode_order(ThrottleOrder((1,), rate)) for rate in (5_000, 6_000)]
    pids = await asyncio.gather(
        *(engine.submit(NAME, order, kind_caller) for order, kind_caller in zip(orders, CALLERS, strict=True))
    )
    await passes(w, 2)
    states = [record(w, pid).state for pid in pids]
    assert states.count(State.ROLLEDBACK) == 1
    standing = 5_000 if states[1] is State.ROLLEDBACK else 6_000
    assert config(w, "brokers", "1") == dict.fromkeys(RATES, str(standing))
    await lifted(w)
    assert throttled(w) == set()


@in_world(*ALL)
async def test_of_two_throttles_of_one_topic_at_the_same_time_one_is_undone(w: KafkaWorld) -> None:
    await begun(w)
    engine = w.term.procedures.engine
    orders = [encode_order(ThrottleOrder((broker,), 5_000, ("a",))) for broker in (1, 2)]
    pids = await asyncio.gather(
        *(engine.submit(NAME, order, caller) for order, caller in zip(orders, CALLERS, strict=True))
    )
    await passes(w, 2)
    undone = [record(w, pid).state is State.ROLLEDBACK for pid in pids]
    assert undone.count(True) == 1
    assert throttled(w) == {f"brokers {1 + undone.index(False)}", "topics a"}
    await lifted(w)
    assert throttled(w) == set()


CALLERS = (OPS, type(OPS)(principal="User:ops", nonce="two"))


@in_world(*ALL)
async def test_a_plan_with_a_throttle_begins_nothing_before_an_operators_throttle_is_lifted(w: KafkaWorld) -> None:
    await begun(w)
    first = await set_rates(w, 3)
    pid = await applied(w, ReassignPlan(moves(), rate_bytes_per_s=7_000))
    await passes(w, 1)
    assert moving(w) == set()
    assert record(w, pid).error.startswith(f"throttle {first.pid} throttles broker 3 already")
    assert config(w, "brokers", "3") == dict.fromkeys(RATES, "5000")
    await lifted(w)
    assert (await finished(w, pid)).state is State.SUCCESS
    assert throttled(w) == set()


@in_world(*ALL)
async def test_a_cancelled_throttle_is_lifted_and_a_bypassed_one_leaves_its_rates_and_names_them(w: KafkaWorld) -> None:
    await begun(w)
    first, second = await set_rates(w, 1), await set_rates(w, 2)
    await view_of(w).cancel(first.pid, "uid 7", "the link is idle")
    await passes(w, 2)
    found = await view_of(w).one(first.pid, 0)
    assert (found.state, found.end_requested, found.end_reason) == ("success", "cancel", "the link is idle")
    await view_of(w).bypass(second.pid)
    await passes(w, 2)
    found = await view_of(w).one(second.pid, 0)
    assert (found.ended, config(w, "brokers", "1"), config(w, "brokers", "2")) == (
        True, {}, dict.fromkeys(RATES, "5000"),
    )  # fmt: skip
    assert "2 throttle settings may still stand, regent throttle clear removes them:" in found.detail
    assert f"{RATES[0]} of broker 2" in found.detail


@in_world(*ALL)
async def test_a_hand_back_lifts_throttles(w: KafkaWorld) -> None:
    await begun(w)
    await set_rates(w, 1)
    holding = asyncio.ensure_future(w.term.procedures.hold(5.0))
    await passes(w, 1)
    assert await holding == []
    assert throttled(w) == set()


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (ThrottleRequest(rate_bytes_per_s=1), "name brokers, or give allBrokers"),
        (ThrottleRequest(rate_bytes_per_s=1, brokers=[1], all_brokers=True), "name brokers, or give allBrokers"),
        (ThrottleRequest(rate_bytes_per_s=1, brokers=[8, 1]), r"brokers \[8\] are not registered"),
        (ThrottleRequest(rate_bytes_per_s=1, brokers=[1], topics=["zz"]), r"topics \['zz'\] do not exist"),
    ],
)
@in_world(*ALL)
async def test_a_throttle_of_what_does_not_exist_is_refused(w: KafkaWorld, request_: ThrottleRequest, why: str) -> None:
    await begun(w)
    with pytest.raises(ViewRefused, match=why):
        await view(w).set_rates(request_, "uid 0")


@in_world(*ALL)
async def test_a_dry_run_lists_each_setting_with_what_stands_there_and_writes_nothing(w: KafkaWorld) -> None:
    await begun(w)
    await w.operator.create("/config/brokers/1", b'{"version":1,"config":{"leader.replication.throttled.rate":"7"}}')
    asked = ThrottleRequest(rate_bytes_per_s=5_000, brokers=[1, 3], topics=["a"])
    before = {path: config(w, *path) for path in (("brokers", "1"), ("brokers", "3"), ("topics", "a"))}
    rows = await view(w).planned(asked)
    found = {(row.entity, row.what): (row.before, row.after) for row in rows}
    places = [("broker 1", rate) for rate in RATES] + [("broker 3", rate) for rate in RATES]
    wanted = dict.fromkeys(places, ("", "5000")) | {("topic a", one): ("", "*") for one in LISTS}
    assert found == wanted | {("broker 1", "leader.replication.throttled.rate"): ("7", "5000")}
    assert {path: config(w, *path) for path in before} == before
    assert await view_of(w).list_all() == []
    with pytest.raises(ViewRefused, match="do not exist"):
        await view(w).planned(asked.model_copy(update={"topics": ["zz"]}))
    await set_rates(w, 1)
    with pytest.raises(ViewRefused):
        await view(w).planned(asked)


@in_world(*ALL)
async def test_all_brokers_are_the_registered_ones_and_those_that_host_replicas(w: KafkaWorld) -> None:
    await w.topic("old", (1, 9), leaders=True)
    await begun(w)
    request = ThrottleRequest(rate_bytes_per_s=5_000, all_brokers=True)
    found = await view(w).set_rates(request, "uid 0")
    await passes(w, 2)
    found = await view_of(w).one(found.pid, 0)
    assert [(one.broker, one.ok) for one in found.results] == [(1, True), (2, True), (3, True), (4, True), (9, False)]
    assert config(w, "brokers", "9") == dict.fromkeys(RATES, "5000")


async def configured(w: KafkaWorld, broker: int, data: bytes, **more: Any) -> None:
    """Gives a broker a configuration before any throttle."""
    if w.node("/config/brokers") is None:
        await w.operator.create("/config/brokers", None)
    await w.operator.create(paths.config("brokers", str(broker)), data, **more)


@pytest.mark.parametrize("of_a_plan", [False, True])
@in_world(*ALL)
async def test_a_configuration_that_cannot_be_read_is_named_and_the_throttle_waits_for_it(
    w: KafkaWorld, of_a_plan: bool
) -> None:
    await begun(w)
    await configured(w, 3, b"{")
    order = encode_plan(ReassignPlan(moves(), rate_bytes_per_s=7_000)) if of_a_plan else None
    data = order or encode_order(ThrottleOrder((1, 3), 7_000))
    pid = await w.term.procedures.engine.submit(REASSIGN if of_a_plan else NAME, data, OPS)
    await passes(w, 2)
    assert "throttle of broker 3: /config/brokers/3 cannot be used" in record(w, pid).error
    assert moving(w) == set(), "no move begins without its throttle"
    assert w.node(paths.config("brokers", "1")) is None, "nothing is written before former values are known"
    await w.operator.set(paths.config("brokers", "3"), b'{"version":1,"config":{"x":"1"},"of":"another"}', -1)
    await passes(w, 60)
    assert config(w, "brokers", "3") == {"x": "1"} | dict.fromkeys(RATES, "7000")
    node = w.node(paths.config("brokers", "3"))
    assert b'"of":"another"' in (node.data or b"" if node else b"")


@in_world(*ALL)
async def test_a_plan_begins_no_move_before_each_configuration_was_written(w: KafkaWorld) -> None:
    await begun(w)
    await configured(w, 3, b'{"version":1,"config":{}}', acl=[READ_ONLY])
    pid = await applied(w, ReassignPlan(moves(), rate_bytes_per_s=7_000))
    await passes(w, 1)
    assert "throttle of broker 3: ZooKeeper refused it (NO_AUTH)" in record(w, pid).error
    assert moving(w) == set()
    await closed_to_writers(w, "3", closed=False)
    assert (await finished(w, pid)).state is State.SUCCESS
    assert throttled(w) == set()


@in_world(*ALL)
async def test_a_configuration_that_cannot_be_read_at_the_end_keeps_its_throttle_in_the_record_until_it_can(
    w: KafkaWorld,
) -> None:
    await begun(w)
    found = await set_rates(w, 1, 3)
    node = w.node(paths.config("brokers", "3"))
    assert node is not None
    await w.operator.set(paths.config("brokers", "3"), b"{", -1)
    await lifted(w)
    assert config(w, "brokers", "1") == {}
    assert not record(w, found.pid).state.is_final
    await w.operator.set(paths.config("brokers", "3"), node.data, -1)
    await passes(w, 60)
    assert record(w, found.pid).state is State.SUCCESS
    assert throttled(w) == set()


@in_world(*ALL)
async def test_a_rate_that_changes_while_a_plan_runs_names_the_brokers_of_moves_that_have_ended(w: KafkaWorld) -> None:
    """Their settings are in the record, and are given their former values with the others."""
    await begun(w)
    pid = await applied(w, ReassignPlan(moves(target=(2, 4))[:1] + moves(target=(2, 3))[1:], moves_max=1,
                                        rate_bytes_per_s=5_000))  # fmt: skip
    await caught_up(w)
    await passes(w, 6)
    await commanded(w, pid, rate_bytes_per_s=9_000)
    assert config(w, "brokers", "3") == dict.fromkeys(RATES, "9000")
    assert (await finished(w, pid)).state is State.SUCCESS
    assert throttled(w) == set()


@in_world(*ALL)
async def test_a_broker_that_is_down_is_set_and_named_and_holds_up_no_confirmation(w: KafkaWorld) -> None:
    await begun(w)
    w.die(2)
    await w.settle()
    w.queried.clear()
    found = await set_rates(w, 2, 1)
    assert (found.step, [(one.broker, one.ok) for one in found.results]) == ("in force", [(1, True), (2, False)])
    assert order_of(record(w, found.pid).data).down == (2,)
    assert 2 not in w.queried
    assert config(w, "brokers", "2") == dict.fromkeys(RATES, "5000"), "it reads them when it starts"
    with pytest.raises(ProcedureRefused, match="a throttle has one command, lift"):
        await w.term.procedures.engine.command(found.pid, b"stop")
    assert config(w, "brokers", "1") == dict.fromkeys(RATES, "5000")


@in_world(*ALL)
async def test_a_throttle_that_is_lifted_before_it_could_be_set_ends_and_sets_nothing(w: KafkaWorld) -> None:
    await begun(w)
    await configured(w, 3, b"{")
    found = await set_rates(w, 1, 3)
    assert found.step == "set rates"
    await w.operator.set(paths.config("brokers", "3"), b'{"version":1,"config":{"x":"1"}}', -1)
    await lifted(w, found.pid)
    await passes(w, 60)
    assert record(w, found.pid).state is State.SUCCESS
    assert (w.node(paths.config("brokers", "1")), config(w, "brokers", "3")) == (None, {"x": "1"})


@pytest.mark.parametrize("times", [1, 3])
@in_world(*ALL)
async def test_a_configuration_that_another_client_writes_meanwhile_is_set_and_restored_all_the_same(
    w: KafkaWorld, times: int
) -> None:
    await begun(w)
    path = paths.config("brokers", "2")
    await configured(w, 2, b'{"version":1,"config":{"x":"0"}}')
    at = iter(range(9))

    async def foreign() -> None:
        kept = {**config(w, "brokers", "2"), "x": str(next(at))}
        await w.operator.set(path, json.dumps({"version": 1, "config": kept}).encode(), -1)

    w.active.script.at(path, foreign, exact=True, times=times)
    found = await set_rates(w, 1, 2, 3)
    await passes(w, 120)
    assert record(w, found.pid).step == kind.IN_FORCE
    assert config(w, "brokers", "2") == {"x": str(times - 1)} | dict.fromkeys(RATES, "5000")
    w.active.script.at(path, foreign, exact=True, times=times)
    await lifted(w, found.pid)
    await passes(w, 120)
    assert record(w, found.pid).state is State.SUCCESS
    assert config(w, "brokers", "2") == {"x": str(2 * times - 1)}
    assert throttled(w) <= {"brokers 2"}


@pytest.mark.parametrize("of_a_plan", [False, True])
@in_world(*ALL)
async def test_former_values_are_in_the_record_before_a_configuration_is_written(
    w: KafkaWorld, of_a_plan: bool
) -> None:
    await begun(w)
    data = b'{"version":1,"config":{"leader.replication.throttled.rate":"99"}}'
    for broker in ALL:
        await configured(w, broker, data)
    order = encode_plan(ReassignPlan(moves(), rate_bytes_per_s=7_000)) if of_a_plan else None
    stored: list[int] = []

    async def look() -> None:
        [found] = w.term.procedures.engine.records.values()
        node = w.node(f"{own.PROCEDURES}/{found.pid:010}")
        assert node is not None
        kept = throttles_of(unsealed(found.pid, node.data or b""))
        stored.append(len([one for one in kept if one.before == "99"]))

    for broker in ALL:
        w.active.script.at(paths.config("brokers", str(broker)), look, exact=True)
    kind_ = REASSIGN if of_a_plan else NAME
    await w.term.procedures.engine.submit(kind_, order or encode_order(ThrottleOrder(ALL, 7_000)), OPS)
    await passes(w, 2)
    assert throttled(w) >= {f"brokers {broker}" for broker in ALL[:3]}
    assert stored
    assert min(stored) >= 3, "the value that stood there, of each broker"
