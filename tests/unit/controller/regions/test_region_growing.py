"""Regions that grow are split by themselves, small neighbours are merged: once, paced, rested, and never in trouble."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from controller.regions.environment import Options
from controller.regions.growing import LOOK_S
from controller.regions.operator import growth as told
from controller.regions.procedures.messages import SHAPE
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Owned, RegionLoad
from state_machines.procedures.record import Record
from state_machines.regions.damage import Gap
from state_machines.regions.entities import Region
from state_machines.regions.growth import Bar
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.states import TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import Inheriting
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    at_rest,
    creates,
    ended,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

GROWS = replace(
    OPTIONS, lease_ms=100_000, split_size_bytes=1_000, merge_size_bytes=500, split_rest_ms=30_000, reshapes_max=2
)
REST_S = 30.0


class Growing(Inheriting):
    """A server whose regions have the sizes that the test says; the heirs of one have half of its size each."""

    def __init__(self, term: RegionsTerm, name: str, incarnation: int = 1) -> None:
        super().__init__(term, name, incarnation)
        self.sizes: dict[int, int] = {}
        self.hangs = False

    async def serve(self) -> None:
        """Polls for ever, and does what is wanted; one that hangs does nothing."""
        while True:
            operations = await self.poll(takes=not self.hangs)
            if operations and not self.hangs:
                await self.report(*map(self.do, operations))

    async def tell(self, *loads: RegionLoad) -> None:
        """Reports loads; without any the sizes of all its regions that have one."""
        found = loads or tuple(RegionLoad(one, size_bytes=self.sizes[one]) for one in self.has if one in self.sizes)
        await self.ask(protocol.Loads(self.name, self.incarnation, self.epoch, list(found)))


@asynccontextmanager
async def growing(
    regions: int = 4, options: Options = GROWS, disk: RegionDisk | None = None
) -> AsyncIterator[tuple[RegionsTerm, Growing, list[Region]]]:
    """Runs a term with the regions of a table at one server; no look comes by itself in the first seconds."""
    async with running(disk or RegionDisk(), options) as term:
        server = Growing(term, "a")
        async with serving(server):
            await ended(term, creates(term, regions=regions))
            found = list(regions_of(term))
            for at, one in enumerate(found):
                server.keys[one.id] = b"%s5" % (one.start or b"0") if at < regions - 1 else b"zz"
            yield term, server, found


def shapes(term: RegionsTerm, kind: str) -> list[Record]:
    """Returns the procedures of a kind, the first one first."""
    return [record for _, record in sorted(term.engine.records.items()) if record.kind == kind]


def parents(records: Sequence[Record]) -> list[tuple[int, ...]]:
    return [SHAPE.decode(one.data).parents for one in records]


async def looked(term: RegionsTerm) -> None:
    """Has one look made, and what it begins end."""
    await term.growth.look()
    await until(lambda: not list(term.engine.live()) and not term.engine.requests)


@virtual
async def test_a_region_that_has_grown_is_split_by_a_look_of_its_own() -> None:
    async with growing() as (term, server, regions):
        server.sizes = {regions[1].id: 1_000, regions[2].id: 999}
        await server.tell()
        begun_s = term.env.clock()
        await until(lambda: len(regions_of(term)) == 5)
        assert term.env.clock() - begun_s <= LOOK_S + 1
        [record] = shapes(term, "split")
        task = SHAPE.decode(record.data)
        assert (task.parents, task.key, task.why) == ((regions[1].id,), b"400000005", "it has 1.0 kB")
        assert [one.caller.principal for one in shapes(term, "split")] == ["regent"]
        await at_rest(term)


@virtual
async def test_most_go_first_and_the_others_wait_for_room() -> None:
    async with growing() as (term, server, regions):
        server.sizes = {one.id: size for one, size in zip(regions, (1_000, 4_000, 3_000, 2_000), strict=True)}
        await server.tell()
        await term.growth.look()
        assert term.growth.above == {Bar.BUDGET: 2}
        await until(lambda: len(regions_of(term)) == 6)
        assert parents(shapes(term, "split")) == [(regions[1].id,), (regions[2].id,)]
        await looked(term)
        assert parents(shapes(term, "split"))[2:] == [(regions[3].id,), (regions[0].id,)]


@virtual
async def test_so_many_begin_in_a_minute() -> None:
    async with growing(options=replace(GROWS, reshapes_per_minute_max=1)) as (term, server, regions):
        server.sizes = {one.id: 5_000 for one in regions}
        await server.tell()
        await until(lambda: len(regions_of(term)) == 5)
        begun_s = term.env.clock()
        await until(lambda: term.env.clock() - begun_s > 35)
        assert len(regions_of(term)) == 5
        await until(lambda: len(regions_of(term)) == 6)
        assert term.env.clock() - begun_s > 45


@virtual
async def test_heirs_rest_and_are_neither_split_nor_merged_until_then() -> None:
    async with growing() as (term, server, regions):
        server.sizes = {regions[1].id: 2_000}
        await server.tell()
        await until(lambda: len(regions_of(term)) == 5)
        await at_rest(term)
        heirs = [one for one in regions_of(term) if one not in regions]
        made_s = term.env.clock()
        server.sizes = dict.fromkeys((one.id for one in heirs), 100)
        await server.tell()
        await looked(term)
        assert [one.id in term.env.model.sources for one in heirs] == [True, True]
        await server.independent(*heirs)
        await server.tell()
        await looked(term)
        assert shapes(term, "merge") == [], "they rest"
        await until(lambda: shapes(term, "merge"))
        assert term.env.clock() - made_s >= REST_S - 1
        assert parents(shapes(term, "merge")) == [tuple(one.id for one in heirs)]
        assert SHAPE.decode(shapes(term, "merge")[0].data).why == "they have 200 B together"
        await until(lambda: len(regions_of(term)) == 4)


@virtual
async def test_of_three_small_neighbours_two_are_merged_at_a_time() -> None:
    async with growing() as (term, server, regions):
        server.sizes = {regions[0].id: 200, regions[1].id: 50, regions[2].id: 100, regions[3].id: 451}
        await server.tell()
        await looked(term)
        assert parents(shapes(term, "merge")) == [(regions[1].id, regions[2].id)], "the smallest two"
        assert len(regions_of(term)) == 3


@virtual
async def test_a_split_without_a_key_fails_once_in_a_rest_and_says_so() -> None:
    async with growing() as (term, server, regions):
        server.keys.clear()
        server.sizes = {regions[0].id: 1_500}
        await server.tell()
        await looked(term)
        [record] = shapes(term, "split")
        assert record.error
        begun_s = term.env.clock()
        await until(lambda: term.env.clock() - begun_s > REST_S - 5)
        assert len(shapes(term, "split")) == 1
        assert term.growth.above == {Bar.RESTS: 1}
        text = told.of_region(regions[0], term.growth, term.env)
        assert (
            "it has 1.5 kB, and is to be split (size); that does not begin now: it rests after one that failed" in text
        )
        assert record.error in text
        server.keys[regions[0].id] = b"1"
        await until(lambda: len(regions_of(term)) == 5)
        assert term.env.clock() - begun_s >= REST_S - 1
        assert len({one.caller.nonce for one in shapes(term, "split")}) == 2


@asynccontextmanager
async def taken_over(disk: RegionDisk, server: Growing, options: Options) -> AsyncIterator[RegionsTerm]:
    """Runs the next term, at which the same process registers with what it has."""
    async with running(disk, options) as term:
        server.term = term
        await server.register(*(Owned(region, token) for region, token in server.has.items()))
        serves = asyncio.ensure_future(server.serve())
        await until(lambda: term.env.places)
        yield term
        serves.cancel()


@virtual
async def test_a_failover_goes_on_with_a_split_and_begins_no_second_one() -> None:
    disk, options = RegionDisk(), replace(GROWS, split_rest_ms=0)
    async with growing(options=options, disk=disk) as (term, server, regions):
        server.sizes = {regions[1].id: 1_500}
        await server.tell()
        closes, server.hangs = regions[1].id, True
        await term.growth.look()
        await until(lambda: shapes(term, "region_work"))
    async with taken_over(disk, server, options) as term:
        await server.tell(RegionLoad(closes, size_bytes=1_500))
        for _ in range(3):
            await term.growth.look()
        assert parents(shapes(term, "split")) == [(closes,)]
        server.hangs = False
        await until(lambda: len(regions_of(term)) == 5)
        await at_rest(term)
        assert len(shapes(term, "split")) == 1


@virtual
async def test_all_regions_rest_after_a_failover_as_it_is_not_known_when_they_were_made() -> None:
    disk = RegionDisk()
    async with growing(disk=disk) as (term, server, regions):
        grown = regions[2].id
    async with taken_over(disk, server, GROWS) as term:
        begun_s = term.env.clock()
        await server.tell(RegionLoad(grown, size_bytes=1_500))
        await term.growth.look()
        assert (shapes(term, "split"), term.growth.above) == ([], {Bar.RESTS: 1})
        await until(lambda: len(regions_of(term)) == 5)
        assert term.env.clock() - begun_s >= REST_S - 2


@virtual
async def test_options_of_a_table_go_before_the_settings() -> None:
    async with growing() as (term, server, regions):
        term.env.model.tables["t"].options["regent.split_size_bytes"] = "0"
        server.sizes = {one.id: 5_000 for one in regions}
        await server.tell()
        await looked(term)
        assert (shapes(term, "split"), term.growth.above) == ([], {})
        assert told.of_table(term.env.model.tables["t"], term.growth, term.env).startswith("no region is split; neigh")
        term.env.model.tables["t"].options["regent.split_size_bytes"] = "5001"
        assert "a region is split from 5.0 kB on" in told.of_table(term.env.model.tables["t"], term.growth, term.env)
        await looked(term)
        assert shapes(term, "split") == []


@virtual
async def test_busy_regions_are_split_where_the_policy_says_so_and_before_large_ones() -> None:
    options = replace(GROWS, split_requests_per_s=100, reshapes_max=1)
    async with growing(options=options) as (term, server, regions):
        for reads in (0, 6_000):
            await server.tell(
                RegionLoad(regions[0].id, reads, 0, 10), RegionLoad(regions[1].id, 0, 0, 9_000),
                RegionLoad(regions[2].id, reads // 2, 0, 10),
            )  # fmt: skip
            began_s = term.env.clock()
            if not reads:
                server.keys[regions[1].id] = b""
                await until(lambda began_s=began_s: term.env.clock() - began_s >= 40)  # type: ignore[misc]
        server.keys[regions[1].id] = b"50"
        await term.growth.look()
        await until(lambda: len(regions_of(term)) == 5)
        [*_, latest] = shapes(term, "split")
        assert SHAPE.decode(latest.data).parents == (regions[0].id,)
        assert SHAPE.decode(latest.data).why.endswith("requests a second")


TROUBLES = (
    "crash",
    "absent",
    "features",
    "change",
    "pinned",
    "few",
    "missing",
    "transit",
    "silent",
    "suspended",
    "gap",
)


OF_TABLES = ("features", "change", "gap")


def make_trouble(term: RegionsTerm, trouble: str) -> None:
    """Makes what keeps the daemon from changing tables."""
    env = term.env
    match trouble:
        case "few":
            env.places = False
        case "missing":
            env.options = replace(env.options, servers_min=3)
        case "transit":
            env.options = replace(env.options, transit_max=1)
            env.model.attach(regions_of(term)[3], 77)
        case "silent":
            for one in env.model.servers.values():
                one.deadline_s = env.clock() - 1
            term.manager.silence.over(env.clock())
        case "suspended":
            term.growth.judge._suspended = lambda: "the store is silent"
        case "gap":
            env.model.damages.add_gap(Gap("t", b"a", b"b", overlap=False, regions=()))


@pytest.mark.parametrize("trouble", TROUBLES)
@virtual
async def test_nothing_begins_in_trouble_and_one_line_says_why(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent.regions")
    async with growing() as (term, server, regions):
        server.sizes = {regions[0].id: 5_000}
        other = Server(term, "b") if trouble == "features" else Growing(term, "b")
        await other.register()
        if trouble == "crash":
            term.manager.expire(term.env.model.servers["b", 1], "a test")
        elif trouble == "absent":
            term.env.model.servers["b", 1].here = False
        elif trouble == "change":
            term.env.model.tables["t"].state = TableState.DISABLING
        elif trouble == "pinned":
            term.env.model.marks.put(Mark(MarkKind.PIN, str(regions[0].id), "a"))
        else:
            make_trouble(term, trouble)
        await server.tell()
        for _ in range(3):
            await term.growth.look()
        expected = Bar.PINNED if trouble == "pinned" else Bar.TABLE if trouble in OF_TABLES else Bar.DOMAIN
        assert term.growth.above == {expected: 1}
        assert shapes(term, "split") == []
        lines = [one.getMessage() for one in caplog.records if "by themselves" in one.getMessage()]
        assert len(lines) == (1 if expected is Bar.DOMAIN else 0)
        why = {
            "crash": "the crash of b,1 is dealt with",
            "absent": "b,1 have not come to this daemon yet",
            "features": 'servers b,1 lack the feature "inherit"',
            "change": "the table is disabling",
            "pinned": "it is pinned to a server",
            "few": "too few servers have come since the daemon became active",
            "missing": "2 servers online, and regions.servers_min is 3",
            "transit": "1 region in transition, and regions.transit_max is 1",
            "silent": "most servers do not poll",
            "suspended": "the store is silent",
            "gap": "there are gaps in its keys",
        }[trouble]
        assert why in told.of_region(regions[0], term.growth, term.env)
        assert (why in told.of_table(regions[0].table, term.growth, term.env)) is (trouble != "pinned")


@virtual
async def test_of_very_many_that_are_to_be_split_the_largest_begin_and_all_others_are_counted() -> None:
    options = replace(GROWS, reshapes_per_minute_max=2)
    async with growing(regions=600, options=options) as (term, server, regions):
        server.sizes = {one.id: 1_000 + at % 577 for at, one in enumerate(regions)}
        await server.tell()
        await term.growth.look()
        assert term.growth.above == {Bar.BUDGET: 598}
        await until(lambda: len(regions_of(term)) == 602)
        assert sorted(parents(shapes(term, "split"))) == [(regions[576].id,), (regions[575].id,)][::-1]
