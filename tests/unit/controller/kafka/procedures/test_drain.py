"""Drains in the controller's world: waves of leaders, marks that outlive terms, aborts, several beside each other."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from brokers.outbound.channel import PropagationLag
from controller.http.documents import NotFound, ViewRefused
from controller.http.procedures import Procedure
from controller.kafka.brokers.marks import ROUNDS_MAX, change_marks
from controller.kafka.procedures import drain as kind
from controller.kafka.procedures.environment import BEHIND_S_MAX, brokers_are_behind
from controller.operator.cordons import CordonRequest, CordonView
from controller.operator.drains import DrainRequest, DrainView, UndrainRequest, _fitting
from controller.process.clock import wall_ms
from controller.role import own_znodes as own
from metadata_store.acl import ALL
from metadata_store.nodes.cordon_node import BROKERS_MAX, PATH, Cordons, DrainMark, read_cordons
from state_machines.decisions import drain as decision
from state_machines.decisions.drain import COULD_MOVE, HOSTED, WAVE_MAX
from state_machines.decisions.leader_election import ElectionType, to_balance
from state_machines.machines import selectors
from state_machines.model.types import TopicPartition
from state_machines.planning.plan import Move, Plan, Summary
from tests.kit.kafka.reassignments import alter, caught_up, join, propagated, written
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.operator.test_view_procedures import measured_by, plans, view_of


def views(w: KafkaWorld) -> tuple[DrainView, CordonView]:
    cordons = CordonView(lambda: w.term)
    return DrainView(lambda: w.term, cordons, view_of(w)), cordons


async def running(w: KafkaWorld, partitions: int = 4) -> None:
    """Topic t has partitions that broker 1 leads, and one replica of topic u is on broker 1 alone."""
    await w.topic("t", *[(1, 2, 3)] * partitions, leaders=True)
    await w.topic("u", (1,), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.forget()


async def drained(w: KafkaWorld, *brokers: int, **more: object) -> Procedure:
    """Drains brokers to the end; returns the procedure."""
    found = await views(w)[0].drain(DrainRequest(brokers=list(brokers), **more), "uid 0")
    return await ended(w, found.pid)


async def ended(w: KafkaWorld, pid: int) -> Procedure:
    """Plays brokers until a procedure has ended."""
    await w.settle()
    for _ in range(20):
        found = await view_of(w).one(pid, 0)
        if found.ended:
            return found
        await caught_up(w)
        await asyncio.sleep(6)
        await w.settle()
    raise AssertionError(f"pid {pid} does not end")


def marked(w: KafkaWorld) -> tuple[set[int], set[int]]:
    """Returns the brokers that the term knows as drained, and as cordoned."""
    return set(w.term.cluster.drained), set(w.term.cluster.cordoned)


def leaders(w: KafkaWorld, topic: str = "t") -> list[int]:
    return [state.leader for (name, _), state in sorted(w.states.items()) if name == topic]


@in_world(1, 2, 3)
async def test_leaders_move_and_the_result_names_those_that_stay(w: KafkaWorld) -> None:
    await running(w)
    found = await drained(w, 1, reason="new disk")
    assert (found.state, found.kind, found.reason) == ("success", "drain", "new disk")
    assert found.result == f"4 of 5 leaders moved; 1 stay (u-0): {selectors.ONLY_REPLICA}"
    assert (leaders(w), leaders(w, "u")) == ([2, 3, 2, 3], [1])
    assert {state.isr for (topic, _), state in w.states.items() if topic == "t"} == {(1, 2, 3)}
    [mark] = await views(w)[1].listed()
    assert (mark.broker, mark.drained, mark.drain_reason, mark.drain_pid) == (1, True, "new disk", found.pid)
    assert marked(w) == ({1}, {1})
    w.agreed()


@pytest.mark.parametrize("fails_over", [False, True])
@in_world(1, 2, 3)
async def test_a_drain_goes_on_and_keeps_its_nonce_where_the_clock_is_set_ahead_by_a_day(
    w: KafkaWorld, fails_over: bool
) -> None:
    await running(w)
    request = DrainRequest(brokers=[1], nonce="n1")
    with mock.patch.object(kind, "brokers_are_behind", return_value=True):
        begun = await views(w)[0].drain(request, "uid 0")
        await w.settle()
    set_ns = (wall_ms() + 86_400_000) * 1_000_000
    with mock.patch("controller.process.clock.time_ns", return_value=set_ns):
        if fails_over:
            await w.active.crash()
            await w.begin_term()
        found = await ended(w, begun.pid)
        assert (found.state, found.result.startswith("4 of 5 leaders moved")) == ("success", True)
        assert (await views(w)[0].drain(request, "uid 0")).pid == begun.pid


@pytest.mark.seed("S2-7")
@in_world(1, 2, 3)
async def test_leaders_move_in_waves_by_name_each_durable_before_the_next(w: KafkaWorld) -> None:
    await running(w)
    with mock.patch.object(decision, "WAVE_MAX", 2):
        found = await drained(w, 1)
    writes = [names for names in w.active.script.writes if any("/state" in name for name in names)]
    partitions = [[name.split("/")[5] for name in names if name.endswith("/state")] for names in writes]
    assert partitions == [["0", "1"], ["2", "3"]]
    assert found.result.startswith("4 of 5 leaders moved")
    record = f"{own.PROCEDURES}/{found.pid:010}"
    order = [names for names in w.active.script.writes if record in names or names in writes]
    assert [names in writes for names in order].count(True) == 2
    at = [i for i, names in enumerate(order) if names in writes]
    assert at[1] - at[0] > 1, "the first wave is in the record before the second begins"


@in_world(1, 2, 3)
async def test_a_drain_waits_while_a_broker_has_yet_to_acknowledge_more_than_a_wave(w: KafkaWorld) -> None:
    await running(w)
    with mock.patch.object(kind, "brokers_are_behind", return_value=True):
        found = await views(w)[0].drain(DrainRequest(brokers=[1]), "uid 0")
        await w.settle()
        assert leaders(w) == [1] * 4
    await asyncio.sleep(1)
    assert (await ended(w, found.pid)).state == "success"


@in_world(1, 2, 3)
async def test_elections_choose_a_drained_broker_last_and_never_leave_a_partition_without_a_leader(
    w: KafkaWorld,
) -> None:
    await running(w)
    await drained(w, 2)
    w.die(1)
    await w.settle()
    assert leaders(w) == [3] * 4, "broker 2 is the first of the ISR, and drained"
    w.die(3)
    await w.settle()
    assert leaders(w) == [2] * 4, "no other broker is left"


@in_world(1, 2, 3)
async def test_the_balance_gives_a_drained_broker_nothing_and_an_operators_election_does(w: KafkaWorld) -> None:
    await running(w)
    await drained(w, 1)
    assert not to_balance(w.term.cluster, 0, 100)
    assert await w.elect(ElectionType.PREFERRED, ("t", 0)) == {("t", 0): 0}
    assert leaders(w) == [1, 3, 2, 3]
    await views(w)[0].undrain(UndrainRequest(brokers=[1]))
    await w.settle()
    assert len(to_balance(w.term.cluster, 0, 100)) == 3


@in_world(1, 2, 3)
async def test_marks_outlive_the_daemon_and_are_known_before_the_next_ones_elections(w: KafkaWorld) -> None:
    await running(w)
    await drained(w, 2)
    w.die(1)
    await w.active.crash()
    await w.begin_term()
    assert leaders(w) == [3] * 4
    assert w.term.cluster.drained == {2}


@in_world(1, 2, 3)
async def test_a_drain_goes_on_after_a_failover_in_its_middle(w: KafkaWorld) -> None:
    await running(w)

    def behind(_env: object, _partitions_max: int) -> bool:
        return leaders(w).count(1) <= 2

    with mock.patch.object(decision, "WAVE_MAX", 1), mock.patch.object(kind, "brokers_are_behind", behind):
        found = await views(w)[0].drain(DrainRequest(brokers=[1]), "uid 0")
        await w.settle()
        assert leaders(w) == [2, 3, 1, 1]
        item = await view_of(w).one(found.pid, 0)
        assert (item.step, item.detail) == ("move leaders", "brokers [1]: 5 leaders, up to t-1")
        await w.active.crash()
    await w.begin_term()
    assert (await ended(w, found.pid)).result.startswith("4 of 5 leaders moved")
    assert leaders(w) == [2, 3, 2, 3]


@in_world(1, 2, 3)
async def test_an_abort_in_the_middle_removes_the_marks_that_the_drain_set(w: KafkaWorld) -> None:
    await running(w)
    drains, cordons = views(w)
    await cordons.cordon(CordonRequest(brokers=[1], reason="disk"), "uid 1")
    await w.settle()
    with mock.patch.object(kind, "brokers_are_behind", return_value=True):
        found = await drains.drain(DrainRequest(brokers=[1, 2]), "uid 0")
        await w.settle()
        assert w.term.cluster.drained == {1, 2}
        with pytest.raises(ViewRefused, match=r"procedure \d+ is draining brokers \[2\]"):
            await drains.undrain(UndrainRequest(brokers=[2, 3]))
        await view_of(w).abort(found.pid)
        assert (await ended(w, found.pid)).state == "rolledback"
    [mark] = await cordons.listed()
    assert (mark.broker, mark.drained, mark.reason) == (1, False, "disk")
    assert marked(w) == (set(), {1})


@in_world(1, 2, 3)
async def test_an_abort_leaves_the_mark_of_an_earlier_drain(w: KafkaWorld) -> None:
    await running(w)
    first = await drained(w, 1)
    with mock.patch.object(kind, "brokers_are_behind", return_value=True):
        second = await views(w)[0].drain(DrainRequest(brokers=[1]), "uid 0")
        await w.settle()
        await view_of(w).abort(second.pid)
        await ended(w, second.pid)
    [mark] = await views(w)[1].listed()
    assert (mark.drained, mark.drain_pid) == (True, first.pid)


@in_world(1, 2, 3)
async def test_undrain_removes_the_cordon_that_the_drain_brought_and_keeps_an_operators(w: KafkaWorld) -> None:
    await running(w)
    drains, cordons = views(w)
    await cordons.cordon(CordonRequest(brokers=[1]), "uid 1")
    await drained(w, 1, 2)
    assert [mark.broker for mark in await drains.undrain(UndrainRequest(brokers=[1, 2, 3]))] == [1]
    await w.settle()
    assert marked(w) == (set(), {1})


@in_world(1, 2, 3)
async def test_a_cordon_that_an_operator_adds_outlives_the_drain(w: KafkaWorld) -> None:
    await running(w)
    drains, cordons = views(w)
    await drained(w, 1)
    await cordons.cordon(CordonRequest(brokers=[1], reason="disk"), "uid 1")
    [mark] = await drains.undrain(UndrainRequest(brokers=[1]))
    assert (mark.reason, mark.principal, mark.drained) == ("disk", "uid 1", False)


@in_world(1, 2, 3)
async def test_uncordon_of_a_drained_broker_is_refused_with_the_command_that_works(w: KafkaWorld) -> None:
    await running(w)
    await drained(w, 1)
    with pytest.raises(ViewRefused, match=r"brokers \[1\] are drained") as refused:
        await views(w)[1].uncordon([1, 2])
    assert refused.value.remedy == "regent undrain 1"


@in_world(1, 2, 3)
async def test_unknown_brokers_and_the_last_that_can_lead_are_refused_up_front(w: KafkaWorld) -> None:
    await running(w)
    drains, _ = views(w)
    with pytest.raises(ViewRefused, match=r"brokers \[8, 9\] are not registered and host no replica"):
        await drains.drain(DrainRequest(brokers=[9, 1, 8]), "uid 0")
    with pytest.raises(ViewRefused, match=r"no live broker would be left to lead$"):
        await drains.drain(DrainRequest(brokers=[1, 2, 3]), "uid 0")
    await drained(w, 1, 2)
    with pytest.raises(
        ViewRefused, match=r"no live broker would be left to lead: brokers \[1, 2\] are drained already"
    ):
        await drains.drain(DrainRequest(brokers=[3]), "uid 0")
    w.die(2)
    await w.settle()
    assert (await drained(w, 2)).result == "0 of 0 leaders moved", "a dead broker may be drained"


@in_world(1, 2, 3)
async def test_a_nonce_has_one_drain_also_where_it_would_be_refused_now(w: KafkaWorld) -> None:
    await running(w)
    first = await drained(w, 1, 2, nonce="n")
    w.die(3)
    await w.settle()
    assert (await drained(w, 1, 2, nonce="n")).pid == first.pid


@in_world(1, 2, 3)
async def test_a_drain_of_a_drained_broker_ends_and_moves_what_came_back(w: KafkaWorld) -> None:
    await running(w)
    await drained(w, 1)
    await w.elect(ElectionType.PREFERRED, ("t", 1))
    assert (await drained(w, 1)).result.startswith("1 of 2 leaders moved")
    assert leaders(w) == [2, 3, 2, 3]


@in_world(1, 2, 3)
async def test_a_client_that_elects_the_drained_broker_behind_a_wave_wins(w: KafkaWorld) -> None:
    await running(w)
    await drained(w, 1)
    await w.elect(ElectionType.PREFERRED, ("t", 0))
    left = decision.staying(w.term.cluster, [1])
    assert {why: [str(name) for name in names] for why, names in left.items()} == {
        COULD_MOVE: ["t-0"],
        selectors.ONLY_REPLICA: ["u-0"],
    }


@in_world(1, 2, 3)
async def test_marks_that_cannot_be_read_hold_the_drain_up_and_leave_leaders_alone(w: KafkaWorld) -> None:
    await running(w)
    await w.operator.create(PATH, b"{")
    await w.settle()
    found = await views(w)[0].drain(DrainRequest(brokers=[1]), "uid 0")
    await w.settle()
    item = await view_of(w).one(found.pid, 0)
    assert "/regent/cordons cannot be understood" in item.error
    assert leaders(w) == [1] * 4
    await w.operator.set(PATH, b'{"brokers":{},"version":1}', -1)
    await asyncio.sleep(60)
    assert (await ended(w, found.pid)).state == "success"


# -- replicas


@pytest.mark.seed("S1-55", "S3-31")
@in_world(1, 2, 3, 4)
async def test_with_replicas_every_replica_leaves_by_a_plan_of_its_own(w: KafkaWorld) -> None:
    await running(w)
    found = await drained(w, 1, replicas=True)
    assert found.result == "5 of 5 leaders moved; 5 of 5 replicas moved"
    assert not w.term.cluster.hosted(1)
    assert all(1 not in written(w, *name).replicas for name in w.states)
    assert 1 not in leaders(w) + leaders(w, "u")
    w.agreed()
    assert found.brokers == [1]
    kept = kind.drain_of(w.term.procedures.engine.records[found.pid])
    assert kept.plan is not None
    for pid in (found.pid, kept.moved_by):
        moves = await plans(view_of(w)).moves(pid)
        assert [(move.origin, move.target) for move in moves] == [(one.origin, one.target) for one in kept.plan.moves]
        assert {move.status for move in moves} == {"done"}, "also by the pid of its plan, whose record is gone"
    assert {move.status for move in await plans(view_of(w, await w.seat())).moves(found.pid)} == {"unknown"}
    with pytest.raises(NotFound):
        await plans(view_of(w)).moves(99)


@in_world(1, 2, 3, 4)
async def test_a_bypassed_plan_of_a_drain_is_described_by_its_drain_as_it_ended(w: KafkaWorld) -> None:
    await running(w)
    found = await views(w)[0].drain(DrainRequest(brokers=[1], replicas=True), "uid 0")
    await w.settle()
    plan = next(one.pid for one in await view_of(w).list_all() if one.kind == "reassign")
    await view_of(w).bypass(plan, "uid 7", "it hangs")
    await w.settle()
    assert plan not in w.term.procedures.engine.records, "its record goes with its end"
    item = await view_of(w).one(plan, 0)
    assert (item.parent, item.ended, item.state, item.bypassed) == (found.pid, True, "success", True)
    assert (item.end_requested, item.end_principal, item.end_reason) == ("bypass", "uid 7", "it hangs")
    for pid in (plan, found.pid):
        assert {move.status for move in await plans(view_of(w)).moves(pid)} == {"begun"}, "what it began goes on"
    for _ in range(3):
        await caught_up(w)
        await w.settle()
    assert {move.status for move in await plans(view_of(w)).moves(plan)} == {"done"}


@in_world(1, 2, 3, 4)
async def test_the_plan_of_a_drain_knows_the_sizes_of_its_replicas(w: KafkaWorld) -> None:
    await running(w)
    measured_by(w, {leader: dict.fromkeys((TopicPartition(*name) for name in w.states), 1_000) for leader in (1, 2, 3)})
    found = await views(w)[0].drain(DrainRequest(brokers=[1], replicas=True), "uid 0")
    await w.settle()
    plan = next(one.pid for one in await view_of(w).list_all() if one.kind == "reassign")
    assert {move.size_bytes for move in await plans(view_of(w, await w.seat())).moves(plan)} == {1_000}
    await asyncio.sleep(4)
    assert (await view_of(w).one(found.pid, 0)).size_bytes == 5_000, "a drain shows the progress of its plan"


@in_world(1, 2, 3, 4)
async def test_a_throttle_below_the_traffic_of_the_replicas_is_refused_before_anything_is_marked(w: KafkaWorld) -> None:
    await running(w)
    logs = {leader: dict.fromkeys((TopicPartition(*name) for name in w.states), 1_000) for leader in (1, 2, 3)}
    measured_by(w, logs, growth_bytes=50_000)
    slow = DrainRequest(brokers=[1], replicas=True, rate_bytes_per_s=100_000)
    with pytest.raises(
        ViewRefused, match=r"throttle of 100\.0 kB/s is below the \d+\.0 kB/s that producers"
    ) as refused:
        await views(w)[0].drain(slow, "uid 0")
    assert refused.value.remedy.endswith("or more, or no throttle")
    assert (w.node(PATH), marked(w)) == (None, (set(), set()))
    enough = slow.model_copy(update={"rate_bytes_per_s": 100_000_000})
    assert (await views(w)[0].drain(enough, "uid 0")).pid


@in_world(1, 2, 3, 4)
async def test_an_abort_while_replicas_move_takes_them_back_and_removes_the_marks(w: KafkaWorld) -> None:
    await running(w)
    found = await views(w)[0].drain(DrainRequest(brokers=[1], replicas=True), "uid 0")
    await w.settle()
    assert any(written(w, *name).moving for name in w.states)
    assert [(one.kind, one.detail) for one in await view_of(w).list_all()] == [
        ("drain", "brokers [1]: 5 leaders, up to u-0; 5 partitions move"),
        ("reassign", "5 begun"),
    ]
    await view_of(w).abort(found.pid)
    assert (await ended(w, found.pid)).state == "rolledback"
    assert {written(w, *name).replicas for name in w.states} == {(1, 2, 3), (1,)}
    assert marked(w) == (set(), set())


@in_world(1, 2, 3, 4)
async def test_a_dry_run_lists_marks_leaders_and_replicas_and_changes_nothing(w: KafkaWorld) -> None:
    await running(w)
    drains, cordons = views(w)
    await cordons.cordon(CordonRequest(brokers=[1]), "uid 0")
    await w.settle()
    rows = [(row.entity, row.what, row.before, row.after) for row in await drains.planned(DrainRequest(brokers=[1]))]
    assert rows == [("broker 1", "mark", "cordoned", "drained"), ("broker 1", "leaders", "5", "1")]
    [_, leaders_row] = await drains.planned(DrainRequest(brokers=[1]))
    assert leaders_row.why == f"1 stay: {selectors.ONLY_REPLICA}"
    moved = await drains.planned(DrainRequest(brokers=[1], replicas=True))
    assert (moved[2].what, moved[2].before, moved[2].after, moved[2].why) == ("replicas", "5", "0", "")
    assert {row.entity: row.before for row in moved[3:]} == {**{f"t-{n}": "1,2,3" for n in range(4)}, "u-0": "1"}
    assert all("1" not in row.after.split(",") for row in moved[3:])
    assert (marked(w), leaders(w), await view_of(w).list_all()) == ((set(), {1}), [1] * 4, [])
    with pytest.raises(ViewRefused, match=r"\[9\] are not registered"):
        await drains.planned(DrainRequest(brokers=[9]))
    assert (await drained(w, 1)).result.startswith("4 of 5 leaders moved"), "as it was foretold"


@in_world(1, 2, 3)
async def test_replicas_without_a_place_are_refused_before_anything_is_marked(w: KafkaWorld) -> None:
    await running(w)
    with pytest.raises(ViewRefused, match=r"replicas cannot leave: t-0 and 3 more: 3 replicas") as refused:
        await views(w)[0].drain(DrainRequest(brokers=[1], replicas=True), "uid 0")
    assert refused.value.remedy == "mend the reasons, add brokers, or drain without --replicas"
    assert w.node(PATH) is None


@in_world(1, 2, 3, 4)
async def test_replicas_that_another_client_takes_over_stay_and_are_named(w: KafkaWorld) -> None:
    await running(w)
    found = await views(w)[0].drain(DrainRequest(brokers=[1], replicas=True), "uid 0")
    await w.settle()
    await join(w, ("u", 0))
    assert not await alter(w, {("t", 0): None})
    assert f"1 stay (t-0): {HOSTED}" in (await ended(w, found.pid)).result


def test_a_plan_that_is_too_long_for_a_record_loses_its_last_moves() -> None:
    moves = tuple(Move("t" * 200, number, (1, 2), (3, 2)) for number in range(2_000))
    plan = Plan("", "", moves, (), Summary(0, 0, (), 0, 0))
    found = _fitting(plan)
    assert 0 < len(found) < 2_000
    assert [move.partition for move in found] == list(range(len(found)))
    assert len(_fitting(Plan("", "", moves[:10], (), plan.summary))) == 10


@pytest.mark.parametrize(
    ("partitions", "oldest_s", "unreachable", "expected"),
    [
        (WAVE_MAX, 1.0, False, False),
        (WAVE_MAX + 1, 1.0, False, True),
        (WAVE_MAX + 1, BEHIND_S_MAX, False, False),
        (WAVE_MAX + 1, 1.0, True, False),
    ],
)
def test_a_broker_is_behind_with_more_than_a_wave_for_a_while_unless_it_is_unreachable(
    partitions: int, oldest_s: float, unreachable: bool, expected: bool
) -> None:
    lag = PropagationLag(2, 7, not unreachable, oldest_s, partitions, "refused" if unreachable else None)
    env: Any = SimpleNamespace(controller=SimpleNamespace(channels=SimpleNamespace(lag=lambda: {2: lag})))
    assert brokers_are_behind(env, WAVE_MAX) == expected


@in_world(1, 2, 3)
async def test_a_drain_beyond_the_bound_of_marks_says_so_and_marks_nothing(w: KafkaWorld) -> None:
    await running(w)
    entries = ",".join(f'"{broker}":{{}}' for broker in range(10, 10 + BROKERS_MAX))
    await w.operator.create(PATH, f'{{"brokers":{{{entries}}},"version":1}}'.encode())
    await w.settle()
    found = await views(w)[0].drain(DrainRequest(brokers=[1]), "uid 0")
    await w.settle()
    assert f"at most {BROKERS_MAX} may be: uncordon some" in (await view_of(w).one(found.pid, 0)).error
    assert w.term.cluster.drained == set()


@pytest.mark.parametrize(("times", "ended_well"), [(ROUNDS_MAX - 1, True), (ROUNDS_MAX, False)])
@in_world(1, 2, 3)
async def test_marks_that_other_clients_write_meanwhile_are_read_again_up_to_a_bound(
    w: KafkaWorld, times: int, ended_well: bool
) -> None:
    await running(w)
    await views(w)[1].cordon(CordonRequest(brokers=[3]), "uid 0")
    await w.settle()

    async def foreign() -> None:
        await w.operator.set(PATH, b'{"brokers":{"2":{}},"version":1}', -1)

    w.active.script.at(PATH, foreign, exact=True, times=times)
    found = await views(w)[0].drain(DrainRequest(brokers=[1]), "uid 0")
    await w.settle()
    item = await view_of(w).one(found.pid, 0)
    assert item.ended == ended_well
    assert ("other clients write /regent/cordons all the time" in item.error) == (not ended_well)
    assert (await ended(w, found.pid)).state == "success"
    assert marked(w) == ({1}, {1, 2})


@in_world(1, 2, 3)
async def test_a_znode_that_may_not_be_written_holds_the_drain_up(w: KafkaWorld) -> None:
    await running(w)
    await views(w)[1].cordon(CordonRequest(brokers=[3]), "uid 0")
    w.restrict(PATH)
    found = await views(w)[0].drain(DrainRequest(brokers=[1]), "uid 0")
    await w.settle()
    assert "/regent/cordons cannot be written (NO_AUTH): check its ACL" in (await view_of(w).one(found.pid, 0)).error
    assert leaders(w) == [1] * 4


@in_world(1, 2, 3)
async def test_a_drain_that_begins_while_marks_are_removed_keeps_its_own(w: KafkaWorld) -> None:
    """The check and the write are one event: a drain of a broker that was drained before finds no mark to rely on."""
    await running(w)
    await drained(w, 1)
    drains, _ = views(w)
    begun: list[asyncio.Task[Procedure]] = []

    async def meanwhile(*given: Any, **more: Any) -> str | None:
        begun.append(asyncio.ensure_future(drains.drain(DrainRequest(brokers=[1]), "uid 0")))
        await asyncio.sleep(1)
        assert not begun[0].done(), "its record is written in a later event"
        return await change_marks(*given, **more)

    with mock.patch("controller.kafka.brokers.marks.change_marks", meanwhile):
        assert await drains.undrain(UndrainRequest(brokers=[1])) == []
    found = await ended(w, (await begun[0]).pid)
    assert found.state == "success"
    assert marked(w) == ({1}, {1})
    w.agreed()


async def running_beside(w: KafkaWorld) -> None:
    """Each of five brokers leads one partition, and has a follower."""
    await w.topic("t", (1, 2), (2, 3), (3, 4), (4, 5), (5, 1), leaders=True)
    await w.begin_term()
    await propagated(w)


async def draining(w: KafkaWorld, *brokers: int, reason: str = "") -> int:
    """Begins a drain; returns its pid."""
    found = await views(w)[0].drain(DrainRequest(brokers=list(brokers), reason=reason), "uid 0")
    await w.settle()
    return found.pid


async def drain_marks(w: KafkaWorld) -> dict[int, DrainMark]:
    """Returns the marks of drains that are stored, by broker."""
    found = await read_cordons(w.operator)
    assert isinstance(found, Cordons)
    return {broker: one.drain for broker, one in found.brokers.items() if one.drain is not None}


@in_world(1, 2, 3, 4, 5)
async def test_a_drain_waits_for_another_one_of_any_of_its_brokers_and_a_third_one_goes_on(w: KafkaWorld) -> None:
    await running_beside(w)
    with mock.patch.object(kind, "brokers_are_behind", return_value=True):
        first = await draining(w, 1, 3)
        second = await draining(w, 2, 3)
        third = await draining(w, 4)
        assert {broker: one.pid for broker, one in (await drain_marks(w)).items()} == {1: first, 3: first, 4: third}
        await view_of(w).abort(first)
        assert (await ended(w, first)).state == "rolledback"
        await w.settle()
        assert {broker: one.pid for broker, one in (await drain_marks(w)).items()} == {2: second, 3: second, 4: third}
    assert [(await ended(w, pid)).state for pid in (second, third)] == ["success"] * 2
    assert marked(w) == ({2, 3, 4}, {2, 3, 4})
    w.agreed()


@in_world(1, 2, 3, 4, 5)
async def test_a_mark_names_the_drain_its_caller_its_reason_and_its_time(w: KafkaWorld) -> None:
    await running_beside(w)
    pid = await draining(w, 2, 1, reason="new disks")
    submitted_ms = w.term.procedures.engine.records[pid].submitted_ms
    mark = DrainMark("new disks", "uid 0", submitted_ms, pid, cordons=True)
    assert await drain_marks(w) == {1: mark, 2: mark}


@in_world(1, 2, 3, 4, 5)
async def test_an_undone_drain_does_not_end_before_its_marks_are_gone(w: KafkaWorld) -> None:
    await running_beside(w)
    await views(w)[1].cordon(CordonRequest(brokers=[5]), "uid 1")
    with mock.patch.object(kind, "brokers_are_behind", return_value=True):
        pid = await draining(w, 1, 2)
        w.restrict(PATH)
        await view_of(w).abort(pid)
        await asyncio.sleep(5)
        await w.settle()
        found = await view_of(w).one(pid, 0)
        assert not found.ended
        assert "/regent/cordons cannot be written (NO_AUTH): check its ACL" in found.error
        assert marked(w)[0] == {1, 2}
        w.restrict(PATH, ALL)
        await asyncio.sleep(60)
        assert (await ended(w, pid)).state == "rolledback"
    assert await drain_marks(w) == {}
    assert marked(w) == (set(), {5})
