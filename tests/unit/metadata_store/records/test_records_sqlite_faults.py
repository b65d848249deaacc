"""A SQLite store that is full, read-only, locked, lost, or closed under load: each caller gets a response."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from metadata_store.records import sqlite
from metadata_store.records.port import StoreFailed
from tests.contracts.records import record
from tests.unit.metadata_store.records.test_records_sqlite import store

MANY = 2_000


async def loaded(folder: Path) -> list[int]:
    async with store(folder) as s:
        return [one.pid for one in (await s.load()).records]


@pytest.mark.seed("S2-1")
@pytest.mark.parametrize(
    ("pragma", "why"),
    [
        ("max_page_count = 20", "database or disk is full: make room"),
        ("query_only = ON", "attempt to write a readonly database: give the daemon's user the right"),
    ],
)
async def test_a_store_that_cannot_be_written_refuses_all_and_keeps_what_was_acknowledged(
    tmp_path: Path, pragma: str, why: str
) -> None:
    async with store(tmp_path) as s:
        await s.write([record(1)])
        await set_pragma(s, pragma)
        found = await asyncio.gather(
            *(s.write([record(pid, data=bytes(2_000))]) for pid in range(2, 200)), return_exceptions=True
        )
        assert all(isinstance(one, StoreFailed) for one in found)
        with pytest.raises(StoreFailed, match=why):
            await s.write([record(900)])
    assert await loaded(tmp_path) == [1]


async def set_pragma(s: sqlite.SqliteRecords, pragma: str) -> None:
    """Sets it outside of a transaction, on the connection of the store's own thread."""
    original = sqlite._transaction

    def outside(db: sqlite3.Connection) -> object:
        db.execute(f"PRAGMA {pragma}")
        sqlite._transaction = original
        return original(db)

    sqlite._transaction = outside  # type: ignore[assignment]
    try:
        await s.load()
    except StoreFailed:
        pass
    finally:
        sqlite._transaction = original


async def test_a_file_that_another_process_keeps_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    async with store(tmp_path) as s:
        await s.write([record(1)])
        with closing(sqlite3.connect(tmp_path / "records.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreFailed, match="database is locked: another process keeps the file locked"):
                await s.write([record(2)])
    assert await loaded(tmp_path) == [1]


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_lost_takes_no_write_that_nobody_would_find(tmp_path: Path, replaced: bool) -> None:
    async with store(tmp_path) as s:
        await s.write([record(1)])
        (tmp_path / "records.db").unlink()
        if replaced:
            (tmp_path / "records.db").write_bytes(b"")
        with pytest.raises(StoreFailed, match="was removed or replaced: stop the daemon, and put the file back"):
            await s.write([record(2)])


async def test_a_store_that_is_closed_under_load_settles_every_write_that_was_begun(tmp_path: Path) -> None:
    durable: list[int] = []
    refused: list[int] = []

    async def write(s: sqlite.SqliteRecords, pid: int) -> None:
        for _ in range(pid % 40):
            await asyncio.sleep(0)
        try:
            await s.write([record(pid)])
        except StoreFailed:
            refused.append(pid)
        else:
            durable.append(pid)

    async with store(tmp_path) as s:
        writes = [asyncio.ensure_future(write(s, pid)) for pid in range(1, MANY)]
        for _ in range(20):
            await asyncio.sleep(0)
        await s.close()
        async with asyncio.timeout(60):
            await asyncio.gather(*writes)
    assert refused, "some came too late"
    assert durable, "some were begun before"
    assert sorted(durable + refused) == list(range(1, MANY))
    assert await loaded(tmp_path) == sorted(durable)
