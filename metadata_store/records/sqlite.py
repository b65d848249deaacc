"""Stores procedure records in one SQLite file, for a domain with a single daemon.

A thread of its own writes: it takes all writes that wait as one transaction, and wakes the loop once for each. Every
transaction checks the epoch that the daemon took at its start, so that a second daemon on the file fences the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from metadata_store.records import claims, codec, sqlite_rows
from metadata_store.records.port import Fenced, Stored, StoreFailed, Unstorable
from metadata_store.records.sqlite_rows import remedy, write_rows
from metadata_store.records.sqlite_watch import Identity, fenced, identity, replaced
from state_machines.procedures.record import Record

GROUP_MAX: Final = 2_000
"""Writes in one transaction."""
FILE_MODE: Final = 0o600
"""Permissions of a new file, whatever the umask is: it has options of tables, and reasons of operators."""
BUSY_MS: Final = 5_000
"""How long another process may hold the file."""
LOG_BYTES_MAX: Final = 64 * 1024 * 1024
"""Size to which the write-ahead log is cut once a long reader or a large transaction let it grow."""
PUT: Final = "INSERT OR REPLACE INTO record VALUES {}"
DELETE: Final = "DELETE FROM record WHERE pid IN (VALUES {})"
TAKE_OVER: Final = "UPDATE fence SET epoch = max(epoch, ?) + 1 RETURNING epoch"
PAGE_BYTES: Final = 8_192
"""Pages of a new file: half as many system calls for a group as with SQLite's default."""
SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS record (pid INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS fence (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER, last_pid INTEGER)",
    "INSERT OR IGNORE INTO fence VALUES (1, 0, 0)",
)

REFUSES_CONTENT: Final = (
    ValueError, TypeError, OverflowError, msgspec.MsgspecError,
    sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError,
)  # fmt: skip
"""Errors of a record or row that cannot be encoded, or that no file takes; all others are of the file itself."""

_Row = tuple[int, int, bytes]
"""A pid, the checksum of a record, and the record."""


class Rows(Protocol):
    """Further tables of the file, whose rows are written together with records."""

    def prepare(self, db: sqlite3.Connection, path: Path) -> None:
        """Makes the tables as this release has them; raises ``StoreFailed`` where a later one has written them."""
        ...

    def put(self, db: sqlite3.Connection, rows: Iterable[object]) -> None:
        """Writes rows inside of a transaction, in the store's thread."""
        ...


class _Task(msgspec.Struct, gc=False):
    """Work of the thread. ``puts``, ``deletes`` and ``rows`` of a write, or ``call`` with the connection."""

    future: asyncio.Future[Any]
    puts: tuple[Record, ...] = ()
    deletes: tuple[int, ...] = ()
    rows: tuple[object, ...] = ()
    call: Callable[[sqlite3.Connection], Any] | None = None


