"""Names the files of snapshots, ``EPOCH-SEQ.jsonl.gz``; writes each whole or not at all, and removes old ones."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

NAME: Final = re.compile(r"\d{10}-\d{12}(?:\.\d+)?\.jsonl\.gz")
DRAFT: Final = re.compile(r"\.\d{10}-\d{12}(?:\.\d+)?\.jsonl\.gz-\d+\.tmp")
SAME_NAMES_MAX: Final = 1_000
"""Files that may have the same begin: without a journal, or of another cluster with the same epochs."""
MODE: Final = 0o640
LEVEL: Final = 1
"""Of the compression: a higher one takes several times as long for a tenth less."""


def folder_in(state: Path) -> Path:
    """Returns the folder of snapshots in a daemon's state directory."""
    return state / "snapshots"


def snapshots_in(folder: Path) -> list[Path]:
    """Returns the snapshots of a folder, oldest first; none without the folder."""
    found: list[tuple[int, Path]] = []
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if NAME.fullmatch(path.name):
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found)]


class Draft:
    """A file that nobody takes for a snapshot yet; :meth:`complete` gives it its name."""

    def __init__(self, folder: Path, epoch: int, seq: int) -> None:
        self._folder = folder
        self._stem = f"{epoch:010d}-{seq:012d}"
        self._path = folder / f".{self._stem}.jsonl.gz-{os.getpid()}.tmp"
        self._raw = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE), "wb")
        self._zipped = gzip.GzipFile("", "wb", LEVEL, self._raw, mtime=0)

    def write(self, lines: Iterable[bytes]) -> None:
        """Appends lines, each without its end."""
        for line in lines:
            self._zipped.write(line + b"\n")

    def complete(self) -> tuple[Path, int]:
        """Flushes the file to the disk and gives it its name; returns its path and its bytes."""
        self._zipped.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        size = os.fstat(self._raw.fileno()).st_size
        self._raw.close()
        path = self._free_name()
        self._path.rename(path)
        try:
            _sync_folder(self._folder)
        except OSError:
            with suppress(OSError):
                path.unlink()  # its name may not be on the disk
            raise
        return path, size

    def _free_name(self) -> Path:
        for again in range(SAME_NAMES_MAX):
            path = self._folder / (self._stem + (f".{again}" if again else "") + ".jsonl.gz")
            if not path.exists():
                return path
        raise FileExistsError(f"{SAME_NAMES_MAX} files in {self._folder} begin with {self._stem}")

    def drop(self) -> None:
        """Removes the file unless it is complete. Never raises."""
        for closed in (self._zipped, self._raw):
            with suppress(OSError):
                closed.close()
        with suppress(OSError):
            self._path.unlink()


@contextmanager
def draft(folder: Path, epoch: int, seq: int) -> Iterator[Draft]:
    """Provides a draft, and removes it at the end where it is not complete; first removes those of killed writers."""
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    for path in folder.iterdir():
        if DRAFT.fullmatch(path.name):
            path.unlink(missing_ok=True)
    made = Draft(folder, epoch, seq)
    try:
        yield made
    finally:
        made.drop()


def remove_oldest(folder: Path, newest: Path | None, files_max: int, bytes_max: int) -> str:
    """Deletes the oldest snapshots beyond the bounds; never ``newest``, and no file of another name. Never raises.

    ``newest``: by default the last one that the folder has. Passes over files that cannot be removed, and returns the
    cause of the first; nothing where there is none.
    """
    why = ""
    try:
        found = snapshots_in(folder)
        newest = newest or (found[-1] if found else None)
        sizes = {path: path.stat().st_size for path in found}
    except OSError as error:
        return _worded(folder, error)
    total, count = sum(sizes.values()), len(sizes)
    for path, size in sizes.items():
        if count <= files_max and total <= bytes_max:
            break
        if path == newest:
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            why = why or _worded(path, error)
            continue
        total, count = total - size, count - 1
    return why


def _worded(path: Path, error: OSError) -> str:
    return f"{path}: {error.strerror or error}"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
