"""The automatic balance in virtual time (S4-83), and a daemon that dies at any write of an election."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from controller.kafka.partitions.elections import Budget
from controller.kafka.term.dispatch import controller_state
from state_machines.decisions.leader_election import ElectionType
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.reassignments import request_by_znode, written
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.path.test_controller_kills import Scenario, ends_as_a_clean_run


async def unbalanced(w: KafkaWorld, not_led: int, led: int = 0) -> None:
    """Broker 1 is preferred by all of t and u, and leads u only."""
    await w.topic("t", *[(1, 2, 3)] * not_led, leaders=True, led_by=2)
    if led:
        await w.topic("u", *[(1, 2, 3)] * led, leaders=True)
    await w.serve()


def moved(w: KafkaWorld) -> int:
    return sum(topic == "t" and leader == 1 for (topic, _), (leader, _) in w.leaders().items())


async def after(w: KafkaWorld, seconds: float) -> int:
    """How many have moved then."""
    await asyncio.sleep(seconds)
    await w.propagated()
    return moved(w)


@pytest.mark.kafka("ControllerIntegrationTest.testAutoPreferredReplicaLeaderElection")
@pytest.mark.seed("S4-83")
@in_world()
async def test_the_balance_looks_soon_after_a_failover_and_then_every_interval(w: KafkaWorld) -> None:
    """testAutoPreferredReplicaLeaderElection; what is out of balance later waits for the next look."""
    await unbalanced(w, 4)
    assert await after(w, 4.0) == 0
    assert await after(w, 2.0) == 4
    await w.bounce(1)
    await w.propagated()
    for partition in range(4):
        await w.alter_partition(2, w.proposal("t", partition, (2, 3, 1)))
    assert await after(w, 290.0) == 0
    assert await after(w, 10.0) == 4
    w.agreed()


@pytest.mark.seed("S4-83")
@pytest.mark.parametrize(("led", "expected"), [(9, 0), (8, 1)])
@in_world()
async def test_leaders_move_only_above_the_ratio(w: KafkaWorld, led: int, expected: int) -> None:
    await unbalanced(w, 1, led)
    assert await after(w, 6.0) == expected


@pytest.mark.seed("S4-83")
@in_world(leader_imbalance_per_broker_percentage=50, leader_imbalance_check_interval_seconds=20)
async def test_the_ratio_and_the_interval_are_settings(w: KafkaWorld) -> None:
    await unbalanced(w, 1, 1)
    assert await after(w, 6.0) == 0
    await w.topic("v", (1, 2), leaders=True, led_by=2)
    await w.propagated()
    assert await after(w, 10.0) == 0
    assert await after(w, 10.0) == 1


@pytest.mark.seed("S4-83")
@in_world(leader_rebalance_moves_per_minute=3)
async def test_no_more_leaders_move_in_a_minute_than_allowed(w: KafkaWorld) -> None:
    await unbalanced(w, 8)
    assert await after(w, 6.0) == 3
    assert await after(w, 58.0) == 3
    assert await after(w, 2.0) == 6
    assert await after(w, 61.0) == 8


@pytest.mark.seed("S4-83")
@in_world(leader_rebalance_moves_per_minute=3, leader_imbalance_check_interval_seconds=1)
async def test_a_short_interval_does_not_widen_the_budget(w: KafkaWorld) -> None:
    await unbalanced(w, 8)
    assert await after(w, 60.0) == 3
    assert await after(w, 10.0) == 6


@pytest.mark.seed("S4-83")
@in_world(auto_leader_rebalance_enable=False)
async def test_the_check_can_be_switched_off(w: KafkaWorld) -> None:
    await unbalanced(w, 4)
    assert await after(w, 1_000.0) == 0


@pytest.mark.seed("S4-83")
@in_world()
async def test_where_nothing_is_to_be_done_nothing_is_written(w: KafkaWorld) -> None:
    """A preferred replica that is behind is not asked for (KAFKA-9866)."""
    await w.topic("t", (1, 2), leaders=True, led_by=2, isr=(2,))
    await w.serve()
    zxid = w.server.tree.zxid
    await after(w, 1_000.0)
    assert w.server.tree.zxid == zxid
    assert w.counters.events["auto_balance"].count == 4


@pytest.mark.seed("S4-83")
@in_world()
async def test_a_look_waits_for_the_connection_and_ends_with_the_term(w: KafkaWorld) -> None:
    await unbalanced(w, 4)
    w.server.suspend(w.active.zk.session_id)
    await asyncio.sleep(10.0)
    assert moved(w) == 0
    w.server.resume(w.active.zk.session_id)
    await w.propagated()
    assert moved(w) == 4
    await w.seize()
    await w.active.ended()
    await asyncio.sleep(1_000.0)
    assert w.counters.events["auto_balance"].count == 1


@pytest.mark.kafka(
    "ControllerIntegrationTest.testAutoPreferredReplicaLeaderElectionWithOtherReassigningPartitions",
    "ControllerIntegrationTest.testAutoPreferredReplicaLeaderElectionWithSamePartitionBeingReassigned",
    "ControllerEventManagerTest.testSuccessfulEvent",
)
@pytest.mark.seed("S4-83")
@in_world()
async def test_a_reassignment_that_is_stuck_holds_no_partition_up(w: KafkaWorld) -> None:
    await unbalanced(w, 3)
    await request_by_znode(w, {("t", 0): (1, 9)})
    assert written(w, "t", 0).moving
    states: list[int] = []
    w.active.script.at("t/partitions/2/state", lambda: states.append(controller_state(w.term.handling)))
    assert await after(w, 6.0) == 3
    assert written(w, "t", 0).moving, "broker 9 is not there"
    assert (states, w.counters.events["auto_balance"].count) == ([6], 1)
    assert controller_state(w.term.handling) == 0


@in_world()
async def test_a_large_model_is_counted_in_turns(w: KafkaWorld) -> None:
    with mock.patch("controller.kafka.partitions.elections.TURN_ROWS", 3):
        await unbalanced(w, 10)
        assert await after(w, 6.0) == 10


def test_the_budget_is_that_of_the_last_minute() -> None:
    budget = Budget(10)
    assert budget.left(1_000.0) == 10
    budget.spend(1_000.0, 4)
    budget.spend(1_010.0, 0)
    budget.spend(1_030.0, 6)
    assert [budget.left(now_s) for now_s in (1_030.0, 1_059.9, 1_060.0, 1_089.9, 1_090.0)] == [0, 0, 4, 4, 10]
    budget.spend(2_000.0, 10)
    assert budget.next_look_s(2_015.0, 300.0, left=True) == 45.0
    assert budget.next_look_s(2_015.0, 300.0, left=False) == 300.0
    assert Budget(10).next_look_s(5.0, 20.0, left=True) == 20.0
    budget.spend(3_000.0, 10)
    assert budget.next_look_s(3_000.0 + 59.999_999, 300.0, left=True) == 1.0, (
        "never a look after the other without a pause"
    )


async def led_by_others(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True, led_by=3)
    await w.topic("u", (3, 1), leaders=True)


async def requested_by_znode(w: KafkaWorld) -> None:
    await w.request_preferred(("t", 0), ("u", 0), ("gone", 0), ("t", 1))
    await w.settle()


async def left_behind(w: KafkaWorld) -> None:
    """What a controller that died left: a request, a note, and an election that only a setting allows."""
    await led_by_others(w)
    await w.topic("behind", (1, 2), leaders=True, isr=(9,), led_by=9)
    await w.configure("topics", "behind", unclean_leader_election_enable="true")
    await w.request_preferred(("t", 0), ("t", 1))
    w.wires.lost[3] = {("u", 0)}
    await w.log_directory_fails(3)


async def asked_by_request(w: KafkaWorld) -> None:
    await w.elect(ElectionType.PREFERRED, everything=True)
    await w.settle()


async def nothing_in_sync(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), (1, 3), leaders=True, isr=(1,))
    await w.topic("u", (1, 2), leaders=True, isr=(1,))
    w.die(1)


async def asked_uncleanly(w: KafkaWorld) -> None:
    await w.elect(ElectionType.UNCLEAN, ("t", 0), ("t", 1))
    await w.settle()


async def allowed(w: KafkaWorld) -> None:
    await w.configure("topics", "t", unclean_leader_election_enable="true")
    await w.settle()


async def directory_fails(w: KafkaWorld) -> None:
    w.wires.lost[3] = {("t", 0), ("u", 0)}
    await w.log_directory_fails(3)
    await w.propagated()
    await w.propagated()


async def some_time_passes(w: KafkaWorld) -> None:
    await asyncio.sleep(6.0)
    await w.settle()


SCENARIOS = [
    Scenario("preferred election by znode", led_by_others, requested_by_znode),
    Scenario("failover with a request, a note and a permission", left_behind, failover=True),
    Scenario("ElectLeaders", led_by_others, asked_by_request, asked_by_request),
    Scenario("unclean election by request", nothing_in_sync, asked_uncleanly, asked_uncleanly),
    Scenario("unclean election by configuration", nothing_in_sync, allowed),
    Scenario("log directory", led_by_others, directory_fails),
    Scenario("automatic balance", led_by_others, some_time_passes, some_time_passes),
]


@pytest.mark.seed("S4-70", "S4-71", "S4-81", "S4-82", "S4-83")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@in_virtual_time
async def test_killed_before_and_after_every_write(scenario: Scenario) -> None:
    await ends_as_a_clean_run(scenario)
