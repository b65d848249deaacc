"""Reads a SQLite store without a daemon, moves aside what no daemon can use, and has procedures end."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from metadata_store.records import claims, codec, sqlite_rows
from metadata_store.records.port import Content, Found, StoreFailed
from state_machines.procedures.record import Record

COLUMNS: Final = "pid INTEGER, crc, body, fault TEXT, why TEXT, reason TEXT, moved_ms INTEGER"


def read(path: Path) -> Content:
    """Reads all of a store, and changes nothing; raises :class:`StoreFailed` where the file is none."""
    with opened(path, "ro") as db:
        entries, trouble = sqlite_rows.salvaged(db)
        faults = [trouble] if trouble else []
        try:
            [epoch, mark] = db.execute("SELECT epoch, last_pid FROM fence").fetchone()
        except (sqlite3.Error, TypeError) as error:
            return Content(entries, max([one.pid for one in entries], default=0), 0, [*faults, f"no fence: {error}"])
    highest = max([one.pid for one in entries], default=0)
    if not isinstance(mark, int) or mark < highest:
        faults.append(f"the mark of reserved pids is {mark}, and pid {highest} is in use: a daemon goes on from that")
    return Content(entries, max(mark if isinstance(mark, int) else 0, highest), int(epoch or 0), faults)


def move_aside(path: Path, entries: Sequence[Found], reason: str, now_ms: int) -> None:
    """Moves rows into the table ``quarantine`` in one transaction, and fences daemons that began before it.

    Raises :class:`StoreFailed`, also where a daemon has the store open, or a row has changed since it was read.
    """
    with _alone(path) as db:
        db.execute(f"CREATE TABLE IF NOT EXISTS quarantine ({COLUMNS})")
        for one in entries:
            _move(db, path, one, reason, now_ms)


def replace(path: Path, content: Content, records: Sequence[Record]) -> None:
    """Replaces records in one transaction, and fences daemons that began before it; raises :class:`StoreFailed`."""
    before = {one.pid: one for one in content.entries}
    with _alone(path) as db:
        for one in records:
            _check_same(db, path, before[one.pid])
            body = codec.encode(one)
            db.execute("UPDATE record SET crc = ?, body = ? WHERE pid = ?", (codec.checksum(body), body, one.pid))


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a store that no daemon has open, for one transaction that fences those that began before it."""
    try:
        lock = claims.alone(path)
    except (OSError, claims.Locked) as error:
        raise StoreFailed(f"{error}: stop the daemon that has {path} open, then try again") from error
    try:
        with opened(path, "rw") as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE fence SET epoch = epoch + 1")
            yield db
            db.execute("COMMIT")
    finally:
        claims.release(lock)


def _check_same(db: sqlite3.Connection, path: Path, one: Found) -> tuple[int, object, object]:
    """Returns the row of an entry; raises :class:`StoreFailed` where it has changed since it was read."""
    row = db.execute("SELECT pid, crc, body FROM record WHERE pid = ?", (one.pid,)).fetchone()
    if row is None or sqlite_rows.entry(*row).body != one.body:
        raise StoreFailed(f"{path}: pid {one.pid} has changed since it was read: nothing was changed, try again")
    pid, crc, body = row
    return pid, crc, body


def _move(db: sqlite3.Connection, path: Path, one: Found, reason: str, now_ms: int) -> None:
    row = _check_same(db, path, one)
    fault, why = one.unusable or ("", "")
    db.execute("INSERT INTO quarantine VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, str(fault), why, reason, now_ms))
    db.execute("DELETE FROM record WHERE pid = ?", (one.pid,))


@contextlib.contextmanager
def opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """Opens an existing file; a folder that this user cannot write is no obstacle to reading.

    ``mode``: rw or ro; or live, to read a file that a daemon may write meanwhile: it is never taken as it is.
    """
    if not path.is_file():
        raise StoreFailed(f"{path} is no file: name the file of a SQLite store")
    uri = f"{path.absolute().as_uri()}?mode={'rw' if mode == 'rw' else 'ro'}"
    db: sqlite3.Connection | None = None
    try:
        db = sqlite3.connect(uri, uri=True, isolation_level=None)
        if mode == "ro":
            db = _readable(db, path, uri)
        yield db
    except sqlite3.Error as error:
        raise StoreFailed(f"{path}: {error}: is it the file of a SQLite store, and may this user read it?") from error
    finally:
        if db is not None:
            db.close()


def _readable(db: sqlite3.Connection, path: Path, uri: str) -> sqlite3.Connection:
    """Returns a connection that reads; where SQLite may not write, a file without a log beside it is taken as it is."""
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        if path.with_name(f"{path.name}-wal").exists():
            raise
        db.close()
        return sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
    return db
