"""Fences and splits the logs of servers, without locks: a frozen process could hold a lock for ever.

A process has a folder of its own, ``logs/NAME,INCARNATION``, with segments 1, 2, 3 and so on. It answers a client
only after (1) its records are durable, and then (2) a look that finds no marker ``FENCED`` in the folder.
:func:`fence` makes the marker durable, and only then does :func:`split` read segments. So a record that was durable
before the marker is split. A process whose record came later finds the marker, and never answers. It may have been
frozen for any time in between.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections import defaultdict
from pathlib import Path
from typing import Final

from examples.kv import files
from examples.kv.records import Edit, decode, encode

MARKER: Final = "FENCED"
SERVER: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""Names of servers: they are part of names of files."""
SEGMENT: Final = re.compile(r"(\d{10})\.log")
NEWEST: Final = ",newest"
"""End of the part that is the newest segment of a fenced log."""

logger = logging.getLogger("kv.logs")


class Corrupt(Exception):
    """Bytes that were durable are not what was written; the text names the file."""


def folder_of(data: Path, server: str, incarnation: int) -> Path:
    """Returns the folder with the log of one process; raises ValueError for a name that no file can have."""
    if not SERVER.fullmatch(server):
        raise ValueError(f"a server named {server!r}: letters, digits, '.', '_' and '-' are possible")
    return data / "logs" / f"{server},{incarnation}"


def make_folder(data: Path, server: str, incarnation: int) -> Path:
    """Makes the folder of a process durably, with all folders above it, and returns it."""
    folder = folder_of(data, server, incarnation)
    data.mkdir(parents=True, exist_ok=True)
    files.make_folder(folder.parent)
    files.make_folder(folder)
    return folder


def name_of(segment: int) -> str:
    """Returns the file name of a segment."""
    return f"{segment:010}.log"


def segments(folder: Path) -> list[str]:
    """Lists the file names of a log's segments, oldest first."""
    return sorted(path.name for path in folder.iterdir() if SEGMENT.fullmatch(path.name))


def fence(data: Path, server: str, incarnation: int) -> list[str]:
    """Keeps a process from answering any client, also one that never began its log; returns the parts of the log.

    A part is the name of a segment. The newest one may end with a torn record, and its part says so.
    """
    folder = make_folder(data, server, incarnation)
    marker = folder / MARKER
    marker.touch()
    files.sync(marker)
    files.sync(folder)
    parts = segments(folder)
    return [*parts[:-1], *(f"{part}{NEWEST}" for part in parts[-1:])]


def split(data: Path, server: str, incarnation: int, part: str) -> None:
    """Copies the edits of one part of a fenced log to their regions, then deletes the segment.

    It may be done again, and by two processes at once: both write the same edits under the same name. A segment that is
    missing was split before, or its process deleted it after a flush of all its edits. Late records of a process that
    was frozen may make the second copy longer. They were never acknowledged, and do no harm (see ``regions``).
    """
    name = part.removesuffix(NEWEST)
    if not SEGMENT.fullmatch(name):
        raise ValueError(f"{part!r} is no part of a log")
    folder = folder_of(data, server, incarnation)
    if not (folder / MARKER).exists():
        raise ValueError(f"the log {folder} is not fenced; fence it before it is split")
    try:
        content = (folder / name).read_bytes()
    except FileNotFoundError:
        return
    edits = _whole(folder / name, content, part != name)
    by_owner: defaultdict[tuple[int, int], list[Edit]] = defaultdict(list)
    for edit in edits:
        by_owner[edit.region, edit.token].append(edit)
    for (region, token), found in by_owner.items():
        _recover(data, region, f"{token:020},{server},{incarnation},{name}", found)
    (folder / name).unlink(missing_ok=True)
    logger.info(
        "log split: %s, %d edits of %d owners of regions are recovered", folder / name, len(edits), len(by_owner)
    )


def _whole(segment: Path, content: bytes, newest: bool) -> list[Edit]:
    """Decodes a segment; a log may end within a record, where its process died in the middle of a write."""
    edits, end = decode(content)
    if end < len(content):
        rest = len(content) - end
        if not newest:
            raise Corrupt(
                f"{segment}: the last {rest} bytes are no records; restore the file, then split the log again"
            )
        logger.warning("log ends torn: %s, %d bytes that were never acknowledged; they are left out", segment, rest)
    return edits


def _recover(data: Path, region: int, name: str, edits: list[Edit]) -> None:
    files.make_folder(data / "regions")
    files.make_folder(data / "regions" / str(region))
    folder = data / "regions" / str(region) / "recovered"
    files.make_folder(folder)
    content = b"".join(map(encode, edits))
    files.replace(folder / name, folder / f"{name}.{secrets.token_hex(8)}.tmp", content)
