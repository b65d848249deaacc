"""Regions whose data begins in that of others: who gets them, what their servers are told, and whose word counts."""

from __future__ import annotations

import copy

import pytest
from msgspec.structs import replace

from controller.regions.independence import TOGETHER
from controller.regions.procedures import move
from controller.regions.procedures.messages import MOVE, Move
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import HeirRow, Put
from regent_agent import protocol
from regent_agent.protocol import Accepted, Independent, Open, Owned
from state_machines.regions.entities import Region
from state_machines.regions.shapes import Source
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    at_rest,
    changes,
    creates,
    ended,
    moves,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.kit.simulation.seeds import in_child
from tests.simulation.regions.plan import parse
from tests.simulation.regions.runner import play_planted

PATIENT = replace(OPTIONS, lease_ms=100_000)
FROM = Source(9, b"", b"m", 3, 41)


class Heir(Server):
    """A server that opens regions with sources, and notes its opens; ``hangs``: no open of it ends."""

    features = (protocol.INHERIT,)
    hangs = False

    def __init__(self, term: RegionsTerm, name: str, incarnation: int = 1) -> None:
        super().__init__(term, name, incarnation)
        self.opens: list[Open] = []

    async def serve(self) -> None:
        while True:
            operations = await self.poll()
            self.opens += [one for one in operations if isinstance(one, Open)]
            if mine := [one for one in operations if not (self.hangs and isinstance(one, Open))]:
                await self.report(*map(self.do, mine))

    async def says(self, region: Region, token: int | None = None) -> list[int]:
        """Says that a region is independent; returns which it is to name again."""
        owned = Owned(region.id, region.token if token is None else token)
        found = await self.ask(Independent(self.name, self.incarnation, self.epoch, [owned]))
        assert isinstance(found, Accepted)
        return found.again


async def inherits(term: RegionsTerm, region: Region) -> None:
    """Gives a region a source, as a split does."""
    await term._store.write((), (), (Put(HeirRow(region.id, (FROM,))),))
    term.env.model.sources[region.id] = (FROM,)


async def closed(term: RegionsTerm, count: int = 4) -> list[Region]:
    """Makes a table with regions that refer to others, and are closed."""
    await ended(term, creates(term, regions=count))
    await ended(term, changes(term, "disable"))
    for region in regions_of(term):
        await inherits(term, region)
    return regions_of(term)


@virtual
async def test_a_region_with_sources_goes_to_servers_that_know_them_and_they_are_told() -> None:
    async with running(RegionDisk(), PATIENT) as term:
        old, new = Server(term, "old"), Heir(term, "new")
        async with serving(old, new):
            regions = await closed(term)
            await ended(term, changes(term, "enable"))
            assert {one.server.name for one in regions if one.server} == {"new"}
            told = {one.region: one.sources for one in new.opens if one.sources}
            assert told == {one.id: [protocol.Source(9, b"", b"m", 3, 41)] for one in regions}
            await at_rest(term)


@virtual
async def test_without_such_a_server_it_waits_for_one() -> None:
    async with running(RegionDisk(), PATIENT) as term, serving(Server(term, "old")):
        regions = await closed(term)
        enabling = await changes(term, "enable")
        await until(lambda: len(term.env.unplaced) == 4)
        async with serving(Heir(term, "new")):
            assert (await term.engine.result(enabling)).result == b"0"
            assert all(one.server and one.server.name == "new" for one in regions)


@virtual
async def test_the_word_of_the_owner_is_durable_and_another_open_has_no_sources() -> None:
    disk = RegionDisk()
    async with running(disk, PATIENT) as term:
        a = Heir(term, "a")
        async with serving(a):
            first, *others = await closed(term)
            await ended(term, changes(term, "enable"))
            assert await a.says(first) == []
            assert await a.says(first) == []
            assert sorted(term.env.model.sources) == [one.id for one in others]
            reopens = MOVE.encode(Move(first.id, "t", reopens=True))
            await ended(term, procedure(term, move.NAME, reopens))
            assert a.opens[-1].sources == []
    async with running(disk, PATIENT) as term:
        assert sorted(term.env.model.sources) == [one.id for one in others]


@virtual
async def test_a_former_owners_word_counts_nothing_nor_does_one_about_an_earlier_open() -> None:
    async with running(RegionDisk(), PATIENT) as term:
        a, b = Heir(term, "a"), Heir(term, "b")
        async with serving(a, b):
            region, *_ = await closed(term)
            await ended(term, changes(term, "enable"))
            owner, other = (a, b) if region.id in a.has else (b, a)
            early = region.token
            await ended(term, procedure(term, move.NAME, MOVE.encode(Move(region.id, "t", other.name))))
            assert await owner.says(region, early) == []
            assert await owner.says(region) == []
            assert await other.says(region, early) == []
            assert await other.says(Region(999, region.table, b"", b"", RegionState.OPEN)) == []
            assert region.id in term.env.model.sources
            assert await other.says(region) == []
            assert region.id not in term.env.model.sources


