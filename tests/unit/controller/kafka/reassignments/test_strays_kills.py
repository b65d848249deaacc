"""The daemon dies before and after each write about missed removals; the end is that of a clean run.

No log stays that an assignment does not name, no memory either, and no log is deleted that an assignment names.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.controller_world import World
from tests.kit.reassignment_kit import alter, caught_up, propagated, request_by_znode, written
from tests.kit.strays_kit import remembered
from tests.kit.virtual_time import in_virtual_time
from tests.unit.controller.kafka.path.test_controller_kills import Scenario, deaths, first_term, next_term, once_more


async def two_topics(w: World) -> None:
    await w.topic("m", (1, 2), (1, 2), leaders=True)
    await w.topic("n", (1, 2), leaders=True)
    w.die(1)


async def both_move(w: World) -> None:
    """m-0 and n-0 move away from broker 1 while it is away; then it returns."""
    await alter(w, {("m", 0): (2, 3), ("n", 0): (2, 3)})
    await caught_up(w)
    await is_back(w)


async def one_goes_back(w: World) -> None:
    """m-0 moves away from broker 1 and back to it before the broker returns; n-0 stays away."""
    await alter(w, {("m", 0): (2, 3), ("n", 0): (2, 3)})
    await caught_up(w)
    await request_by_znode(w, {("m", 0): (2, 1)})
    await is_back(w)
    await caught_up(w)


async def is_back(w: World) -> None:
    if 1 not in w.brokers:
        await w.boot(1)
    await propagated(w)


SCENARIOS = [
    Scenario("both move", two_topics, both_move, both_move),
    Scenario("one goes back", two_topics, one_goes_back, one_goes_back),
]
DELETED = {"both move": {("m", 0), ("n", 0)}, "one goes back": {("n", 0)}}


def ended(w: World) -> dict[str, Any]:
    return {
        "assigned": {name: written(w, *name).replicas for name in (("m", 0), ("m", 1), ("n", 0))},
        "remembered": remembered(w),
        "under way": dict(w.term.cluster.reassigning),
    }


@pytest.mark.seed("S4-59", "S4-64", "S4-69")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@in_virtual_time
async def test_killed_before_and_after_every_write(scenario: Scenario) -> None:
    async with first_term(scenario, 10_000, "") as w:
        writes = len(w.active.script.writes)
        clean = ended(w)
        assert (clean["remembered"], clean["under way"]) == ({}, {})
        assert clean["assigned"]["m", 0] == ((2, 1) if scenario.name == "one goes back" else (2, 3))
        assert DELETED[scenario.name] <= set(w.wires.deleted(1))
        assert ("m", 1) not in w.wires.deleted(1)
        await once_more(w)
    assert writes >= 8
    for number, when in deaths(writes):
        async with first_term(scenario, number, when) as w:
            await next_term(scenario, w)
            assert ended(w) == clean, f"killed {when} write {number}"
            assert DELETED[scenario.name] <= set(w.wires.deleted(1)), f"killed {when} write {number}"
            assert ("m", 1) not in w.wires.deleted(1)
