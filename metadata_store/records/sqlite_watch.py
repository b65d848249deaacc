"""Looks whether a SQLite file is still that of the daemon which opened it: in a thread and on a connection of its own.

A look waits for no writer, and takes some 20 us. It compares the files and the epoch, which any daemon raises first.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

from metadata_store.records.claims import FileClaim
from metadata_store.records.port import Fenced, StoreFailed
from metadata_store.records.sqlite_rows import remedy

BUSY_S: Final = 5.0
"""How long another process may keep readers out."""
BEAT_S: Final = 1.0
"""Shortest time between two signs of life for the daemons that stand by."""
BESIDE: Final = ("", "-wal", "-shm")
"""Files of a store, by the ends of their names; SQLite keeps them while a connection is open."""

Identity: TypeAlias = tuple[int, int] | None


def identity(path: Path) -> Identity:
    """Tells a file from another one at its place: writes to a file that was removed would be lost."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class SqliteWatch:
    """Watches a file that is open. ``epoch``: of the daemon that opened it; ``claim``: of the same one."""

    def __init__(self, path: Path, epoch: int, claim: FileClaim) -> None:
        self._path, self._epoch, self._claim = path, epoch, claim
        self._parts = [Path(f"{path}{end}") for end in BESIDE]
        self._thread = ThreadPoolExecutor(1, "regent-claim")
        self._db: sqlite3.Connection | None = None
        self._files: list[Identity] = []
        self._beat_s = -math.inf

    async def look(self) -> None:
        """Returns once the file is proven to be this daemon's; raises :class:`StoreFailed`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._look)

    async def close(self) -> None:
        """Waits for the end of a look, and closes the connection."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _look(self) -> None:
        try:
            self._compare()
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{self._path}: {error}: {remedy(error)}") from error

    def _compare(self) -> None:
        if not self._claim.stands():
            raise StoreFailed(f"{self._claim.path} was removed or replaced, so another daemon may have {self._path}")
        files = [identity(one) for one in self._parts]
        if self._db is None:
            self._files = files
            self._db = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None
            )
            self._db.execute("PRAGMA query_only = ON")
        row = self._db.execute("SELECT epoch FROM fence").fetchone()
        for part, before, now in zip(self._parts, self._files, files, strict=True):
            if now != before:
                raise StoreFailed(replaced(part))
        epoch = row[0] if row else None
        if epoch != self._epoch:
            raise Fenced(fenced(self._path, epoch, self._epoch))
        if time.monotonic() - self._beat_s >= BEAT_S:
            self._claim.beat()
            self._beat_s = time.monotonic()

    def _close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()


def replaced(path: Path) -> str:
    """Returns why a file that is another one, or none, ends a term."""
    return f"{path} was removed or replaced: stop the daemon, and put the file back"


def fenced(path: Path, found: object, ours: int) -> str:
    """Returns why another epoch ends a term."""
    if isinstance(found, int) and found < ours:
        return f"{path}: an older copy was put in its place (epoch {found}, ours {ours}): stop the daemon before that"
    return f"{path}: another daemon took the file over (epoch {found}, ours {ours})"
