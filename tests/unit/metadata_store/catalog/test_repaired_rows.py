"""A row that cannot be used is replaced, or removed, by the id of its region: in a file and in ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from metadata_store.catalog.rows import (
    Drop,
    DropRegions,
    DropUnusable,
    HeirRow,
    MarkRow,
    NewRegions,
    ParentRow,
    Put,
    PutMark,
    PutServer,
    PutTable,
    RegionRow,
    ServerRow,
    Source,
    TableRow,
)
from metadata_store.catalog.znodes import bucket_path, heir_path, region_path
from state_machines.regions.states import RegionState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.contracts.catalog_zookeeper import ROOT, both
from tests.contracts.memory import MemoryBackend
from tests.contracts.support import session
from tests.kit.regions.catalogs import in_a_file

GOOD = RegionRow(1, "t", b"", b"k", 4)
BAD = RegionRow(1002, "t", b"k", b"", 99)
HEIR = HeirRow(1002, (Source(9, b"k", b"", 5, 1),))
PARENT = ParentRow(1003, "t", b"k", b"", 99, (2,), 5, 1)
DAMAGED = (NewRegions((GOOD, BAD)), Put(HEIR), Put(PARENT))
OTHERS = (
    PutTable(TableRow("t", 1, 99)),
    PutServer(ServerRow("s1", 0, "a:1")),
    PutMark(MarkRow("weight", "s1", "heavy")),
    Put(ParentRow(1004, "t", b"k", b"", 99, (2,), 5, 1)),
)
"""Rows of other kinds that cannot be used."""
Opening = Callable[[], AbstractAsyncContextManager[Any]]


@pytest.fixture(params=["file", "zookeeper", "memory"])
async def opening(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opening]:
    """Opens a store with damaged rows, each time as a daemon that begins."""
    if request.param == "file":
        async with in_a_file(tmp_path / "regions.db") as (store, _):
            await store.write((), (), DAMAGED)
        yield lambda: in_a_file(tmp_path / "regions.db")
        return
    if request.param == "memory":
        disk = RegionDisk()
        await MemoryRegionStore(disk).write((), (), DAMAGED)

        @asynccontextmanager
        async def anew() -> AsyncIterator[Any]:
            store = MemoryRegionStore(disk)
            yield store, store

        yield anew
        return
    async with session(MemoryBackend()) as s:
        store, _ = await both(s)
        await store.write((), (), DAMAGED)

        @asynccontextmanager
        async def again() -> AsyncIterator[Any]:
            yield await both(s)

        yield again


async def test_a_region_is_stored_again_in_place_of_a_row_that_is_left_out(opening: Opening) -> None:
    again = BAD._replace(state=4, token=77)
    async with opening() as (store, catalog):
        assert {one.region for one in (await catalog.read()).damaged} == {1002, 1003}
        await store.write((), (), (DropRegions((1002,)), NewRegions((again,)), Put(HEIR)))
        for _ in range(2):
            found = await catalog.read()
            assert (found.regions, [one.region for one in found.damaged]) == ([GOOD, again], [1003])
            assert list(found.small) == [HEIR]
    async with opening() as (store, catalog):
        assert (await catalog.read()).regions == [GOOD, again]
        await store.write((), (), (DropRegions((1002,)),))
        assert (await catalog.read()).regions == [GOOD]


async def test_rows_that_are_left_out_are_removed_by_their_ids(opening: Opening) -> None:
    async with opening() as (store, catalog):
        await catalog.read()
        await store.write((), (), (DropRegions((1002,)), Drop(ParentRow, (1003,))))
    async with opening() as (store, catalog):
        found = await catalog.read()
        assert (found.regions, found.damaged, list(found.small)) == ([GOOD], (), [])


async def test_a_row_that_is_left_out_stays_where_it_is_not_removed_first(opening: Opening) -> None:
    async with opening() as (store, catalog):
        await catalog.read()
        await store.write((), (), (NewRegions((BAD._replace(state=4),)),))
        assert {one.region for one in (await catalog.read()).damaged} == {1002, 1003}


async def test_the_bucket_of_a_region_that_is_left_out_goes_with_it() -> None:
    async with session(MemoryBackend()) as s:
        store, _ = await both(s)
        await store.write((), (), DAMAGED)
        store, catalog = await both(s)
        await catalog.read()
        await store.write((), (), (NewRegions((GOOD._replace(id=1500),)), DropRegions((1500,))))
        assert await s.data(f"{ROOT}/{region_path(1002)}") is not None, "its bucket stays"
        await store.write((), (), (DropRegions((1002,)),))
        for path in (region_path(1002), heir_path(1002), bucket_path(1)):
            assert await s.zk.exists(f"{ROOT}/{path}") is None


async def test_rows_of_each_kind_are_removed_by_their_place(opening: Opening) -> None:
    async with opening() as (store, _):
        await store.write((), (), OTHERS)
    async with opening() as (store, catalog):
        found = await catalog.read()
        others = [one for one in found.damaged if one.region != 1002]
        assert len(others) == len(OTHERS) + 1, "the parent of before"
        for number, one in enumerate(others):
            await store.write((), (), (DropUnusable(one.place),))
            assert len((await catalog.read()).damaged) == len(found.damaged) - number - 1, one
    async with opening() as (store, catalog):
        assert [one.region for one in (await catalog.read()).damaged] == [1002]


async def test_a_row_that_was_written_anew_meanwhile_stays(opening: Opening) -> None:
    good = PARENT._replace(state=int(RegionState.SPLIT))
    async with opening() as (store, catalog):
        place = next(one.place for one in (await catalog.read()).damaged if one.region == 1003)
        await store.write((), (), (Put(good),))
        await store.write((), (), (DropUnusable(place),))
    async with opening() as (store, catalog):
        found = await catalog.read()
        assert ([one.region for one in found.damaged], good in found.small) == ([1002], True)


async def test_no_other_row_is_at_a_place(opening: Opening) -> None:
    async with opening() as (store, catalog):
        places = [one.place for one in (await catalog.read()).damaged]
        for place in [one.replace("1003", "1005") for one in places if "1003" in one]:
            await store.write((), (), (DropUnusable(place),))
        assert [one.place for one in (await catalog.read()).damaged] == places
