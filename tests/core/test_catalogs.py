"""Catalogs of regions hold the same contract: a SQLite file, a ZooKeeper in memory, and the one in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from metadata_store.catalog.rows import Catalog
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.port import RecordStore
from metadata_store.records.sqlite import SqliteRecords
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.contracts.catalog import CatalogContract, Catalogs
from tests.contracts.catalog_zookeeper import ZooKeeperCatalogContract
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import RecordsContract, Stores

Both = tuple[RecordStore, Catalog]


@asynccontextmanager
async def in_a_file(path: Path) -> AsyncIterator[Both]:
    rows = SqliteCatalog()
    store = await SqliteRecords.open(path, rows)
    try:
        yield store, rows.of(store)
    finally:
        await store.close()


@asynccontextmanager
async def in_memory(disk: RegionDisk) -> AsyncIterator[Both]:
    store = MemoryRegionStore(disk)
    yield store, store


class TestSqlite(CatalogContract):
    @pytest.fixture
    def catalogs(self, tmp_path: Path) -> Catalogs:
        return lambda: in_a_file(tmp_path / "regions.db")


class TestMemory(CatalogContract, RecordsContract):
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


class TestZooKeeper(ZooKeeperCatalogContract):
    """On the ZooKeeper in memory."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()


class TestZooKeeperBehind(ZooKeeperCatalogContract):
    """The same with a server that is behind: it shows what was written before only after a sync."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend(lags=True)
