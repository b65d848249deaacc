"""Writes and removes files of a bronze folder; an error of the file system names the file, the cause and the remedy."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pipeline.storage import first_line, remove, written

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class CannotMerge(Exception):
    """A file cannot be read or written; the message names it, the cause, and the remedy."""


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Raises :class:`CannotMerge` about ``path`` for an error of the file system."""
    try:
        yield
    except OSError as error:
        raise CannotMerge(reason(error, path)) from None


def reason(error: OSError, path: str) -> str:
    """Words an error of a file system with its remedy."""
    if error.errno in FULL:
        return f"there is no room left to write {path}: free some, or name another folder, and run it again"
    return f"{path}: {first_line(error)}"


def write(path: str, run: str, content: bytes) -> None:
    """Writes a small file whole, or not at all. Raises :class:`CannotMerge`."""
    with writing(path), written(path, run) as stream:
        stream.write(content)


def discard(path: str) -> None:
    """Removes a file if it is there. Raises :class:`CannotMerge`."""
    with writing(path):
        remove(path)
