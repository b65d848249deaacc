"""Moments of a split that a quick store hides: what holds between its writes, and where it gives up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from controller.regions.operator.counts import stranded
from controller.regions.procedures import merge, reshaping, split
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Changes, Close, Open, Registered, Route
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.shapes import Inheriting, merges, one_inheriting, splits
from tests.kit.regions.world import (
    OPTIONS,
    at_rest,
    creates,
    done,
    ended,
    known,
    moves,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

S = RegionState


class Slow(MemoryRegionStore):
    """A store whose writes take long. ``begins``: gets each record that is about to be written."""

    def __init__(self, disk: RegionDisk) -> None:
        super().__init__(disk)
        self.begins: Callable[[Record], object] = bool

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        puts = list(puts)
        for one in puts:
            self.begins(one)
        await asyncio.sleep(0.1)
        await super().write(puts, deletes, rows)


@asynccontextmanager
async def slowly(regions: int = 1) -> AsyncIterator[tuple[RegionsTerm, Slow, Inheriting, list[Region]]]:
    """Runs a term on a slow store, with regions of a server that serves."""
    disk = RegionDisk()
    store = Slow(disk)
    async with (
        running(disk, replace(OPTIONS, lease_ms=100_000), store=lambda _: store) as term,
        serving(server := Inheriting(term, "a")),
    ):
        await ended(term, creates(term, regions=regions))
        server.told.clear()
        yield term, store, server, list(regions_of(term))


@pytest.mark.parametrize("kind", ["split", "merge"])
def test_an_abort_before_a_close_is_sent_leaves_regions_that_were_open_all_the_time(kind: str) -> None:
    """It comes while the write is under way after which the regions are to be closed."""

    @virtual
    async def story() -> None:
        async with slowly(2) as (term, store, server, parents):
            aborts = list[asyncio.Task[bool]]()

            def begins(record: Record) -> None:
                if record.kind == kind and record.step == closes and not aborts:
                    aborts.append(asyncio.ensure_future(term.engine.abort(record.pid)))

            closes = {"split": split.CLOSE, "merge": merge.CLOSE}[kind]
            store.begins = begins
            first, *_ = parents
            pid = await (splits(term, first, b"1") if kind == "split" else merges(term, parents))
            reached = set[RegionState]()
            while not term.engine.records[pid].state.is_final:
                reached.add(first.state)
                await asyncio.sleep(0.01)
            assert await aborts[0]
            assert reached == {S.OPEN, {"split": S.SPLITTING, "merge": S.MERGING}[kind]}
            assert ([one.state for one in parents], server.told) == ([S.OPEN] * 2, [])
            await at_rest(term)
            store.begins = bool
            await ended(term, splits(term, first, b"1"))

    story()


@virtual
async def test_heirs_have_a_procedure_from_their_first_moment_on() -> None:
    """One without would count as left behind, and a look at what nothing moves would take it."""
    async with slowly() as (term, _, _, (parent,)):
        pid = await splits(term, parent, b"m")
        await until(lambda: len(regions_of(term)) == 2)
        assert [one.pid for one in regions_of(term)] == [pid, pid]
        assert stranded(term.env.model).total() == 0
        await ended(term, known(pid))


@virtual
async def test_followers_that_know_the_parent_as_closed_are_told_that_it_is_gone() -> None:
    async with slowly() as (term, _, _, (parent,)):
        pid = await splits(term, parent, b"m")
        await until(lambda: parent.state is S.CLOSED)
        await asyncio.sleep(0.01)
        before = term.env.routes.change
        assert regions_of(term) == [parent]
        await until(lambda: len(regions_of(term)) == 2)
        told = await term.service.handle(protocol.Follow(term.service.epoch, before, ["t"]))
        assert isinstance(told, Changes)
        assert told.routes[0] == Route(parent.id, "t", b"", b"", gone=True)
        await ended(term, known(pid))


@pytest.mark.parametrize("placement", ["retain", "round_robin", "random"])
def test_the_first_heir_opens_at_the_server_of_its_parent_although_another_one_has_more_room(placement: str) -> None:
    @virtual
    async def story() -> None:
        options = replace(OPTIONS, lease_ms=100_000)
        async with running(RegionDisk(), options, placement=placement) as term, serving(Inheriting(term, "a")):
            await ended(term, creates(term, regions=6))
            parents = list(regions_of(term))
            async with serving(*(Inheriting(term, name) for name in "bcdef")):
                for one in parents:
                    await ended(term, splits(term, one, one.start + b"1"))
                firsts = [one for one in regions_of(term) if one.start in {parent.start for parent in parents}]
                assert [str(one.server) for one in firsts] == ["a,1"] * 6

    story()


@virtual
async def test_a_split_whose_region_loses_its_server_at_every_close_is_undone_after_some_tries() -> None:
    async with one_inheriting(RegionDisk()) as (term, server, (parent,)):
        pid = await splits(term, parent, b"m")
        tries = 0
        while True:
            assert isinstance(await server.operation(), Close)
            term.manager.expire(term.env.model.servers[server.name, server.incarnation], "it is gone")
            server = Inheriting(term, "a", server.incarnation + 1)
            assert isinstance(await server.register(), Registered)
            opening = await server.operation()
            assert isinstance(opening, Open)
            await server.report(done(opening))
            if term.engine.records[pid].state.is_final:
                break
            tries += 1
            assert tries <= reshaping.TRIES_MAX
        record = await term.engine.result(pid)
        assert (record.state, tries) == (State.ROLLEDBACK, reshaping.TRIES_MAX)
        assert "no owner has closed all regions itself, 10 times: see 'regent servers list'" in record.error
        await until(lambda: parent.state is S.OPEN)
        assert regions_of(term) == [parent]
        async with serving(server):
            await ended(term, moves(term, parent, "a"))
            await at_rest(term)
