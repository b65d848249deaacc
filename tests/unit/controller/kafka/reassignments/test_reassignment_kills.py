"""Reassignments over the ends of terms: a daemon that dies at any write, and partitions whose state is garbage."""

from __future__ import annotations

from typing import Any

import pytest

from metadata_store import paths
from metadata_store.codecs.topic import encode_state, encode_topic
from metadata_store.port import ANY_VERSION
from state_machines.model.types import Assignment
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.parts import LEADER_AND_ISR, STOP_REPLICA
from tests.kit.kafka.reassignments import (
    ReassignmentRequest,
    alter,
    caught_up,
    propagated,
    request_by_znode,
    requested_by_znode,
    written,
)
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.path.test_controller_kills import Scenario, deaths, first_term, next_term, once_more

OLD_IBP = "2.7-IV1"


async def two_partitions(w: KafkaWorld) -> None:
    await w.boot(4)
    await w.topic("m", (1, 2), (2, 1), leaders=True)


async def two_that_wait_for_the_next_term(w: KafkaWorld) -> None:
    await two_partitions(w)
    await w.operator.create(
        paths.REASSIGN_PARTITIONS, b'{"version":1,"partitions":[{"topic":"m","partition":0,"replicas":[2,3]}]}'
    )
    await moving(w, 1, Assignment((3, 1, 2), (3,), (2,)), (2, 1))


async def one_under_way(w: KafkaWorld) -> None:
    """m-0 goes from 1, 2 to 2, 3; 3 is in sync, 2 is not."""
    await two_partitions(w)
    await moving(w, 0, Assignment((2, 3, 1), (3,), (1,)), (1, 3))


async def moving(w: KafkaWorld, partition: int, assignment: Assignment, isr: tuple[int, ...]) -> None:
    """As an earlier controller left it."""
    found = w.assignment("m")
    data = encode_topic({**found.partitions, partition: assignment}, found.topic_id)
    await w.operator.set(paths.topic("m"), data, found.version)
    held = w.states["m", partition]
    state = encode_state(isr[0], held.leader_epoch + 1, isr, held.controller_epoch)
    await w.operator.set(paths.state("m", partition), state, held.version)


async def asked(w: KafkaWorld, targets: ReassignmentRequest, *, by_call: bool = True) -> None:
    await alter(w, targets)
    await caught_up(w, by_call=by_call)


async def both_move(w: KafkaWorld) -> None:
    await asked(w, {("m", 0): (2, 3), ("m", 1): (3, 1)})


async def both_move_at_an_old_ibp(w: KafkaWorld) -> None:
    await asked(w, {("m", 0): (2, 3), ("m", 1): (3, 1)}, by_call=False)


async def cancelled(w: KafkaWorld) -> None:
    await asked(w, {("m", 0): None})


async def overridden(w: KafkaWorld) -> None:
    await asked(w, {("m", 0): (2, 4)})


async def asked_of_the_znode(w: KafkaWorld) -> None:
    await request_by_znode(w, {("m", 0): (2, 3), ("m", 1): (3, 1), ("m", 5): (1,)})
    await caught_up(w)


async def leaders_join(w: KafkaWorld) -> None:
    await caught_up(w)


SCENARIOS = [
    Scenario("by call", two_partitions, both_move, both_move),
    Scenario("by call, old IBP", two_partitions, both_move_at_an_old_ibp, both_move_at_an_old_ibp, ibp=OLD_IBP),
    Scenario("by znode", two_partitions, asked_of_the_znode, leaders_join),
    Scenario("cancelled", one_under_way, cancelled, cancelled),
    Scenario("overridden", one_under_way, overridden, overridden),
    Scenario("resumed", two_that_wait_for_the_next_term, again=leaders_join, failover=True),
]
DELETED = {
    "by call": {1: {("m", 0)}, 2: {("m", 1)}},
    "by call, old IBP": {1: {("m", 0)}, 2: {("m", 1)}},
    "by znode": {1: {("m", 0)}, 2: {("m", 1)}},
    "cancelled": {3: {("m", 0)}},
    "overridden": {1: {("m", 0)}, 3: {("m", 0)}},
    "resumed": {1: {("m", 0)}, 2: {("m", 1)}},
}


def ended(w: KafkaWorld) -> dict[str, Any]:
    """What a reassignment leaves behind."""
    return {
        "assigned": [written(w, "m", p) for p in (0, 1)],
        "znode": requested_by_znode(w),
        "deleted": {b: found for b in w.brokers if (found := w.wires.stopped(b))},
        "under way": dict(w.term.cluster.reassigning),
    }


@pytest.mark.seed("S4-59", "S4-60", "S4-61", "S4-64", "S4-69", "S4-84")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@in_virtual_time
async def test_killed_before_and_after_every_write(scenario: Scenario) -> None:
    async with first_term(scenario, 10_000, "") as w:
        writes = len(w.active.script.writes)
        if scenario.failover:
            await scenario.again(w)
            writes = len(w.active.script.writes)
        assert not w.term.gate.ended
        clean = ended(w)
        assert (clean["deleted"], clean["znode"], clean["under way"]) == (DELETED[scenario.name], None, {})
        await once_more(w)
        led = (await next_term(scenario, w))["led"]
        assert ended(w) == clean, "a term after a clean one changes nothing"
    assert writes >= 2
    for number, when in deaths(writes):
        async with first_term(scenario, number, when) as w:
            found, after = await next_term(scenario, w), ended(w)
            assert (after, found["led"]) == (clean, led), f"killed {when} write {number}"


OVERRIDDEN = Assignment((2, 4, 1, 3), (4, 3), (1, 3))
"""To 2 and 3 first, then to 2 and 4: 3 is dropped."""
BEGUN = Assignment((2, 4, 1), (4,), (1,))


async def serving(w: KafkaWorld, moved: Assignment, state: bytes) -> None:
    """A term of a topic whose partition is being moved."""
    await w.topic("t", (1, 2), leaders=True)
    await w.operator.set(paths.topic("t"), encode_topic({0: moved}, id_of("t")), ANY_VERSION)
    await w.operator.set(paths.state("t", 0), state, ANY_VERSION)
    await w.begin_term()
    await propagated(w)


@pytest.mark.parametrize("moved", [OVERRIDDEN, BEGUN])
@in_world(1, 2, 3, 4)
async def test_nothing_is_dropped_of_a_partition_before_its_isr_is_known(w: KafkaWorld, moved: Assignment) -> None:
    await serving(w, moved, b"{")
    assert written(w, "t") == moved
    assert not any(w.wires.partitions(broker, LEADER_AND_ISR) for broker in (1, 2, 3, 4))
    await w.operator.set(paths.state("t", 0), encode_state(1, 3, (1, 2), 0), ANY_VERSION)
    await propagated(w)
    assert written(w, "t") == BEGUN
    assert any(p.is_new for _, p in w.wires.partitions(4, LEADER_AND_ISR))
    assert len(w.wires.partitions(3, STOP_REPLICA)) == (1 if moved is OVERRIDDEN else 0)
    await caught_up(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((2, 4)), {("t", 0): (2, (2, 4))})
    w.agreed()
