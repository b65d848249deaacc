"""Fence tokens grow from owner to owner, and a server that was left does not open a region later."""

from __future__ import annotations

import asyncio
import copy

import pytest

from controller.regions.kinds.messages import TRANSIT, Transit
from regent_agent.protocol import FAILED_OPEN, Open, Owned, Result
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import Server, creates, ended, procedure, regions_of, running, serving, until, virtual


@pytest.mark.seed("S1-48", "S1-74", "S1-87")
@virtual
async def test_the_server_after_one_that_failed_or_crashed_has_a_higher_token() -> None:
    async with running(RegionDisk()) as term:
        first, second, third = (Server(term, f"s{n}") for n in (1, 2, 3))
        await first.register()
        made = asyncio.ensure_future(ended(term, creates(term)))
        one = await first.operation()
        assert isinstance(one, Open)
        await second.register()
        await first.report(Result(one.pid, FAILED_OPEN))
        two = await second.operation()
        assert isinstance(two, Open)
        assert (two.pid, two.token > one.token) == (one.pid, True)
        async with serving(third):  # the first two are silent, and crash
            await made
        [region] = regions_of(term)
        assert region.server is not None
        assert region.server.name == "s3"
        assert region.token > two.token


@virtual
async def test_a_procedure_that_waited_while_a_later_one_opened_the_region_has_no_lower_token() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "s1")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        transit = TRANSIT.encode(Transit(region.id, "t"))
        closed = await procedure(term, "close", transit)
        await term.engine.result(closed)
        region.token = closed + 1  # as if the assign that follows had waited while another one opened the region
        assigned = await procedure(term, "assign", transit)
        await term.engine.result(assigned)
        assert assigned == closed + 1
        assert region.token > assigned


@pytest.mark.seed("S1-75")
@virtual
async def test_a_daemon_that_fails_over_knows_the_token_of_an_open_under_way() -> None:
    disk = RegionDisk()
    server = None
    async with running(disk) as term:
        server = Server(term, "s1")
        await server.register()
        pid = await creates(term)
        one = await server.operation()
        assert isinstance(one, Open)
        await server.report(Result(one.pid, FAILED_OPEN))
        two = await server.operation()
        assert isinstance(two, Open)
        assert two.token > one.token
    async with running(disk) as term:
        await asyncio.sleep(1.5)  # the state of the region is old, so that a difference counts
        server.term = term
        await server.register(Owned(two.region, two.token))
        assert await server.operation() == two
        assert not any(one.kind == "close_stray" for one in term.engine.live())
        assert pid
        await until(lambda: regions_of(term))


@virtual
async def test_an_open_that_a_copy_has_waiting_repeats_no_token_though_no_server_shows_the_copy() -> None:
    """The term went on after the copy was made, and opened the region with the pid as its token."""
    disk = RegionDisk()
    async with running(disk) as term:
        made = asyncio.ensure_future(ended(term, creates(term)))
        await until(lambda: term.env.unplaced)
        kept = copy.deepcopy(vars(disk))
        async with serving(Server(term, "s1")):
            await made
            [region] = regions_of(term)
            served = region.token
    vars(disk).update(kept)
    async with running(disk) as term, serving(Server(term, "s2")):
        [region] = regions_of(term)
        await until(lambda: region.state is RegionState.OPEN)
        assert region.token > served
