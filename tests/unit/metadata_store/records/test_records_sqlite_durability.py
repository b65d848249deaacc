"""The settings on which durability of the SQLite store rests, and the bound of its log."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from metadata_store.records import sqlite
from metadata_store.records.sqlite_errors import REMEDIES, remedy
from tests.contracts.records import record
from tests.unit.metadata_store.records.test_records_sqlite import store

FULL = 2


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
