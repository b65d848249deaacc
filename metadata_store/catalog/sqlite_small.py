"""Keeps rows that come one at a time in tables of a SQLite file; lists in them are JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_origin, get_type_hints

import msgspec

from metadata_store.catalog.rows import (
    NAMES,
    HeirRow,
    ParentRow,
    PublishedRow,
    Small,
    SnapshotPartRow,
    SnapshotRow,
)


class SmallTable:
    """Reads and writes one kind of row. ``name``: of the table; ``keys``: the columns that name a row."""

    def __init__(self, kind: type[Small], name: str, *keys: str) -> None:
        assert len(keys) == NAMES[kind]
        self.name = name
        self._kind = kind
        self._lists: Mapping[int, Any] = {
            at: hint for at, hint in enumerate(get_type_hints(kind).values()) if get_origin(hint) is tuple
        }
        self._put = f"INSERT OR REPLACE INTO {name} VALUES ({', '.join('?' * len(kind._fields))})"  # noqa: S608 - a constant
        self._drop = f"DELETE FROM {name} WHERE {' AND '.join(f'{key} = ?' for key in keys)}"  # noqa: S608 - constants

    def made(self, *cells: Any) -> Any:
        """Makes a row; lists that are no JSON of their kind stay as they are, and are judged so."""
        values = list(cells)
        for at, hint in self._lists.items():
            try:
                values[at] = msgspec.json.decode(values[at], type=hint)
            except (msgspec.DecodeError, ValueError, TypeError):
                continue
        return self._kind(*values)

    def put(self, db: sqlite3.Connection, row: Small) -> None:
        """Inserts or replaces a row."""
        cells: list[Any] = list(row)
        for at in self._lists:
            cells[at] = msgspec.json.encode(cells[at]).decode()
        db.execute(self._put, cells)

    def drop(self, db: sqlite3.Connection, names: Sequence[str | int]) -> None:
        """Removes a row."""
        db.execute(self._drop, names)


SMALL: Final[Mapping[type[Small], SmallTable]] = {
    HeirRow: SmallTable(HeirRow, "heir", "id"),
    ParentRow: SmallTable(ParentRow, "parent", "id"),
    SnapshotRow: SmallTable(SnapshotRow, "snapshot", "name"),
    SnapshotPartRow: SmallTable(SnapshotPartRow, "snapshot_part", "name", "number"),
    PublishedRow: SmallTable(PublishedRow, "published", "name"),
}
"""The tables, by kind of row."""
