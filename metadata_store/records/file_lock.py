"""Locks a SQLite store by a file beside it: daemons share the lock while they live, a repair has it alone.

The kernel frees a lock with its process, however that ends. Daemons fence each other by the epoch in the file instead.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

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
