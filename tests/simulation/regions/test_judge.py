"""The judge of the simulation: a result that a server may forget was durable, whatever came of its procedure since."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest import mock

from regent_agent.protocol import FAILED_OPEN, OPENED, Accepted, Open, Report, Result
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.invariants import Judge
from tests.simulation.regions.kit import Server, creates, running, virtual
from tests.simulation.regions.mutations import MUTATIONS

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
    world: Any = SimpleNamespace(disk=disk, spoiled=set(), term=None, note=lambda _: None)
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
