"""Makes changes of files durable, so that they outlive a crash of the process or of the machine."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Makes the bytes of a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Makes a folder durably in one that exists; another process may do the same at this moment."""
    path.mkdir(exist_ok=True)
    sync(path.parent)


def replace(path: Path, temporary: Path, content: bytes) -> None:
    """Replaces a file at once and durably, by way of a file ``temporary`` that no other process writes."""
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        append(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)
    temporary.replace(path)
    sync(path.parent)


def append(handle: int, data: bytes) -> None:
    """Appends all bytes to an open file."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
