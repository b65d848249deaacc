"""A server whose opens or closes hang: commands name what ends that, and lead past it."""

from __future__ import annotations

import asyncio

import pytest

from controller.http.procedure_models import Procedure
from state_machines.regions.states import RegionState
from tests.simulation.regions.cases import Case
from tests.simulation.regions.operating import Refusal
from tests.simulation.regions.test_named_ways import in_situation
from tests.simulation.regions.ways_out import ended_by_operator

# -- an open that was given up


@in_situation("a move whose open hangs")
async def test_a_region_whose_open_was_given_up_is_assigned_to_another_server(case: Case) -> None:
    region = next(iter(case.term.env.model.transit.values()))
    await ended_by_operator(case, case.pid)
    for actor in case.actors.values():
        actor.heal()  # the open ends at last, and the region is closed
    await case.reaches(lambda: region.state is RegionState.CLOSED)
    [other] = [one for one in case.term.env.model.regions.values() if one is not region]
    await case.done(f"regions move {other.id} a")
    await case.begin_server("c")  # b would be chosen: it has no region, like c, and the first name
    case.faulty("b", open="hangs")
    await case.runs(f"regions assign {region.id}")
    await case.reaches(lambda: region.state is RegionState.OPEN)
    assert region.server is not None
    assert region.server.name != "b"


@pytest.mark.parametrize("pinned", [False, True])
def test_a_server_that_an_operator_names_is_not_passed_over(*, pinned: bool) -> None:
    @in_situation("a move whose open hangs")
    async def story(case: Case) -> None:
        region = next(iter(case.term.env.model.transit.values()))
        await ended_by_operator(case, case.pid)
        case.actors["b"].heal()
        await case.reaches(lambda: region.state is RegionState.CLOSED)
        if pinned:
            await case.done(f"regions pin {region.id} b")
        await case.done(f"regions assign {region.id}" + ("" if pinned else " b"))
        assert region.server is not None
        assert region.server.name == "b"

    story()


# -- one drain of a process


@in_situation("a drain whose close hangs")
async def test_a_second_drain_of_a_server_is_refused_with_the_pid_of_the_first(case: Case) -> None:
    refused = await case.operator.does("servers drain a")
    assert isinstance(refused, Refusal)
    assert f"procedure {case.pid} does that" in refused.text
    await ended_by_operator(case, case.pid)
    await asyncio.sleep(1)
    assert not case.live("drain_server")
    assert isinstance(await case.operator.does("servers drain a"), Procedure)


@in_situation("an enabled table")
async def test_of_two_drains_at_the_same_moment_one_is_refused(case: Case) -> None:
    case.faulty("a", close="hangs")
    found = await asyncio.gather(case.operator.does("servers drain a"), case.operator.does("servers drain a"))
    assert sorted(type(one).__name__ for one in found) == ["Procedure", "Refusal"]
    assert len(case.live("drain_server")) == 1


@in_situation("a drain whose close hangs")
async def test_a_forced_drain_is_taken_once_beside_one_that_is_not_forced(case: Case) -> None:
    assert case.server is not None
    assert isinstance(await case.operator.does("servers drain a --force"), Procedure)
    assert case.server.forced
    refused = await case.operator.does("servers drain a")
    assert isinstance(refused, Refusal)
    assert len(case.live("drain_server")) == 2
