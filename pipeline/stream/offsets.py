"""Decides which bytes of which files the next batch takes. An offset names each file with its bytes taken and its size.

A file of a journal is taken once it is complete: its daemon appends no more to it. The daemon may truncate the one that
it writes after an error of its disk, so rows of that one do not count yet. A file whose size is another than that of
the last look is taken again from its start, and rows that are there already are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from pipeline.lines import BLOCK_BYTES
from pipeline.storage import Found, found_in, opened

JOURNAL: Final = ".jsonl"
"""Ending of a journal's files."""
BATCH_BYTES_MAX: Final = 1 << 27
"""Of the lines of one batch, which is held in memory."""
FILES_MAX: Final = 200_000
"""Of all folders of a stream: each batch writes down where it stands in each of them."""
CLOSED_AFTER_S: Final = 600
"""A daemon's default for the age of a complete file: ``journal.segment_s_max``."""

Offset = dict[str, list[int]]
"""Bytes that were taken of each file, and its size then."""

_NAME: Final = re.compile(r"(\d{10})-(\d{12})(?:\.(\d+))?\.jsonl")


class TooManyFiles(Exception):
    """The folders have more files than a stream keeps account of; the message says how many."""


class Slice(NamedTuple):
    """Whole lines of a file: bytes from ``begin`` to ``end``."""

    path: str
    begin: int
    end: int


def complete(folders: Sequence[str], now_s: float, closed_after_s: float) -> dict[str, int]:
    """Lists the complete files of folders with their sizes, in the order of their first rows.

    A file is complete that ends with a whole line and has a later one in its folder, or that has not changed for
    ``closed_after_s``. Raises :class:`TooManyFiles`, :class:`~pipeline.storage.NothingToRead`.
    """
    files = [file for folder in folders for file in found_in(folder, JOURNAL)]
    if len(files) > FILES_MAX:
        raise TooManyFiles(
            f"there are {len(files)} files in {', '.join(folders)}, and a stream takes {FILES_MAX}: "
            "move those away that it has read"
        )
    ordered = sorted(files, key=lambda file: (_place(file.path), file.path))
    later = _followed(ordered)
    return {
        file.path: file.size
        for file in ordered
        if file.size and (_idle(file, now_s, closed_after_s) or (file.path in later and _whole(file)))
    }


def waiting(folders: Sequence[str], now_s: float, closed_after_s: float) -> list[str]:
    """Lists the files with rows that are not complete yet; raises as :func:`complete` does."""
    taken = complete(folders, now_s, closed_after_s)
    return [
        file.path for folder in folders for file in found_in(folder, JOURNAL) if file.size and file.path not in taken
    ]


def following(start: Offset, files: Mapping[str, int], bytes_max: int | None) -> Offset:
    """Returns the offset after ``start`` that takes at most ``bytes_max`` more bytes of ``files``; ``start`` if none.

    One line is taken even if it is longer.
    """
    room = bytes_max
    end: Offset = {}
    for path, size in files.items():
        taken, then = start.get(path, (0, size))
        if then != size:
            taken = 0
        if taken < size and (room is None or room > 0):
            upto = size if room is None or size - taken <= room else _line_end(path, taken + room, size)
            room = None if room is None else room - (upto - taken)
            end[path] = [upto, size]
        elif path in start:
            end[path] = start[path]
    return end if any(end[path] != start.get(path) for path in end) else start


def slices(start: Offset, end: Offset) -> list[Slice]:
    """Returns what is to be read between two offsets."""
    found = []
    for path, (taken, size) in end.items():
        before, then = start.get(path, (0, size))
        if [before, then] != [taken, size]:
            found.append(Slice(path, before if then == size else 0, taken))
    return found


def _place(path: str) -> tuple[Any, ...]:
    """Returns the place of a file by its name, as its daemon numbers them; files with other names come last."""
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return (0, int(found[1]), int(found[2]), int(found[3] or 0)) if found else (1,)


def _followed(ordered: Iterable[Found]) -> set[str]:
    """Returns the files that have a later one in their folder."""
    named = [file.path for file in ordered if _place(file.path)[0] == 0]
    folders = groupby(sorted(named, key=_folder), key=_folder)  # the sort keeps the order within a folder
    return {path for _, paths in folders for path in list(paths)[:-1]}


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _idle(file: Found, now_s: float, closed_after_s: float) -> bool:
    return now_s - file.changed_s >= closed_after_s


def _whole(file: Found) -> bool:
    """Checks that the last line has an end: a copy that is on its way, or a torn one, may have none."""
    try:
        with opened(file.path) as stream:
            stream.seek(file.size - 1)
            return bool(stream.read(1) == b"\n")
    except OSError:
        return False  # it is gone again


def _line_end(path: str, at: int, size: int) -> int:
    """Returns where the line ends that has the byte before ``at``; the file's end where there is no more line end."""
    with opened(path) as stream:
        stream.seek(at - 1)
        while at < size:
            read = stream.read(min(BLOCK_BYTES, size - at + 1))
            found = read.find(b"\n")
            if found >= 0 or not read:
                return min(at + found, size) if read else size
            at += len(read)
    return size
