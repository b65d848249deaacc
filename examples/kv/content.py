"""Declares the content of a region, and its form as a file: a small SQLite database that is written as a whole.

A file has all entries of its region, or it refers to sources: to the files of other regions, whose entries in its own
range come first. Then it has only the entries that are newer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from examples.kv.records import Edit
from regent_agent.protocol import Source

SCHEMA: Final = """
CREATE TABLE region (sequence INTEGER NOT NULL);
CREATE TABLE entry (key BLOB PRIMARY KEY, value BLOB NOT NULL, sequence INTEGER NOT NULL) WITHOUT ROWID;
"""
SOURCES: Final = """
CREATE TABLE IF NOT EXISTS source (
    region INTEGER NOT NULL, start BLOB NOT NULL, end BLOB NOT NULL, token INTEGER NOT NULL,
    sequence INTEGER NOT NULL, snapshot TEXT NOT NULL
);
"""
"""Files of servers before this version have no such table."""


class Entry(NamedTuple):
    """Holds a value. ``sequence``: of the edit that set it, which is the version of the key."""

    value: bytes
    sequence: int


class Content(msgspec.Struct):
    """Holds all entries of a region. ``sequence``: of the last edit, or of the open where that is later.

    ``sources``: what its file refers to; ``inherited``: the highest sequence number of their regions.
    """

    sequence: int
    entries: dict[bytes, Entry]
    sources: tuple[Source, ...] = ()
    inherited: int = 0

    def inherit(self, found: Content, start: bytes, end: bytes) -> None:
        """Takes what a source has in a range of keys; what the region itself has of them is newer."""
        within = {key: entry for key, entry in found.entries.items() if in_range(key, start, end)}
        self.entries = within | self.entries
        self.inherited = max(self.inherited, found.sequence)
        self.sequence = max(self.sequence, found.sequence)

    def replay(self, edits: Iterable[Edit]) -> None:
        """Applies the edits that follow each other without a gap; behind a gap none was acknowledged."""
        for edit in sorted(edits, key=lambda edit: edit.sequence):
            if edit.sequence > self.sequence + 1:
                break
            if edit.sequence == self.sequence + 1:
                self.entries[edit.key] = Entry(edit.value, edit.sequence)
                self.sequence = edit.sequence


def in_range(key: bytes, start: bytes, end: bytes) -> bool:
    """Says whether a key is in a range; an empty ``end`` has no end."""
    return start <= key and (not end or key < end)


def read(path: Path) -> Content:
    """Reads a whole version of a file, also while its owner replaces it; not what it refers to."""
    image = path.read_bytes()
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(image)
        db.executescript(SOURCES)
        [sequence] = db.execute("SELECT sequence FROM region").fetchone()
        rows = db.execute("SELECT key, value, sequence FROM entry")
        entries = {key: Entry(value, version) for key, value, version in rows}
        sources = db.execute("SELECT region, start, end, token, sequence, snapshot FROM source")
        return Content(sequence, entries, tuple(Source(*row) for row in sources))


def image(content: Content) -> bytes:
    """Returns a content as the bytes of a file."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.executescript(SCHEMA + SOURCES)
        db.execute("BEGIN")
        db.execute("INSERT INTO region VALUES (?)", (content.sequence,))
        db.executemany("INSERT INTO source VALUES (?, ?, ?, ?, ?, ?)", map(msgspec.structs.astuple, content.sources))
        own = (item for item in content.entries.items() if not content.sources or item[1].sequence > content.inherited)
        # In the order of keys the pages are filled one after the other, which takes half the time.
        rows = ((key, entry.value, entry.sequence) for key, entry in sorted(own))
        db.executemany("INSERT INTO entry VALUES (?, ?, ?)", rows)
        db.execute("COMMIT")
        return db.serialize()