class SqliteRecords:
    """Implements :class:`metadata_store.records.port.RecordStore`; made by :meth:`open`."""

    def __init__(self, path: Path, rows: Rows | None = None) -> None:
        self._path = path
        self._rows = rows
        self._loop = asyncio.get_running_loop()
        self._tasks: deque[_Task] = deque()
        self._gate = threading.Lock()
        self._gate.acquire()
        self._opening = False
        self._closing = False
        self._failed: StoreFailed | None = None
        self._epoch = 0
        self._file: Identity = None
        self._thread = threading.Thread(target=self._run, name="regent-records", daemon=True)

    @classmethod
    async def open(cls, path: Path, rows: Rows | None = None, above: int = 0) -> SqliteRecords:
        """Opens or creates the file, and takes it over from another daemon, with an epoch above one that was seen."""
        store = cls(path, rows)
        store._thread.start()
        try:
            await store.call(lambda db: store._take_over(db, above))
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def bytes_max(self) -> int:
        """Returns 0: a transaction may have any size."""
        return 0

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Returns 0: a transaction may have any size."""
        return 0

    async def load(self) -> Stored:
        """Reads everything, ordered by pid."""
        found: Stored = await self.call(sqlite_rows.load)
        return found

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes all or nothing; returns once it is durable."""
        await self._submit(_Task(self._loop.create_future(), tuple(puts), tuple(deletes), tuple(rows)))

    async def reserve(self, count: int) -> int:
        """Reserves pids that were never given before; returns the first of them, durably."""
        first: int = await self.call(lambda db: self._reserve(db, count))
        return first

    async def close(self) -> None:
        """Finishes the writes that were begun, and closes the file; callers that come from now on are refused."""
        self._failed = self._failed or StoreFailed(f"{self._path} is closed")
        self._closing = True
        self._open_gate()
        await asyncio.to_thread(self._thread.join)

    @property
    def epoch(self) -> int:
        """Returns the epoch of this daemon on the file."""
        return self._epoch

    # -- on the loop

    async def call(self, call: Callable[[sqlite3.Connection], Any]) -> Any:
        """Calls a function with the connection, in the store's thread and in a transaction of its own."""
        return await self._submit(_Task(self._loop.create_future(), call=call))

    def _submit(self, task: _Task) -> asyncio.Future[Any]:
        if self._failed is not None:
            raise self._failed
        self._tasks.append(task)
        if not self._opening:
            self._opening = True
            self._loop.call_soon(self._open_gate)  # behind all that is ready to run, which may write, too
        return task.future

    def _open_gate(self) -> None:
        """Wakes the thread; an open gate is one that it has not passed since."""
        self._opening = False
        if self._gate.locked():
            self._gate.release()

    def _settle(self, group: Sequence[_Task], results: Sequence[Any], error: StoreFailed | None) -> None:
        self._failed = self._failed or error
        for task, result in zip(group, results, strict=True):
            if not task.future.done():
                if error is None:
                    task.future.set_result(result)
                else:
                    task.future.set_exception(error)

    # -- in the thread

    def _run(self) -> None:
        db: sqlite3.Connection | None = None
        lock: int | None = None
        failed: StoreFailed | None = None
        while not self._closing or self._tasks:
            self._gate.acquire()
            while self._tasks:
                group = self._group()
                results: list[Any] = [None] * len(group)
                try:
                    if failed is None:
                        db = db or _connect(self._path)
                        lock = claims.shared(self._path) if lock is None else lock
                        results = self._do(db, group)
                except StoreFailed as error:
                    failed = error
                except Exception as error:  # the loop waits for this thread: whatever it meets ends the store
                    failed = StoreFailed(f"{self._path}: {error}: {remedy(error)}")
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._settle, group, results, failed)
        if db is not None:
            db.close()
        if lock is not None:
            claims.release(lock)

    def _group(self) -> list[_Task]:
        """Takes the writes that wait one behind the other; a call is alone."""
        tasks = self._tasks
        group = [tasks.popleft()]
        while group[0].call is None and tasks and tasks[0].call is None and len(group) < GROUP_MAX:
            group.append(tasks.popleft())
        return group

    def _do(self, db: sqlite3.Connection, group: Sequence[_Task]) -> list[Any]:
        with _transaction(db):
            if (call := group[0].call) is not None:
                return [call(db)]
            self._check(db)
            try:
                self._put(db, group)
            except REFUSES_CONTENT as error:
                why = f"{self._path} refuses what was to be written: {error}"
                raise Unstorable(f"{why}: where that repeats, its procedure is parked, and can be bypassed") from error
            return [None] * len(group)

    def _put(self, db: sqlite3.Connection, group: Sequence[_Task]) -> None:
        rows = _rows(group)
        write_rows(db, PUT, [row for row in rows.values() if row is not None])
        write_rows(db, DELETE, [(pid,) for pid, row in rows.items() if row is None])
        if self._rows is not None:
            self._rows.put(db, [row for task in group for row in task.rows])

    def _take_over(self, db: sqlite3.Connection, above: int) -> None:
        if self._rows is not None:
            self._rows.prepare(db, self._path)
        for statement in SCHEMA:
            db.execute(statement)
        self._file = identity(self._path)
        [self._epoch] = db.execute(TAKE_OVER, (above,)).fetchone()

    def _check(self, db: sqlite3.Connection) -> None:
        [epoch] = db.execute("SELECT epoch FROM fence").fetchone()
        if identity(self._path) != self._file:
            raise StoreFailed(replaced(self._path))
        if epoch != self._epoch:
            raise Fenced(fenced(self._path, epoch, self._epoch))

    def _reserve(self, db: sqlite3.Connection, count: int) -> int:
        self._check(db)
        first = sqlite_rows.last_pid(db) + 1
        db.execute("UPDATE fence SET last_pid = ?", (first + count - 1,))
        return first


def _connect(path: Path) -> sqlite3.Connection:
    with contextlib.suppress(OSError):  # SQLite names other faults; a file that is there keeps its mode
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    db = sqlite3.connect(path, timeout=BUSY_MS / 1_000, isolation_level=None)
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA fullfsync = ON")  # where fsync alone leaves the bytes in the disk's cache
    db.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_MAX}")
    return db


def _rows(group: Iterable[_Task]) -> dict[int, _Row | None]:
    """Returns the row that the last write of each record leaves, None where that deletes it."""
    rows: dict[int, _Row | None] = {}
    for task in group:
        for record in task.puts:
            body = codec.encode(record)
            rows[record.pid] = (record.pid, codec.checksum(body), body)
        if task.deletes:
            rows.update(dict.fromkeys(task.deletes))
    return rows


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Begins as a writer, so that another process cannot write in between; commits, or rolls back at an error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
