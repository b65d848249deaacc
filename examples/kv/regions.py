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

The daemon provides two things. A region opens only after its last owner has closed it, or was fenced and its log was
split. And a token is never used twice.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from examples.kv import files
from examples.kv.records import Edit, decode
from regent_agent.service import LowToken

OWNER_FILE: Final = re.compile(r"(\d{20})\.sqlite")
RECOVERED: Final = re.compile(r"(\d{20}),[^,]+,\d+,\d{10}\.log")
OF_TOKEN: Final = re.compile(r"(\d{20})[.,].*")
"""Everything that belongs to an owner, temporary files included."""
READS_MAX: Final = 100
"""Owners that may come between while a region is read."""
SCHEMA: Final = """
CREATE TABLE region (sequence INTEGER NOT NULL);
CREATE TABLE entry (key BLOB PRIMARY KEY, value BLOB NOT NULL, sequence INTEGER NOT NULL) WITHOUT ROWID;
"""


class StaleOwner(LowToken):
    """Another owner has opened the region with a higher token."""


class Lost(Exception):
    """The folder of a region misses what its last owner had written."""


class Entry(NamedTuple):
    """Holds a value. ``sequence``: of the edit that set it, which is the version of the key."""

    value: bytes
    sequence: int


class Content(msgspec.Struct):
    """Holds all entries of a region. ``sequence``: of the last edit, or of the open where that is later."""

    sequence: int
    entries: dict[bytes, Entry]


def open_content(data: Path, region: int, token: int, sequence: int) -> Content:
    """Reads a region as a new owner and makes the owner's file; ``sequence`` is that of the last open.

    The open takes a sequence number itself. Raises :class:`StaleOwner` and :class:`Lost`.
    """
    folder = data / "regions" / str(region)
    files.make_folder(data / "regions")
    files.make_folder(folder)
    files.make_folder(folder / "recovered")
    content = load(folder, token)
    if content.sequence < sequence:
        raise Lost(f"{folder} ends at edit {content.sequence}, and its last open was {sequence}: restore the folder")
    content.sequence += 1
    save(data, region, token, content)
    _tidy(folder, token)
    return content


def load(folder: Path, token: int) -> Content:
    """Reads what the owners before ``token`` left; raises :class:`StaleOwner`."""
    for _ in range(READS_MAX):
        base = _newest(folder, token)
        if base is None:
            return Content(0, {})
        try:
            content = _read(_file_of(folder, base))
            _replay(content, base, _recovered(folder, base))
        except FileNotFoundError:
            continue
        if _newest(folder, token) == base:
            return content
    raise Lost(f"{folder} changed {READS_MAX} times while it was read: look which processes write to it")


def save(data: Path, region: int, token: int, content: Content) -> None:
    """Writes all entries to the file of an owner, at once and durably."""
    path = _file_of(data / "regions" / str(region), token)
    files.replace(path, path.with_suffix(".tmp"), _image(content))


def _file_of(folder: Path, token: int) -> Path:
    return folder / f"{token:020}.sqlite"


def _newest(folder: Path, token: int) -> int | None:
    names = (OWNER_FILE.fullmatch(path.name) for path in folder.iterdir())
    found = max((int(match[1]) for match in names if match), default=None)
    if found is not None and found >= token:
        raise StaleOwner(found, token)
    return found


def _recovered(folder: Path, token: int) -> Iterator[Edit]:
    for path in (folder / "recovered").iterdir():
        match = RECOVERED.fullmatch(path.name)
        if match and int(match[1]) == token:
            yield from decode(path.read_bytes())[0]


def _replay(content: Content, token: int, edits: Iterable[Edit]) -> None:
    """Applies the edits that follow each other without a gap; behind a gap none was acknowledged."""
    for edit in sorted(edits, key=lambda edit: edit.sequence):
        if edit.sequence > content.sequence + 1:
            break
        if edit.sequence == content.sequence + 1:
            content.entries[edit.key] = Entry(edit.value, edit.sequence)
            content.sequence = edit.sequence


def _read(path: Path) -> Content:
    """Reads a whole version of an owner's file, also while its owner replaces it."""
    image = path.read_bytes()
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(image)
        [sequence] = db.execute("SELECT sequence FROM region").fetchone()
        rows = db.execute("SELECT key, value, sequence FROM entry")
        return Content(sequence, {key: Entry(value, version) for key, value, version in rows})


def _image(content: Content) -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.executescript(SCHEMA)
        db.execute("BEGIN")
        db.execute("INSERT INTO region VALUES (?)", (content.sequence,))
        # In the order of keys the pages are filled one after the other, which takes half the time.
        rows = ((key, entry.value, entry.sequence) for key, entry in sorted(content.entries.items()))
        db.executemany("INSERT INTO entry VALUES (?, ?, ?)", rows)
        db.execute("COMMIT")
        return db.serialize()


def _tidy(folder: Path, token: int) -> None:
    """Deletes what belongs to owners before, all of which is in the file of ``token``."""
    for place in (folder, folder / "recovered"):
        for path in place.iterdir():
            match = OF_TOKEN.fullmatch(path.name)
            if match and int(match[1]) < token:
                path.unlink(missing_ok=True)
