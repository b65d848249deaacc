"""Claims a SQLite store for one daemon: a lock of a file beside it, which names its holder and shows that it lives.

The kernel frees the lock with its process, however that ends. A daemon that is frozen keeps it: the time of the file,
which the holder sets again and again, stands still then. Others compare it with itself, never with a clock of theirs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from metadata_store.records import file_lock, holder
from metadata_store.records.holder import Holder


class FileClaim:
    """A claim that this process has; raises :class:`file_lock.Locked` where another one has it, and OSError.

    ``socket``: where this daemon's operators send requests.
    """

    def __init__(self, store: Path, socket: str = "") -> None:
        self._beside = beside(store)
        self._lock = file_lock.alone(self._beside)
        try:
            os.truncate(self._lock, 0)
            os.pwrite(self._lock, holder.encode(holder.this(socket)), 0)
        except BaseException:
            file_lock.release(self._lock)
            raise

    @property
    def path(self) -> Path:
        """Returns the file whose lock is the claim."""
        return file_lock.path_of(self._beside)

    def stands(self) -> bool:
        """Checks whether other daemons still find the lock; blocks."""
        return file_lock.stands(self._beside, self._lock)

    def beat(self) -> None:
        """Shows that this process lives; blocks."""
        os.utime(self._lock)

    def release(self) -> None:
        """Gives the claim up."""
        file_lock.release(self._lock)


class Other:
    """What a daemon that stands by sees of the one that has the claim."""

    def __init__(self, store: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = file_lock.path_of(beside(store)), clock
        self._beat_ns = 0
        self._beat_s = clock()
        self.holder = Holder()

    def look(self) -> float:
        """Returns the seconds since the holder was seen to live, as this process has measured them."""
        now_s = self._clock()
        try:
            beat_ns, found = self._path.stat().st_mtime_ns, holder.decode(self._path.read_bytes())
        except OSError:
            return 0.0  # it is gone, or about to be written
        if (beat_ns, found) != (self._beat_ns, self.holder):
            self._beat_ns, self._beat_s, self.holder = beat_ns, now_s, found
        return now_s - self._beat_s


def beside(store: Path) -> Path:
    """Returns the name beside the store whose lock is the claim."""
    return store.with_name(f"{store.name}-claim")
