"""Catalogs of regions hold the same contract, and one in ZooKeeper is read as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from metadata_store.catalog import zookeeper_reading
from metadata_store.catalog.rows import (
    Bury,
    DropMark,
    DropRegions,
    DropServer,
    Forget,
    MarkRow,
    NewRegions,
    Owner,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    RegionRow,
    ServerRow,
    TableRow,
    Write,
)
from metadata_store.catalog.znodes import BUCKET_IDS
from metadata_store.fencing.bounds import write_bytes
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.port import ANY_VERSION, Check
from metadata_store.records.port import RecordStore
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.contracts.catalog import CatalogContract, Catalogs
from tests.contracts.catalog_shapes import ShapesContract
from tests.contracts.catalog_shapes_zookeeper import ZooKeeperShapesContract
from tests.contracts.catalog_zookeeper import ROOT, ZooKeeperCatalogContract, both, regions
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import RecordsContract, Stores, record
from tests.contracts.support import NthWrite, Session, session
from tests.kit.regions.catalogs import Both, in_a_file


@asynccontextmanager
async def in_memory(disk: RegionDisk) -> AsyncIterator[Both]:
    store = MemoryRegionStore(disk)
    yield store, store


class TestSqlite(CatalogContract, ShapesContract):
    @pytest.fixture
    def catalogs(self, tmp_path: Path) -> Catalogs:
        return lambda: in_a_file(tmp_path / "regions.db")


class TestMemory(CatalogContract, ShapesContract, RecordsContract):
    """The store in memory is one of records, too."""

    @pytest.fixture
    def catalogs(self) -> Catalogs:
        disk = RegionDisk()
        return lambda: in_memory(disk)

    @pytest.fixture
    def stores(self) -> Stores:
        disk = RegionDisk()

        @asynccontextmanager
        async def store() -> AsyncIterator[RecordStore]:
            yield MemoryRegionStore(disk)

        def opened() -> AbstractAsyncContextManager[RecordStore]:
            return store()

        return opened


class TestZooKeeper(ZooKeeperCatalogContract, ZooKeeperShapesContract):
    """On the ZooKeeper in memory."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()


