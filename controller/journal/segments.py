"""Writes the journal's files: ``EPOCH-SEQ.jsonl``, named by their first row, rolled by size and age, bounded on disk.

A file belongs to one term. Rows that an error cut short are truncated where the disk permits it; a reader skips a torn
last line. Only files with such names are ever deleted. One thread uses it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

NAME: Final = re.compile(r"(\d{10})-(\d{12})(?:\.(\d+))?\.jsonl")
SAME_NAMES_MAX: Final = 100
"""Files that may begin with the same row: of another cluster with the same epochs, or after errors."""
MODE: Final = 0o640


def folder_in(state: Path) -> Path:
    """Returns the journal's folder in a daemon's state directory."""
    return state / "events"


def regions_folder_in(state: Path) -> Path:
    """Returns the folder of the regions' journal, whose epochs are those of another store."""
    return folder_in(state) / "regions"


class SegmentName(NamedTuple):
    """Parts of a file's name. Names sort as their rows do; ``again`` numbers files with the same first row."""

    epoch: int
    seq: int
    again: int

    @classmethod
    def of(cls, path: Path) -> SegmentName | None:
        """Parses a path; returns None for any other file."""
        found = NAME.fullmatch(path.name)
        return cls(int(found[1]), int(found[2]), int(found[3] or 0)) if found is not None else None

    def __str__(self) -> str:
        again = f".{self.again}" if self.again else ""
        return f"{self.epoch:010d}-{self.seq:012d}{again}.jsonl"


def segments_in(journal: Path | Sequence[Path]) -> list[Path]:
    """Returns the files of a folder, or of those of several daemons, in the order of their first rows."""
    found = [each for folder in ([journal] if isinstance(journal, Path) else journal) for each in _files(folder)]
    return [path for _, path in sorted(found, key=lambda pair: (SegmentName.of(pair[1]) or (), pair[0]))]


def _files(folder: Path) -> list[tuple[int, Path]]:
    """Returns the files of one folder with the times of their last change; none without the folder."""
    try:
        return [(path.stat().st_mtime_ns, path) for path in folder.iterdir() if SegmentName.of(path) is not None]
    except FileNotFoundError:
        return []


def last_epoch_in(folder: Path) -> int:
    """Returns the highest epoch of which the folder has rows; 0 without any."""
    return max((name.epoch for name in map(SegmentName.of, segments_in(folder)) if name is not None), default=0)


class Bounds(NamedTuple):
    """Bounds of the folder and of one file. Sizes in bytes, times in seconds."""

    bytes_max: int
    age_s_max: float
    segment_bytes: int
    segment_s: float


class Segments:
    """Appends to the newest file. After an ``OSError``, :meth:`abandon` makes the next call begin a new file.

    ``sync``: whether files are flushed to the disk, by :meth:`sync` and when one is full.
    """

    def __init__(self, folder: Path, bounds: Bounds, *, sync: bool, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self.bytes_on_disk = 0
        self._bounds = bounds
        self._sync = sync
        self._clock = clock
        self._file: int | None = None
        self._path = folder
        self._epoch = 0
        self._size = 0
        self._safe = 0
        self._opened_s = 0.0

    def append(self, epoch: int, seq: int, data: bytes) -> None:
        """Appends whole lines of a term; the first line is row ``seq``."""
        if self._file is None or epoch != self._epoch or self._full(len(data)):
            self.close()
            self._begin(epoch, seq)
        assert self._file is not None
        view = memoryview(data)
        while view:
            written = os.write(self._file, view)
            view = view[written:]
            self._size += written
            self.bytes_on_disk += written

    def sync(self) -> None:
        """Flushes the appended lines to the disk."""
        if self._file is not None and self._size > self._safe:
            if self._sync:
                os.fdatasync(self._file)
            self._safe = self._size

    def abandon(self) -> None:
        """Truncates the file to the last :meth:`sync` and closes it, after an error. Never raises."""
        file, self._file = self._file, None
        if file is None:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(file, self._safe)
            self.bytes_on_disk -= self._size - self._safe
        with contextlib.suppress(OSError):
            os.close(file)
        if not self._safe:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def close(self) -> None:
        """Completes the file."""
        if self._file is not None:
            self.sync()
            file, self._file = self._file, None
            os.close(file)

    def expire(self) -> None:
        """Deletes the oldest files beyond the bounds, so that one more fits; never the present one."""
        present = [(path, path.stat()) for path in segments_in(self.folder) if self._file is None or path != self._path]
        total = sum(stat.st_size for _, stat in present) + (self._size if self._file is not None else 0)
        room = self._bounds.bytes_max - (self._bounds.segment_bytes if self._file is None else 0)
        oldest_s = self._clock() - self._bounds.age_s_max
        for path, stat in sorted(present, key=lambda pair: pair[1].st_mtime_ns):
            if total > room or stat.st_mtime < oldest_s:
                path.unlink(missing_ok=True)
                total -= stat.st_size
        self.bytes_on_disk = total

    def _full(self, more: int) -> bool:
        old = self._clock() - self._opened_s >= self._bounds.segment_s
        return self._size > 0 and (self._size + more > self._bounds.segment_bytes or old)

    def _begin(self, epoch: int, seq: int) -> None:
        self.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.expire()
        for again in range(SAME_NAMES_MAX):
            self._path = self.folder / str(SegmentName(epoch, seq, again))
            try:
                self._file = os.open(
                    self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, MODE
                )
                break
            except FileExistsError:
                continue
        else:
            raise FileExistsError(f"{self._path} exists, and {SAME_NAMES_MAX} others that begin with the same row")
        self._epoch, self._size, self._safe, self._opened_s = epoch, 0, 0, self._clock()
        if self._sync:
            sync_folder(self.folder)


def sync_folder(folder: Path) -> None:
    """Flushes the file's name to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
