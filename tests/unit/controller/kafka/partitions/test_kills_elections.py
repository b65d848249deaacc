"""The daemon dies before and after each write of elections and of failed log directories."""

from __future__ import annotations

import asyncio

import pytest

from state_machines.decisions.leader_election import ElectionType
from tests.kit.controller_world import World
from tests.kit.virtual_time import in_virtual_time
from tests.unit.controller.kafka.path.test_controller_kills import Scenario, ends_as_a_clean_run


async def led_by_others(w: World) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True, led_by=3)
    await w.topic("u", (3, 1), leaders=True)


async def requested_by_znode(w: World) -> None:
    await w.request_preferred(("t", 0), ("u", 0), ("gone", 0), ("t", 1))
    await w.settle()


async def left_behind(w: World) -> None:
    """What a controller that died left: a request, a note, and an election that only a setting allows."""
    await led_by_others(w)
    await w.topic("behind", (1, 2), leaders=True, isr=(9,), led_by=9)
    await w.configure("topics", "behind", unclean_leader_election_enable="true")
    await w.request_preferred(("t", 0), ("t", 1))
    w.wires.lost[3] = {("u", 0)}
    await w.log_directory_fails(3)


async def asked_by_request(w: World) -> None:
    await w.elect(ElectionType.PREFERRED, everything=True)
    await w.settle()


async def nothing_in_sync(w: World) -> None:
    await w.topic("t", (1, 2), (1, 3), leaders=True, isr=(1,))
    await w.topic("u", (1, 2), leaders=True, isr=(1,))
    w.die(1)


async def asked_uncleanly(w: World) -> None:
    await w.elect(ElectionType.UNCLEAN, ("t", 0), ("t", 1))
    await w.settle()


async def allowed(w: World) -> None:
    await w.configure("topics", "t", unclean_leader_election_enable="true")
    await w.settle()


async def directory_fails(w: World) -> None:
    w.wires.lost[3] = {("t", 0), ("u", 0)}
    await w.log_directory_fails(3)
    await w.propagated()
    await w.propagated()


async def some_time_passes(w: World) -> None:
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