class TestZooKeeperBehind(ZooKeeperCatalogContract, ZooKeeperShapesContract):
    """The same with a server that is behind: it shows what was written before only after a sync."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend(lags=True)


@pytest.mark.parametrize("lags", [False, True])
async def test_rows_whose_request_is_lost_are_sent_again_before_they_are_acknowledged(lags: bool) -> None:
    """Their sender cannot tell it from a lost reply: what was there before is no proof of the write."""
    backend = MemoryBackend(lags=lags)
    mark = MarkRow("cordon", "s1")
    async with session(backend) as s:
        store, catalog = await both(s)
        for rows in (
            [PutTable(TableRow("t", 2, 4)), NewRegions(regions(3))],
            [Owner(1, 2, "s1", 5, 9, 3), NewRegions(regions(1, first=4))],
            [PutServer(ServerRow("s1", 5, "h:1")), DropRegions((3,))],
            [DropServer("s1", 5), PutServer(ServerRow("s1", 6, "h:1"))],
            [PutMark(mark), Bury("s1", 5, 1)],
            [DropMark("cordon", "s1"), PutTable(TableRow("t", 2, 0))],
            [Forget("s1"), PutNamespace("n")],
        ):
            backend.server.lose_requests(s.zk.session_id)
            await store.write((), (), rows)
        await s.zk.sync()
        found = await catalog.read()
        owned = regions(1)[0]._replace(state=2, server="s1", incarnation=5, token=9, sequence=3)
        assert list(found.regions) == [owned, regions(2)[1], regions(1, first=4)[0]]
        assert ([*found.tables], [*found.namespaces]) == ([TableRow("t", 2, 0)], ["n"])
        assert ([*found.servers], found.buried, [*found.marks]) == ([ServerRow("s1", 6, "h:1")], {}, [])


async def test_records_and_rows_are_weighed_together() -> None:
    async with session(MemoryBackend()) as s:
        store, catalog = await both(s)
        await store.load()
        await catalog.read()
        rows: list[Write] = [NewRegions(regions(200)), PutServer(ServerRow("s1", 5, "h:1"))]
        sent = write_bytes([*store.ops([record(1)], [2]), *catalog.ops(rows)])
        assert sent <= store.weigh([record(1)], [2], rows) <= 2 * sent


async def test_a_multi_has_no_more_records_and_rows_together_than_its_bound() -> None:
    made = regions(400)
    async with session(MemoryBackend()) as s:
        store, catalog = await both(s)
        await store.write([record(1)], (), [NewRegions(made)])
        s.zk.hooks = seen = NthWrite(at=-1)
        writes = [store.write([record(one.id + 1)], (), [Owner(one.id, 2, "s1", 5, 9, 3)]) for one in made]
        await asyncio.gather(*writes)
        assert max(len([op for op in ops if not isinstance(op, Check)]) for ops in seen.writes) <= WRITES_MAX
        assert {one.state for one in (await catalog.read()).regions} == {2}


@pytest.fixture
async def s() -> AsyncIterator[Session]:
    async with session(MemoryBackend()) as found:
        yield found


@pytest.mark.parametrize("buckets", [32, 33, 70])
async def test_more_buckets_than_are_listed_together_are_all_read(s: Session, buckets: int) -> None:
    assert zookeeper_reading.LISTED_TOGETHER == 32
    made = tuple(one for n in range(buckets) for one in regions(2, first=n * BUCKET_IDS + 5))
    store, catalog = await both(s)
    await store.write((), (), [NewRegions(made)])
    assert (await catalog.read()).regions == list(made)
    await store.write((), (), [DropRegions(tuple(one.id for one in made[:-1]))])
    assert await s.names(f"{ROOT}/regions") == [f"{buckets - 1:07}"], "the buckets that are empty are gone"


async def test_regions_come_by_table_and_start_key_whatever_their_ids(s: Session) -> None:
    """A region that was split has a higher id than the one behind it."""
    made = [
        RegionRow(9, "a", b"", b"m", 0),
        RegionRow(3, "a", b"m", b"", 0),
        RegionRow(2, "b", b"", b"k", 0),
        RegionRow(1, "b", b"k", b"", 0),
    ]
    store, catalog = await both(s)
    await store.write((), (), [NewRegions(tuple(reversed(made)))])
    assert (await catalog.read()).regions == made


async def test_a_bucket_stays_until_the_last_znode_of_others_and_the_last_damaged_region_are_gone(s: Session) -> None:
    store, catalog = await both(s)
    await store.write((), (), [NewRegions(regions(4))])
    strange = ("notes", "more", "1")
    for name in strange:
        await s.zk.create(f"{ROOT}/regions/0000000/{name}", b"by hand")
    for name in ("7", "00000001"):
        await s.zk.create(f"{ROOT}/regions/{name}", b"by hand")
    for pid in (1, 2):
        await s.zk.set(f"{ROOT}/regions/0000000/{pid:010}", b"damaged", ANY_VERSION)
    found = await catalog.read()
    assert (found.regions, [one.region for one in found.damaged]) == (list(regions(2, first=3)), [1, 2])
    await store.write((), (), [DropRegions((3, 4))])
    await store.write((), (), [NewRegions(regions(1, first=5))])
    await store.write((), (), [DropRegions((5,))])
    assert await s.names(f"{ROOT}/regions/0000000") == ["0000000001", "0000000002", *sorted(strange)]
    for name in (*strange, "0000000001", "0000000002"):
        await s.zk.delete(f"{ROOT}/regions/0000000/{name}", ANY_VERSION)
    await catalog.read()
    await store.write((), (), [NewRegions(regions(1))])
    await store.write((), (), [DropRegions((1,))])
    assert await s.names(f"{ROOT}/regions") == ["00000001", "7"]
    await store.write((), (), [NewRegions(regions(1, first=7 * BUCKET_IDS))])
    assert await s.names(f"{ROOT}/regions") == ["00000001", "0000007", "7"], "7 is no bucket"


async def test_damage_is_named_by_the_name_that_operators_know(s: Session) -> None:
    store, catalog = await both(s)
    server, mark = ServerRow("a/b, c", 5, "h:1"), MarkRow("cordon", "a/b, c")
    await store.write((), (), [PutServer(server), PutMark(mark)])
    for folder in ("servers", "marks"):
        [name] = await s.names(f"{ROOT}/{folder}")
        await s.zk.set(f"{ROOT}/{folder}/{name}", b"damaged", ANY_VERSION)
    found = await catalog.read()
    assert sorted(one.name for one in found.damaged) == ["a/b, c,5", "cordon of a/b, c"]
    assert not found.servers
    assert not found.marks
