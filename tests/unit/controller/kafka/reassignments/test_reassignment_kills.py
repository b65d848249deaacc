"""The daemon dies before and after each write of a reassignment; the next term ends where a clean run does.

Also what brokers were told to delete is the same, whoever told them: no log stays that nobody knows of, but for one
instant of a cancel.
"""

from __future__ import annotations

from typing import Any

import pytest

from metadata_store import paths
from metadata_store.codecs.state import encode_state
from metadata_store.codecs.topic import encode_topic
from state_machines.model.types import Assignment
from tests.kit.controller_world import World
from tests.kit.reassignment_kit import (
    ReassignmentRequest,
    alter,
    caught_up,
    request_by_znode,
    requested_by_znode,
    written,
)
from tests.kit.virtual_time import in_virtual_time
from tests.unit.controller.kafka.path.test_controller_kills import Scenario, deaths, first_term, next_term, once_more

OLD_IBP = "2.7-IV1"


async def two_partitions(w: World) -> None:
    await w.boot(4)
    await w.topic("m", (1, 2), (2, 1), leaders=True)


async def two_that_wait_for_the_next_term(w: World) -> None:
    await two_partitions(w)
    await w.operator.create(
        paths.REASSIGN_PARTITIONS, b'{"version":1,"partitions":[{"topic":"m","partition":0,"replicas":[2,3]}]}'
    )
    await moving(w, 1, Assignment((3, 1, 2), (3,), (2,)), (2, 1))


async def one_under_way(w: World) -> None:
    """m-0 goes from 1, 2 to 2, 3; 3 is in sync, 2 is not."""
    await two_partitions(w)
    await moving(w, 0, Assignment((2, 3, 1), (3,), (1,)), (1, 3))


async def moving(w: World, partition: int, assignment: Assignment, isr: tuple[int, ...]) -> None:
    """As an earlier controller left it."""
    found = w.assignment("m")
    data = encode_topic({**found.partitions, partition: assignment}, found.topic_id)
    await w.operator.set(paths.topic("m"), data, found.version)
    held = w.states["m", partition]
    state = encode_state(isr[0], held.leader_epoch + 1, isr, held.controller_epoch)
    await w.operator.set(paths.state("m", partition), state, held.version)


async def asked(w: World, targets: ReassignmentRequest, *, by_call: bool = True) -> None:
    await alter(w, targets)
    await caught_up(w, by_call=by_call)


async def both_move(w: World) -> None:
    await asked(w, {("m", 0): (2, 3), ("m", 1): (3, 1)})


async def both_move_at_an_old_ibp(w: World) -> None:
    await asked(w, {("m", 0): (2, 3), ("m", 1): (3, 1)}, by_call=False)


async def cancelled(w: World) -> None:
    await asked(w, {("m", 0): None})


async def overridden(w: World) -> None:
    await asked(w, {("m", 0): (2, 4)})


async def asked_of_the_znode(w: World) -> None:
    await request_by_znode(w, {("m", 0): (2, 3), ("m", 1): (3, 1), ("m", 5): (1,)})
    await caught_up(w)


async def leaders_join(w: World) -> None:
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


def ended(w: World) -> dict[str, Any]:
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
