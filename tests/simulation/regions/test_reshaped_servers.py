"""Splits and merges whose servers crash or are drained, and whose table is disabled or deleted, after any write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Final

import pytest

from controller.regions.procedures import servers
from controller.regions.procedures.messages import CRASH, Crash
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import Inheriting
from tests.kit.regions.world import at_rest, changes, creates, ended, procedure, regions_of, running, serving, virtual
from tests.simulation.regions.test_reshaped_beside import RESHAPES, WRITES_MAX, Calling

S = RegionState
Happens = Callable[[RegionsTerm], Awaitable[object]]


async def crashes(term: RegionsTerm) -> None:
    """The server of the first region is dealt with as crashed, though it polls."""
    server = term.env.model.servers.get(("a", 1))
    if server is not None:
        term.manager.expire(server, "an operator wants that")


async def drains(term: RegionsTerm) -> None:
    await term.engine.result(await procedure(term, servers.DRAIN, CRASH.encode(Crash("a", 1))))


async def disables(term: RegionsTerm) -> None:
    await ended(term, changes(term, "disable"))


async def deletes(term: RegionsTerm) -> None:
    await ended(term, changes(term, "disable"))
    await ended(term, changes(term, "delete"))


HAPPENS: Final[dict[str, Happens]] = {"crash": crashes, "drain": drains, "disable": disables, "delete": deletes}


async def played(shape: str, what: str, writes: int) -> tuple[bool, Record]:
    """Has something happen after so many writes of a split or a merge; returns whether that had ended, and its record.

    At the end each key of an enabled table has one region, open at one server, and each region its sources.
    """
    stores: list[Calling] = []

    def store(disk: RegionDisk) -> Calling:
        stores.append(Calling(disk))
        return stores[-1]

    async with running(disk := RegionDisk(), store=store) as term:
        one, other = Inheriting(term, "a"), Inheriting(term, "b")
        async with serving(other):
            serves = serving(one)
            await serves.__aenter__()
            await ended(term, creates(term, regions=2))
            begun: list[asyncio.Future[object]] = []
            [opened] = stores
            opened.left, opened.then = writes, lambda: begun.append(asyncio.ensure_future(HAPPENS[what](term)))
            record = await term.engine.result(await RESHAPES[shape](term))
            if was_over := not begun:
                opened.then()
            await begun[0]
            if what == "crash":
                await serves.__aexit__(None, None, None)
                one.has.clear()
            await at_rest(term)
            check(term, disk, {one_: {**one_.has} for one_ in (one, other)}, what)
            if what != "crash":
                await serves.__aexit__(None, None, None)
        return was_over, record


def check(term: RegionsTerm, disk: RegionDisk, has: dict[Inheriting, dict[int, int]], what: str) -> None:
    """Checks keys, owners and rows."""
    held = {region: (server.name, token) for server, some in has.items() for region, token in some.items()}
    assert sum(map(len, has.values())) == len(held), "two servers have one region"
    if what == "delete":
        assert (term.env.model.tables, held, disk.regions, disk.small) == ({}, {}, {}, {})
        return
    regions = regions_of(term)
    assert (regions[0].start, regions[-1].end) == (b"", b"")
    assert all(before.end == after.start for before, after in pairwise(regions))
    assert held == {one.id: (one.server.name, one.token) for one in regions if one.server is not None}
    assert disk.regions.keys() == {one.id for one in regions}
    assert [one for one in regions if (one.state is S.OPEN) is (what == "disable")] == []
    heirs = {heir for parent in term.env.model.parents.values() for heir in parent.heirs}
    assert term.env.model.sources.keys() == heirs <= {one.id for one in regions}


@pytest.mark.parametrize("shape", RESHAPES)
@pytest.mark.parametrize("what", HAPPENS)
def test_what_happens_after_any_write_leaves_each_key_in_one_region(what: str, shape: str) -> None:
    states: set[State] = set()

    @virtual
    async def story() -> None:
        for writes in range(1, WRITES_MAX):
            was_over, record = await played(shape, what, writes)
            states.add(record.state)
            if was_over:
                return
        raise AssertionError("it never ends")

    story()
    assert State.SUCCESS in states, "what happens last finds it done"
