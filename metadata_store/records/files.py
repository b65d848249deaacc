"""Makes files of a store durable, copies them as bytes, and gives what root makes to the owner of the folder."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Final

OWNER_ONLY: Final = 0o600
"""Permissions of copies: a store has options of tables, and reasons of operators."""


def synced(path: Path) -> None:
    """Returns once the bytes of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def copied(source: Path, into: Path) -> None:
    """Copies a file durably under a new name, which it has once it is whole."""
    part = into.with_name(f"{into.name}.part")
    try:
        made(part)
        shutil.copyfile(source, part)
        synced(part)
        part.replace(into)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def made(path: Path) -> None:
    """Makes a file empty, for the user of the daemon alone."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY)
    try:
        give(handle, path)
    finally:
        os.close(handle)


def give(handle: int, path: Path) -> None:
    """Gives a file of root to the owner of its folder, who could not open it otherwise."""
    if os.geteuid():
        return
    owner = path.absolute().parent.stat()
    if os.fstat(handle).st_uid == 0 != owner.st_uid:
        os.fchown(handle, owner.st_uid, owner.st_gid)


def room_wanted(error: Exception) -> bool:
    """Checks whether a disk, a quota or a bound of the process was full."""
    if isinstance(error, OSError):
        return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    return isinstance(error, sqlite3.Error) and ("full" in str(error) or "disk I/O error" in str(error))
