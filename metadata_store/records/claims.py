"""Locks and claims a SQLite store by files beside it, which name the daemon that has it and show that it lives.

The kernel frees the lock with its process, however that ends. A daemon that is frozen keeps it: the time of the file,
which the holder sets again and again, stands still then. Others compare it with itself, never with a clock of theirs.
Daemons fence each other by the epoch in the file, not by the lock.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from metadata_store.records.files import give

WAIT_S_MAX: Final = 5.0
"""How long a daemon waits for the end of a repair."""
POLL_S: Final = 0.05


class Locked(Exception):
    """Another process has the lock."""


def shared(store: Path) -> int:
    """Takes the lock of a daemon; raises :class:`Locked` where a repair lasts, and OSError."""
    ends_s = time.monotonic() + WAIT_S_MAX
    while True:
        try:
            return _locked(store, fcntl.LOCK_SH)
        except Locked:
            if time.monotonic() >= ends_s:
                raise
        time.sleep(POLL_S)


def alone(store: Path) -> int:
    """Takes the lock of a repair; raises :class:`Locked` where a daemon has the store open, and OSError."""
    return _locked(store, fcntl.LOCK_EX)


def release(lock: int) -> None:
    """Frees a lock."""
    os.close(lock)


def path_of(store: Path) -> Path:
    """Returns the file that is locked for a store."""
    return store.with_name(f"{store.name}.lock")


def stands(store: Path, lock: int) -> bool:
    """Checks whether a lock is that of the file which others lock: a file that was removed keeps no process out."""
    try:
        there = path_of(store).stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(lock), there)


def _locked(store: Path, kind: int) -> int:
    path = path_of(store)
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            give(lock, path)
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
            if stands(store, lock):
                return lock
        except BlockingIOError:
            os.close(lock)
            raise Locked(f"{path} is locked by another process") from None
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # it was removed meanwhile: another process may have the lock of the next one


class Holder(msgspec.Struct, frozen=True):
    """A daemon. ``pid`` 0: an older one, which does not name itself. ``socket``: where its operators send requests.

    ``level``: the highest one of a store of regions that it knows, 0 where it names none.
    """

    host: str = ""
    pid: int = 0
    socket: str = ""
    level: int = 0

    def __str__(self) -> str:
        return f"the daemon on {self.host or 'a host that it does not name'} (pid {self.pid})"

    @property
    def command(self) -> str:
        """Returns the end of a sentence: the command that sends requests to it; empty where it names no socket."""
        if not self.socket:
            return ""
        return (
            f"; 'regent --server {self.socket}' on {'this machine' if self.is_here else self.host} sends requests to it"
        )

    @property
    def is_here(self) -> bool:
        """Checks whether it runs on this machine, or says so."""
        return self.host == socket.gethostname()


def this(http_socket: str = "", level: int = 0) -> Holder:
    """Returns this process."""
    return Holder(socket.gethostname(), os.getpid(), http_socket, level)


def encode(holder: Holder) -> bytes:
    """Encodes a daemon."""
    return msgspec.json.encode(holder)


def decode(data: bytes | None) -> Holder:
    """Decodes a daemon; one without a name where the bytes are none."""
    try:
        return msgspec.json.decode(data or b"", type=Holder)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Holder()


class FileClaim:
    """A claim that this process has; raises :class:`Locked` where another one has it, and OSError.

    ``socket``: where this daemon's operators send requests.
    """

    def __init__(self, store: Path, socket: str = "") -> None:
        self._beside = beside(store)
        self._lock = alone(self._beside)
        try:
            os.truncate(self._lock, 0)
            os.pwrite(self._lock, encode(this(socket)), 0)
        except BaseException:
            release(self._lock)
            raise

    @property
    def path(self) -> Path:
        """Returns the file whose lock is the claim."""
        return path_of(self._beside)

    def stands(self) -> bool:
        """Checks whether other daemons still find the lock; blocks."""
        return stands(self._beside, self._lock)

    def beat(self) -> None:
        """Shows that this process lives; blocks."""
        os.utime(self._lock)

    def release(self) -> None:
        """Gives the claim up."""
        release(self._lock)


class Other:
    """What a daemon that stands by sees of the one that has the claim."""

    def __init__(self, store: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path_of(beside(store)), clock
        self._beat_ns = 0
        self._beat_s = clock()
        self.holder = Holder()

    def look(self) -> float:
        """Returns the seconds since the holder was seen to live, as this process has measured them."""
        now_s = self._clock()
        try:
            beat_ns, found = self._path.stat().st_mtime_ns, decode(self._path.read_bytes())
        except OSError:
            return 0.0  # it is gone, or about to be written
        if (beat_ns, found) != (self._beat_ns, self.holder):
            self._beat_ns, self._beat_s, self.holder = beat_ns, now_s, found
        return now_s - self._beat_s


def beside(store: Path) -> Path:
    """Returns the name beside the store whose lock is the claim."""
    return store.with_name(f"{store.name}-claim")
