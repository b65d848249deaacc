"""Keeps the content of a region in files that succeed each other, one for each owner: ``regions/ID/TOKEN.sqlite``.

An owner replaces only the file with its own token, and makes it before it takes the first edit. The file has all that
owners before acknowledged, and some of its own edits, in order. A log has the others (see ``logs``).

Opening with token T takes the newest file below T. On top of it come the recovered edits of the same token, in order
of their sequence numbers. The opener writes the result as file T, and only then deletes what belongs to lower tokens.

No acknowledged edit is lost. Let B be the token of the newest file. File B has the edits of owners before B. Owners
after B made no file, so they took no edit. An acknowledged edit of B itself is in file B, or it was durable in the log
before the marker. In the second case the split found it, and all edits before it. A gap in the numbers comes only from
edits that were never acknowledged, so the edits behind it were not acknowledged either.

No unacknowledged edit overwrites an acknowledged one. A process that was frozen may go on to write its file, its log
and recovered edits, all with its token B. Once file T exists, no opener takes anything with token B any more. An opener
may take what was written before that. Such an edit is older than all edits of T, as if it had been answered in time.

Deleting is safe, also by a process that was frozen while it opened. It deletes only what is below its own token, once
its own file is there. Another opener that reads meanwhile looks again at the end, finds a newer file, and begins anew.

A region that a split or a merge made has no file at first, and its open names sources: regions whose files have its
keys. They were closed with all their edits in these files, and no owner ever opens them again. The first file of an
heir refers to them, so that it is small, and each later owner reads them again. A file that has all entries refers to
nothing. Once it is durable, the server says that the region is independent, and the sources may be discarded.

The daemon provides three things. A region opens only after its last owner has closed it, or was fenced and its log was
split. A token is never used twice. And sources stay as long as a region refers to them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from examples.kv import content as contents
from examples.kv import files, snapshots
from examples.kv.content import Content
from examples.kv.records import Edit, decode
from regent_agent.protocol import Source
from regent_agent.service import LowToken, OpenedRegion

OWNER_FILE: Final = re.compile(r"(\d{20})\.sqlite")
RECOVERED: Final = re.compile(r"(\d{20}),[^,]+,\d+,\d{10}\.log")
OF_TOKEN: Final = re.compile(r"(\d{20})[.,].*")
"""Everything that belongs to an owner, temporary files included."""
READS_MAX: Final = 100
"""Owners that may come between while a region is read."""


class StaleOwner(LowToken):
    """Another owner has opened the region with a higher token."""


class Lost(Exception):
    """The folder of a region, or one of its sources, misses what was written there."""


def folder_of(data: Path, region: int) -> Path:
    """Returns the folder of a region."""
    return data / "regions" / str(region)


def open_content(data: Path, region: OpenedRegion) -> Content:
    """Reads a region as a new owner and makes the owner's file.

    The open takes a sequence number itself. Raises :class:`StaleOwner` and :class:`Lost`.
    """
    folder = folder_of(data, region.region)
    if not _has_file(folder):
        files.make_folder(data / "regions")
        files.make_folder(folder)
    (folder / "recovered").mkdir(exist_ok=True)  # durable with the file
    content = load(data, region)
    if content.sequence < region.sequence:
        raise Lost(
            f"{folder} ends at edit {content.sequence}, and its last open was {region.sequence}: restore the folder"
        )
    content.sequence += 1
    save(data, region.region, region.token, content)
    _tidy(folder, region.token)
    return content


def _has_file(folder: Path) -> bool:
    """Checks whether an owner has made its file, and before that the folder, durably."""
    return folder.is_dir() and any(OWNER_FILE.fullmatch(one.name) for one in folder.iterdir())


def load(data: Path, region: OpenedRegion) -> Content:
    """Reads what the owners before this one left, or else what its sources have; raises :class:`StaleOwner`."""
    folder = folder_of(data, region.region)
    for _ in range(READS_MAX):
        base = _newest(folder, region.token)
        try:
            content = _read(data, region.region, base) if base is not None else Content(0, {}, tuple(region.sources))
        except FileNotFoundError:
            continue
        if _newest(folder, region.token) == base:
            for source in content.sources:
                content.inherit(_read_source(data, source), region.start, region.end)
            return content
    raise Lost(f"{folder} changed {READS_MAX} times while it was read: look which processes write to it")


def save(data: Path, region: int, token: int, content: Content) -> None:
    """Writes a content to the file of an owner, at once and durably."""
    path = file_of(data, region, token)
    files.replace(path, path.with_suffix(".tmp"), contents.image(content))


def discard(data: Path, region: int) -> None:
    """Deletes all that is left of a region which no longer exists.

    It may have been begun before. Raises OSError also where another process does the same, or adds edits of a log.
    """
    if (folder := folder_of(data, region)).is_dir():
        shutil.rmtree(folder)
        files.sync(folder.parent)


def file_of(data: Path, region: int, token: int) -> Path:
    """Returns the file of an owner."""
    return folder_of(data, region) / f"{token:020}.sqlite"


def _newest(folder: Path, token: int) -> int | None:
    names = (OWNER_FILE.fullmatch(path.name) for path in folder.iterdir())
    found = max((int(match[1]) for match in names if match), default=None)
    if found is not None and found >= token:
        raise StaleOwner(found, token)
    return found


def _read(data: Path, region: int, token: int) -> Content:
    """Reads what an owner left: its file, and its edits that were recovered from a log."""
    content = contents.read(file_of(data, region, token))
    content.replay(_recovered(folder_of(data, region), token))
    return content


def _read_source(data: Path, source: Source) -> Content:
    """Reads a region that another one refers to, or its copy in a snapshot; raises :class:`Lost`."""
    try:
        if source.snapshot:
            content = contents.read(snapshots.file_of(data, source.snapshot, source.region, source.token))
        else:
            content = _read(data, source.region, source.token)
    except FileNotFoundError as error:
        raise Lost(f"{error.filename} is missing, which other regions refer to: restore it") from error
    if content.sequence < source.sequence or content.sources:
        raise Lost(
            f"region {source.region}, token {source.token}, ends at edit {content.sequence} and refers to "
            f"{len(content.sources)} regions; expected {source.sequence} at least, and none: restore its file"
        )
    return content


def _recovered(folder: Path, token: int) -> Iterator[Edit]:
    for path in (folder / "recovered").iterdir():
        match = RECOVERED.fullmatch(path.name)
        if match and int(match[1]) == token:
            yield from decode(path.read_bytes())[0]


def _tidy(folder: Path, token: int) -> None:
    """Deletes what belongs to owners before, all of which is in the file of ``token``."""
    for place in (folder, folder / "recovered"):
        for path in place.iterdir():
            match = OF_TOKEN.fullmatch(path.name)
            if match and int(match[1]) < token:
                path.unlink(missing_ok=True)