@virtual
async def test_a_word_about_an_open_that_is_not_stored_yet_is_repeated() -> None:
    async with running(RegionDisk(), PATIENT) as term:
        a = Heir(term, "a")
        async with serving(a):
            region, *_ = await closed(term)
            a.hangs = True
            pid = await changes(term, "enable")
            await until(lambda: len(a.opens) == 8)
            open_ = next(one for one in a.opens[4:] if one.region == region.id)
            assert await a.says(region, open_.token) == [region.id]
            assert await a.says(region, region.token) == [], "late, about the open before: this one copies anew"
            assert region.id in term.env.model.sources
            a.hangs = False
            await a.report(*map(a.do, a.opens[4:]))
            await term.engine.result(pid)
            assert await a.says(region, open_.token) == []
            assert region.id not in term.env.model.sources


@virtual
async def test_the_daemon_names_the_requests_that_it_knows() -> None:
    async with running(RegionDisk()) as term:
        found = await Heir(term, "a").register()
        assert isinstance(found, protocol.Registered)
        assert found.requests == ["independent", "loads"]


@virtual
async def test_a_region_that_was_opened_again_during_the_write_of_others_stays_as_it_is() -> None:
    """That open was told the sources, and the word is about the one before."""
    async with running(RegionDisk(), PATIENT) as term:
        a = Heir(term, "a")
        async with serving(a):
            regions = await closed(term, TOGETHER + 1)
            await ended(term, changes(term, "enable"))
            *_, last = words = [Owned(one.id, one.token) for one in regions]
            manager, write = term.manager, term.manager._write

            async def slowly(rows: object) -> None:
                manager._write = write  # type: ignore[method-assign]
                await ended(term, procedure(term, move.NAME, MOVE.encode(Move(last.region, "t", reopens=True))))
                await write(rows)  # type: ignore[arg-type]

            manager._write = slowly  # type: ignore[method-assign]
            assert await a.ask(Independent(a.name, a.incarnation, a.epoch, words)) == Accepted()
            assert a.opens[-1].sources, "as it was opened again, it referred to others"
            assert list(term.env.model.sources) == [last.region]


class Restored:
    """A store that goes back to a copy, in which server a has a region that refers to others.

    ``token``: of that open; ``later``: of the one at server b that came after the copy.
    """

    def __init__(self) -> None:
        self.disk = RegionDisk()
        self.region = self.token = self.later = 0

    async def begin(self) -> None:
        async with running(self.disk, PATIENT) as term, serving(a := Heir(term, "a"), b := Heir(term, "b")):
            [region] = await closed(term, 1)
            await ended(term, changes(term, "enable"))
            await ended(term, moves(term, region, "a"))
            kept = copy.deepcopy(vars(self.disk))
            self.region, self.token = region.id, region.token
            await ended(term, moves(term, region, "b"))
            self.later = region.token
            assert (a.has, bool(b.opens[-1].sources)) == ({}, True)
        vars(self.disk).update(kept)

    async def counts(self, term: RegionsTerm, a: Heir) -> bool:
        """Has server a say that the region is independent, as it had it; returns whether that is stored."""
        assert await a.says(term.env.model.regions[self.region], self.token) == []
        return self.region not in term.env.model.sources


@pytest.mark.parametrize(("listed", "counts"), [(True, True), (False, False)], ids=["has it", "does not list it"])
@virtual
async def test_in_a_restored_store_the_word_of_an_owner_counts_where_it_has_the_region_still(
    listed: bool, counts: bool
) -> None:
    """It says so again; a region that it does not list was opened elsewhere since, and told the sources again."""
    store = Restored()
    await store.begin()
    async with running(store.disk, PATIENT) as term:
        a = Heir(term, "a")
        await a.register(*([Owned(store.region, store.token)] if listed else []))
        assert await store.counts(term, a) is counts


@virtual
async def test_in_a_restored_store_no_word_counts_of_a_region_that_another_server_has_opened_since() -> None:
    """Its former owner was cut off, and has the region still, as it believes."""
    store = Restored()
    await store.begin()
    async with running(store.disk, PATIENT) as term:
        a, b = Heir(term, "a"), Heir(term, "b")
        await a.register(Owned(store.region, store.token))
        await b.register(Owned(store.region, store.later))
        assert not await store.counts(term, a)


SAID_BEFORE_A_RESTORE = """
seed 1
servers good good
1.000 create t1 2 2
4.000 drop-independent s1 4
4.000 drop-independent s2 4
5.000 merge 0 2
8.000 copy-store
14.000 restore-store 0.5
20.000 create t2 2 1
"""


def test_what_a_restored_store_does_not_know_is_said_again_and_nothing_stays_behind() -> None:
    assert in_child(play_planted, parse(SAID_BEFORE_A_RESTORE)).violation is None
