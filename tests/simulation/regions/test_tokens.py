"""Fence tokens, claims and procedures of a region: each has one owner, and the judge that says so."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from controller.regions.procedures.messages import MANY, MOVE, TRANSIT, Many, Move, Transit
from controller.regions.term import RegionsTerm
from regent_agent.protocol import FAILED_OPEN, OPENED, Accepted, Open, Owned, Report, Result
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState, ServerState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import Server, creates, ended, procedure, regions_of, running, serving, until, virtual
from tests.kit.simulation.seeds import in_child
from tests.simulation.regions.invariants import Judge
from tests.simulation.regions.mutations import MUTATIONS
from tests.simulation.regions.plan import RegionPlan, parse
from tests.simulation.regions.runner import play_planted


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


LOST = """
seed 1
servers good good good
daemons 2
placement round_robin
0.500 create t1 2 5
4.000 {fault}
4.000 break-link s1 d2 15
4.000 break-link d2 s1 15
4.000 break-link s2 d1 15
4.000 break-link s3 d1 15
"""


def test_a_server_is_not_kept_by_the_daemon_whose_lock_no_one_heeds() -> None:
    for fault in ("ignore-locks", "lose-claim"):
        plan = parse(LOST.format(fault=fault))
        assert in_child(play_planted, plan).violation is None
        violation = in_child(play_planted, plan, "go-on-after-a-claim-that-was-lost").violation
        assert violation is not None
        assert violation.invariant == "NoDoubleAssignment"


Other = Callable[[Region], tuple[str, bytes]]
OTHERS: list[Other] = [
    lambda region: ("move", MOVE.encode(Move(region.id, "t", "s3"))),
    lambda region: ("move", MOVE.encode(Move(region.id, "t", reopens=True))),
    lambda region: ("assign", TRANSIT.encode(Transit(region.id, "t"))),
    lambda region: ("close", TRANSIT.encode(Transit(region.id, "t"))),
]


@pytest.mark.seed("S1-23")
@pytest.mark.seed("S1-1")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("first", [True, False])
def test_a_crash_and_an_operator_never_move_a_region_both(other: Other, first: bool) -> None:
    """The batch of a crash is dispatched at once: nobody else may have begun, or begin, in between."""

    @virtual
    async def test() -> None:
        async with running(RegionDisk()) as term:
            servers = [Server(term, f"s{n}") for n in (1, 2, 3)]
            async with serving(*servers):
                await ended(term, creates(term))
                [region] = regions_of(term)
                assert region.server is not None
                owner = next(one for one in servers if one.name == region.server.name)
                owner.has.clear()
                region.server.state = ServerState.FENCED
                batch = "assign_many", MANY.encode(Many("t", "crash", ids=(region.id,)))
                both = [batch, other(region)] if first else [other(region), batch]
                pids = await asyncio.gather(*(procedure(term, *one) for one in both))
                for pid in pids:
                    await term.engine.result(pid)
                await asyncio.sleep(1.0)
                agrees(term, region, servers)

    test()


def agrees(term: RegionsTerm, region: Region, servers: list[Server]) -> None:
    """Checks that the one that is the owner, and no other server, has the region."""
    assert not region.pid
    assert not list(term.engine.live())
    having = {one.name: one.has[region.id] for one in servers if region.id in one.has}
    if region.state is RegionState.CLOSED:
        assert not having
    else:
        assert region.server is not None
        assert having == {region.server.name: region.token}


TOO_EARLY = "accept-reports-before-they-are-durable"


@virtual
async def test_a_failed_open_that_is_sent_again_before_its_report_is_accepted_was_durable() -> None:
    assert not await _judged()


@virtual
async def test_a_failed_open_that_is_accepted_before_it_is_durable_is_found() -> None:
    with ExitStack() as stack:
        MUTATIONS[TOO_EARLY](stack)
        assert await _judged() == {"AcceptedIsDurable"}


async def _judged() -> set[str]:
    """Reports an open that failed with one that takes longer to be stored; returns the invariants that fail."""
    disk, failed = RegionDisk(), set[str]()
    plan, storage = RegionPlan(0), SimpleNamespace()
    world: Any = SimpleNamespace(disk=disk, spoiled=set(), term=None, note=lambda _: None, storage=storage, plan=plan)
    world.violated = lambda invariant, _: failed.add(invariant)
    judge = Judge(world)
    with judge.watching():
        async with running(disk) as term:
            server = Server(term, "s1")
            await server.register()
            await creates(term, regions=2)
            opens: list[Open] = []
            while len(opens) < 2:
                opens += [one for one in await server.poll() if isinstance(one, Open)]
            first, second = opens
            wake_all = term.engine.wake_all

            def later(pids: Iterable[int]) -> None:
                wake_all(pid for pid in pids if pid != second.pid)

            with mock.patch.object(term.engine, "wake_all", later):
                results = [Result(first.pid, FAILED_OPEN), Result(second.pid, OPENED, 1)]
                report = Report("s1", 1, server.epoch, results, server.taken)
                response = asyncio.ensure_future(server.ask(report))
                again = await server.operation()
                assert isinstance(again, Open)
                assert (again.pid, again.token > first.token) == (first.pid, True)
            term.engine.wake(second.pid)
            accepted = await response
            assert isinstance(accepted, Accepted)
            assert not accepted.again
            judge.accepted(report, accepted)
    return failed
