"""The SQLite store of procedure records on a real file: durable groups, damage, fences, disks that fail."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from metadata_store.records import sqlite
from metadata_store.records.codec import checksum
from metadata_store.records.port import Fenced, StoreFailed, Unstorable
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.sqlite_rows import REMEDIES, remedy
from state_machines.procedures.record import VERSION, Record
from tests.contracts.records import RecordsContract, Stores, record

FULL = 2
"""Value of the pragma ``synchronous`` with which a commit returns once it is on the disk."""


@asynccontextmanager
async def store(folder: Path) -> AsyncIterator[SqliteRecords]:
    opened = await SqliteRecords.open(folder / "records.db")
    try:
        yield opened
    finally:
        await opened.close()


class TestSqlite(RecordsContract):
    """The contract of all stores."""

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Stores:
        return lambda: store(tmp_path)


async def test_a_daemon_that_opens_the_file_fences_the_one_before(tmp_path: Path) -> None:
    async with store(tmp_path) as first, store(tmp_path) as second:
        with pytest.raises(Fenced, match=r"another daemon took the file over \(epoch 2, ours 1\)"):
            await first.write([record(1)])
        with pytest.raises(Fenced):
            await first.reserve(1)
        await second.write([record(2)])
        assert (await second.load()).records == [record(2)]


async def test_a_daemon_that_was_fenced_reserves_nothing(tmp_path: Path) -> None:
    async with store(tmp_path) as first, store(tmp_path) as second:
        with pytest.raises(Fenced):
            await first.reserve(5)
        assert await second.reserve(1) == 1


async def test_what_is_acknowledged_is_on_the_disk(tmp_path: Path) -> None:
    """With less than FULL a commit to the log is not synchronized: a power failure would take it back."""

    def pragmas(db: sqlite3.Connection) -> list[object]:
        return [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]

    async with store(tmp_path) as s:
        assert await s.call(pragmas) == [FULL, "wal"]


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("body", b'{"pid":1', "Input data was truncated"),
        ("body", b'{"pid":1}', "its checksum differs"),
        ("crc", 1, "its checksum differs"),
        ("pid", 9, "it is the record of pid 1"),
    ],
)
async def test_a_damaged_record_is_reported_and_stays(tmp_path: Path, column: str, value: object, why: str) -> None:
    async with store(tmp_path) as s:
        await s.write([record(1), record(2)])
    with sqlite3.connect(tmp_path / "records.db") as db:
        db.execute(f"UPDATE record SET {column} = ? WHERE pid = 1", (value,))
    async with store(tmp_path) as s:
        found = await s.load()
        assert found.records == [record(2)]
        assert [(one.pid, one.why) for one in found.damaged] == [(9 if column == "pid" else 1, why)]
        await s.write([record(3)])
    async with store(tmp_path) as s:
        assert len((await s.load()).damaged) == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            b'{"version":2,"pid":1,"kind":["?"]}',
            f"format 2 is newer than this daemon's ({VERSION}): upgrade the daemon",
        ),
        (b'{"pid":1}', "Object missing required field `kind`"),
        (b"\xff\xfe", "JSON is malformed: invalid character (byte 0)"),
    ],
)
async def test_a_newer_or_truncated_record_says_what_it_is(tmp_path: Path, body: bytes, why: str) -> None:
    async with store(tmp_path) as s:
        await s.write([record(1)])
    with sqlite3.connect(tmp_path / "records.db") as db:
        db.execute("UPDATE record SET body = ?, crc = ?", (body, checksum(body)))
    async with store(tmp_path) as s:
        assert [(one.pid, one.why) for one in (await s.load()).damaged] == [(1, why)]


async def test_a_file_that_is_no_store_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "records.db").write_bytes(b"something else " * 100)
    with pytest.raises(StoreFailed, match="file is not a database: name another file"):
        async with store(tmp_path):
            pass


async def test_a_folder_that_is_missing_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="unable to open database file: create the folder"):
        async with store(tmp_path / "gone"):
            pass


async def test_a_store_that_failed_once_takes_no_further_write(tmp_path: Path) -> None:
    async with store(tmp_path) as s:
        await s.write([record(1)])
        with sqlite3.connect(tmp_path / "records.db") as db:
            db.execute("DROP TABLE record")
        for _ in range(2):
            with pytest.raises(StoreFailed, match="no such table: record"):
                await s.write([record(2)])


@pytest.mark.parametrize("refused", [replace(record(2), error="\ud800"), record(1 << 63)], ids=["text", "pid"])
async def test_a_record_that_no_file_takes_is_told_from_a_file_that_fails(tmp_path: Path, refused: Record) -> None:
    """Its procedure is parked, where a term after the other would end by it."""
    async with store(tmp_path) as s:
        await s.write([record(1)])
        with pytest.raises(Unstorable, match=r"refuses what was to be written: "):
            await s.write([record(3), refused])
    async with store(tmp_path) as s:
        assert [one.pid for one in (await s.load()).records] == [1]


async def test_a_store_that_was_closed_takes_no_write(tmp_path: Path) -> None:
    async with store(tmp_path) as s:
        await s.write([record(1)])
    with pytest.raises(StoreFailed, match=r"records.db is closed"):
        await s.write([record(2)])


async def test_a_row_of_another_type_is_reported_and_the_others_are_loaded(tmp_path: Path) -> None:
    async with store(tmp_path) as s:
        await s.write([record(1), record(2)])
    with sqlite3.connect(tmp_path / "records.db") as db:
        db.execute("UPDATE record SET body = 'text' WHERE pid = 1")
    async with store(tmp_path) as s:
        found = await s.load()
        assert (list(found.records), [one.pid for one in found.damaged]) == ([record(2)], [1])


async def test_a_mark_that_fell_behind_never_gives_a_pid_again(tmp_path: Path) -> None:
    async with store(tmp_path) as s:
        await s.write([record(7)])
    with sqlite3.connect(tmp_path / "records.db") as db:
        db.execute("UPDATE fence SET last_pid = NULL")
    async with store(tmp_path) as s:
        assert (await s.load()).last_pid == 7
        assert await s.reserve(2) == 8
        assert await s.reserve(1) == 10


def modes_in(folder: Path) -> dict[str, int]:
    return {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}


async def test_a_new_file_and_its_log_are_closed_to_other_users(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = await SqliteRecords.open(tmp_path / "regions.db")
        modes = modes_in(tmp_path)
        await store.close()
    finally:
        os.umask(before)
    assert modes["regions.db"] == modes["regions.db-wal"] == 0o600
    assert set(modes.values()) == {0o600}


async def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "regions.db"
    await (await SqliteRecords.open(path)).close()
    path.chmod(0o640)
    await (await SqliteRecords.open(path)).close()
    assert modes_in(tmp_path)["regions.db"] == 0o640


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", FULL),
        ("fullfsync", 1),
        ("journal_size_limit", sqlite.LOG_BYTES_MAX),
        ("page_size", sqlite.PAGE_BYTES),
    ],
)
async def test_a_commit_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path, pragma: str, value: object) -> None:
    async with store(tmp_path) as s:
        assert await s.call(lambda db: db.execute(f"PRAGMA {pragma}").fetchone()) == (value,)


async def test_a_log_that_a_reader_let_grow_is_cut_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LOG_BYTES_MAX", 100_000)
    log = tmp_path / "records.db-wal"
    async with store(tmp_path) as s:
        await s.write([record(1)])
        with closing(sqlite3.connect(tmp_path / "records.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM record").fetchone()
            for pid in range(2, 9):
                await s.write([record(pid, data=bytes(2_000_000))])
            assert log.stat().st_size > 10_000_000
            reader.execute("ROLLBACK")
        for pid in range(9, 12):
            await s.write([record(pid)])
        assert log.stat().st_size <= 100_000


def test_an_error_of_the_disk_has_one_remedy_and_the_daemon_needs_no_restart() -> None:
    for error in ("database or disk is full", "[Errno 28] No space left on device"):
        assert remedy(OSError(error)) == "make room on the disk: the daemon goes on by itself then"
    assert not [one for one in (*REMEDIES.values(), remedy(OSError("?"))) if "start the daemon" in one]


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
