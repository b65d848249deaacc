"""Lists of regions against the daemon's model: only a state older than a second is contradicted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from controller.regions import comparison
from controller.regions.procedures import move
from controller.regions.procedures.messages import MOVE, Move
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Accepted, Owned
from state_machines.procedures.record import Record
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.states import ServerState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import (
    Server,
    creates,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)


class Dies(MemoryRegionStore):
    """A store whose daemon dies once ``part`` is gone from it: nothing is written behind that."""

    part = 0
    over = False

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        if self.over:
            await asyncio.get_running_loop().create_future()
        deletes = tuple(deletes)
        await super().write(puts, deletes, rows)
        self.over = self.part in deletes


def is_online(term: RegionsTerm) -> bool:
    return term.env.model.servers["s1", 1].state is ServerState.ONLINE


@pytest.mark.seed("S3-17", "S3-36", "S3-37", "S3-38")
@virtual
async def test_a_list_without_a_region_counts_only_once_the_region_was_open_for_a_second() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "s1")
        async with serving(server):
            await ended(term, creates(term))
            await asyncio.sleep(0.9)
            empty = protocol.Regions("s1", 1, server.epoch, [])
            assert await server.ask(empty) == Accepted()
            assert is_online(term)
            await asyncio.sleep(0.3)
            full = protocol.Regions("s1", 1, server.epoch, lists(regions_of(term)))
            assert await server.ask(full) == Accepted()
            assert is_online(term)
            assert await server.ask(empty) == Accepted()
            assert not is_online(term)


@pytest.mark.seed("S3-9", "S3-16", "S3-17", "S3-36", "S3-38")
@virtual
async def test_a_region_that_is_elsewhere_is_closed_at_the_server_that_lists_it() -> None:
    async with running(RegionDisk()) as term:
        first, second = Server(term, "s1"), Server(term, "s2")
        async with serving(first):
            await ended(term, creates(term))
            async with serving(second):
                await asyncio.sleep(1.5)
                [region] = regions_of(term)
                second.has[region.id] = region.token - 1
                listed = protocol.Regions("s2", 1, second.epoch, [Owned(region.id, region.token - 1)])
                await second.ask(listed)
                await until(lambda: region.id not in second.has)
                assert first.has == {region.id: region.token}
                assert str(region.server) == "s1,1"


def test_no_region_goes_to_another_server_while_one_lists_it_and_is_to_close_only_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "STRAYS_TOGETHER", 2)

    @virtual
    async def story() -> None:
        async with running(RegionDisk()) as term:
            async with serving(Server(term, "s1")):
                await ended(term, creates(term, regions=5))
                await asyncio.sleep(1.5)
                await (stray := Server(term, "stray")).register()
                term.env.model.marks.put(Mark(MarkKind.CORDON, "stray"))
                stray.has = {one.id: one.token - 1 for one in regions_of(term)}
                await has(stray)
            closes: list[protocol.Operation] = []
            async with serving(other := Server(term, "s2")):
                for _ in range(20):  # until s1 is fenced, and for a while
                    closes += await stray.poll()
                assert ("s1", 1) not in term.env.model.servers or not is_online(term)
                assert (len(closes), other.has) == (2, {})
                while stray.has:
                    await stray.report(*map(stray.do, closes))
                    assert not other.has.keys() & stray.has.keys()
                    closes = await stray.poll() if stray.has else []
                    await has(stray)
                await until(lambda: other.has == {one.id: one.token for one in regions_of(term)})

    story()


async def has(server: Server) -> None:
    """Lists what a server has."""
    owned = [Owned(*one) for one in server.has.items()]
    assert await server.ask(protocol.Regions(server.name, 1, server.epoch, owned)) == Accepted()


@virtual
async def test_a_list_that_comes_together_with_polls_and_reports_surprises_nobody() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "s1")
        async with serving(server):
            made = asyncio.ensure_future(ended(term, creates(term, regions=20)))
            while not made.done():
                owned = [Owned(id_, token) for id_, token in server.has.items()]
                await server.ask(protocol.Regions("s1", 1, server.epoch, owned))
                await asyncio.sleep(0.003)
            await asyncio.sleep(2.0)
            owned = [Owned(id_, token) for id_, token in server.has.items()]
            await server.ask(protocol.Regions("s1", 1, server.epoch, owned))
            assert is_online(term)
            assert len(owned) == 20
            assert not list(term.engine.live())


@virtual
async def test_a_server_lists_its_regions_from_time_to_time() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        asked, ends_s = 0, asyncio.get_running_loop().time() + 200
        while asyncio.get_running_loop().time() < ends_s:
            found = await server.ask(protocol.Poll("a", 1, server.epoch, server.taken))
            assert isinstance(found, protocol.Operations)
            asked += found.list_regions
        assert asked == 3


@virtual
async def test_a_server_that_closed_a_region_by_a_bypassed_part_keeps_the_others_where_the_whole_goes_on() -> None:
    """The end of the part is stored, that of its parent is not yet, as the daemon dies."""
    disk = RegionDisk()
    async with running(disk) as term, serving(server := Server(term, "s1")):
        await ended(term, creates(term, regions=2))
        has = dict(server.has)
    store = Dies(disk)
    async with running(disk, store=lambda _: store) as term:
        server = Server(term, "s1")
        await server.register(*(Owned(*one) for one in has.items()))
        region, _ = regions_of(term)
        moved = await procedure(term, move.NAME, MOVE.encode(Move(region.id, "t")))
        closing = await server.operation()
        server.do(closing)  # the daemon dies ahead of its report
        store.part = closing.pid
        assert await term.engine.bypass(closing.pid)
        await until(lambda: store.over)
    async with running(disk) as term:
        assert [one.pid for one in term.engine.live()] == [moved], "the bypass has not reached its end"
        server = Server(term, "s1")
        server.has = {id_: token for id_, token in has.items() if id_ != region.id}
        await asyncio.sleep(1.1)
        await server.register(*(Owned(*one) for one in server.has.items()))
        polls = asyncio.ensure_future(server.serve())
        await until(lambda: server.has.keys() == has.keys())
        assert is_online(term)
        polls.cancel()
