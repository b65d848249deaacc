"""Copies of a SQLite store: of one moment, whole or absent, and judged; what is no backup is refused with a cause."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from metadata_store.catalog import sqlite_backup
from metadata_store.catalog.rows import NewRegions, PutTable, RegionRow, TableRow
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.catalog.sqlite_backup import back_up, judged
from metadata_store.catalog.sqlite_schema import VERSION
from metadata_store.records import claims
from metadata_store.records.claims import FileClaim
from metadata_store.records.port import StoreFailed
from metadata_store.records.sqlite import SqliteRecords
from state_machines.regions.states import RegionState


def filled(path: Path, table: str = "t", regions: int = 2_000) -> Path:
    """Makes a store with one table, whose daemon is gone."""

    async def fill() -> None:
        store = await SqliteRecords.open(path, SqliteCatalog())
        first = await store.reserve(regions)
        keys = [b"", *(b"%08d" % n for n in range(1, regions)), b""]
        rows = [
            RegionRow(first + n, table, keys[n], keys[n + 1], RegionState.CLOSED, "", 0, first + n)
            for n in range(regions)
        ]
        await store.write((), (), (PutTable(TableRow(table, 2, 0)), NewRegions(tuple(rows))))
        await store.close()

    asyncio.run(fill())
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(tmp_path / "regions.db")


def executed(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


@contextmanager
def refused(text: str) -> Iterator[None]:
    with pytest.raises(StoreFailed, match=re.escape(text)):
        yield


def names(folder: Path) -> set[str]:
    """Returns the files of a folder, without locks and the empty logs that a reader leaves."""
    found = {one.name for one in folder.iterdir() if not one.name.endswith((".lock", "-shm"))}
    return {one for one in found if not one.endswith("-wal") or (folder / one).stat().st_size}


def test_a_copy_stands_alone_and_says_what_it_has(store: Path) -> None:
    into = store.with_name("copy.db")
    found = back_up(store, into)
    assert (found.form, found.epoch, found.last_pid) == (VERSION, 1, 2_000)
    assert (found.token, found.region, found.tables, found.regions, found.damaged) == (2_000, 2_000, 1, 2_000, 0)
    assert into.stat().st_mode & 0o777 == 0o600
    assert names(store.parent) == {"regions.db", "copy.db"}
    assert judged(into) == found


def test_a_copy_is_of_one_moment_while_a_daemon_writes(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change between two pieces of the copy is not in it, and the copy does not begin anew."""
    copy_of = sqlite_backup.copy_of

    @contextmanager
    def written(source: sqlite3.Connection, into: Path) -> Iterator[sqlite3.Connection]:
        executed(store, "UPDATE region SET token = 9000", "INSERT INTO mark VALUES ('a', 'b', '', 0, '', '')")
        with copy_of(source, into) as target:
            yield target

    executed(store, "PRAGMA journal_mode = WAL")
    with closing(sqlite3.connect(store)) as daemon:
        daemon.execute("SELECT 1 FROM fence").fetchall()
        monkeypatch.setattr(sqlite_backup, "copy_of", written)
        assert back_up(store, store.with_name("copy.db")).token == 2_000
    assert judged(store).token == 9_000


def test_a_copy_has_what_only_the_log_of_a_killed_daemon_has(store: Path) -> None:
    pid = os.fork()
    if not pid:
        db = sqlite3.connect(store, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("UPDATE region SET token = 9000")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert store.with_name("regions.db-wal").stat().st_size > 0
    assert back_up(store, store.with_name("copy.db")).token == 9_000


def test_a_daemon_keeps_its_claim_and_a_restore_waits(store: Path) -> None:
    claim = FileClaim(store)
    lock = claims.shared(store)
    back_up(store, store.with_name("copy.db"))
    claims.release(lock)
    claim.release()


def test_a_file_is_replaced_only_where_that_is_wanted(store: Path) -> None:
    into = store.with_name("copy.db")
    into.write_bytes(b"of yesterday")
    with refused("exists: name a new file, or replace that one with --force"):
        back_up(store, into)
    assert into.read_bytes() == b"of yesterday"
    back_up(store, into, replaces=True)
    assert judged(into).regions == 2_000


def test_no_copy_replaces_a_store(store: Path) -> None:
    with refused("is a file of the store itself"):
        back_up(store, store, replaces=True)
    with refused("is a file of the store itself"):
        back_up(store, store.with_name("regions.db-wal"), replaces=True)
    other = filled(store.with_name("other.db"), regions=2)
    FileClaim(other).release()
    with refused("is the store of a daemon"):
        back_up(store, other, replaces=True)
    with refused("none.db is no file"):
        back_up(store.with_name("none.db"), store.with_name("copy.db"))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwritten(path: Path) -> None:
    """Spoils the pages in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xa5" * 20_000)


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a text": (lambda path: path.write_text("no store at all " * 100), "not a database"),
    "an empty file": (lambda path: os.truncate(path, 0), "is no store of regions, for it lacks fence, "),
    "another database": (
        lambda path: executed(path, "DROP TABLE region"),
        "is no store of regions, for it lacks region",
    ),
    "a later form": (
        lambda path: executed(path, "PRAGMA user_version = 3"),
        "its format 3 is newer than this one's (2)",
    ),
    "a torn copy": (cut, "is torn or damaged: "),
    "a spoiled copy": (overwritten, "is torn or damaged: "),
    "none": (Path.unlink, "is no file"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_backup_is_refused_with_its_cause(kind: str, store: Path) -> None:
    spoil, why = BAD[kind]
    spoil(store)
    with refused(why):
        judged(store)


def test_rows_that_no_daemon_can_use_are_counted(store: Path) -> None:
    executed(store, "UPDATE region SET state = 99 WHERE id < 4", "INSERT INTO record VALUES (5, 1, x'00')")
    assert judged(store).damaged == 4


def within(bytes_max: int, work: Callable[[], object]) -> str:
    """Returns how work ends in a process whose files have a bound, which stands for a full disk."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))
        try:
            os.write(writes, repr(work()).encode())
        except StoreFailed as error:
            os.write(writes, str(error).encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(pid, 0)
    with os.fdopen(reads) as told:
        return told.read()


def test_a_full_disk_leaves_no_copy(store: Path) -> None:
    told = within(65_536, lambda: back_up(store, store.with_name("copy.db")))
    assert "make room on that disk, or name a file on another one" in told
    assert names(store.parent) == {"regions.db"}
