"""The catalog in the SQLite file of the domain's procedures, so that one transaction holds both."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from metadata_store.catalog.rows import (
    Bury,
    Content,
    DropMark,
    DropNamespace,
    DropRegions,
    DropServer,
    DropTable,
    Forget,
    NewRegions,
    Owner,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    Write,
)
from metadata_store.catalog.sqlite_reading import read_all
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.sqlite_statements import write_rows

SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS namespace (name TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS tbl (name TEXT PRIMARY KEY, kind INTEGER, state INTEGER, options TEXT)",
    (
        "CREATE TABLE IF NOT EXISTS region (id INTEGER PRIMARY KEY, tbl TEXT NOT NULL, first BLOB NOT NULL, "
        "last BLOB NOT NULL, state INTEGER NOT NULL, server TEXT NOT NULL, incarnation INTEGER NOT NULL, "
        "token INTEGER NOT NULL, sequence INTEGER NOT NULL)"
    ),
    "CREATE INDEX IF NOT EXISTS region_of_table ON region (tbl, first)",
    (
        "CREATE TABLE IF NOT EXISTS server (name TEXT, incarnation INTEGER, address TEXT, software TEXT, "
        "PRIMARY KEY (name, incarnation))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS mark (kind TEXT, subject TEXT, value TEXT, until_ms INTEGER, author TEXT, "
        "reason TEXT, PRIMARY KEY (kind, subject))"
    ),
    "CREATE TABLE IF NOT EXISTS buried (name TEXT PRIMARY KEY, incarnation INTEGER)",
)
OWNERS: Final = (
    "WITH owner (id, state, server, incarnation, token, sequence) AS (VALUES {}) "
    "UPDATE region SET (state, server, incarnation, token, sequence) = "
    "(owner.state, owner.server, owner.incarnation, owner.token, owner.sequence) FROM owner WHERE region.id = owner.id"
)
BURIED: Final = (
    "INSERT OR REPLACE INTO buried SELECT ?1, max(?2, coalesce((SELECT incarnation FROM buried WHERE name = ?1), 0))"
)
"""Replaces the row of a name by one behind all others: they are read in the order in which they were written."""
DROPS: Final[Mapping[type[Write], str]] = {
    DropServer: "DELETE FROM server WHERE name = ? AND incarnation = ?",
    Forget: "DELETE FROM buried WHERE name = ?",
    DropNamespace: "DELETE FROM namespace WHERE name = ?",
    DropMark: "DELETE FROM mark WHERE kind = ? AND subject = ?",
}
"""Statements that remove one row; their fields name it."""
REGIONS: Final = "INSERT OR IGNORE INTO region VALUES {}"


class SqliteCatalog:
    """Implements :class:`metadata_store.catalog.rows.Catalog` and the rows of a :class:`SqliteRecords`."""

    schema: Sequence[str] = SCHEMA
    rows_max = 5_000

    def __init__(self) -> None:
        self._records: SqliteRecords | None = None

    def of(self, records: SqliteRecords) -> SqliteCatalog:
        """Binds the catalog to the open store whose rows it is."""
        self._records = records
        return self

    async def read(self) -> Content:
        """Reads everything, and judges each row."""
        assert self._records is not None
        found: Content = await self._records.call(read_all)
        return found

    def put(self, db: sqlite3.Connection, rows: Iterable[object]) -> None:
        """Applies writes in their order; those of owners that follow each other together."""
        owners: dict[int, Owner] = {}
        for row in rows:
            if isinstance(row, Owner):
                owners[row.id] = row
                continue
            write_rows(db, OWNERS, list(owners.values()))
            owners = {}
            _apply(db, row)  # type: ignore[arg-type]
        write_rows(db, OWNERS, list(owners.values()))


def _apply(db: sqlite3.Connection, write: Write) -> None:
    match write:
        case NewRegions(regions):
            write_rows(db, REGIONS, regions)
        case PutTable(row):
            db.execute("INSERT OR REPLACE INTO tbl VALUES (?, ?, ?, ?)", (*row[:3], json.dumps(dict(row.options))))
        case DropRegions(ids):
            write_rows(db, "DELETE FROM region WHERE id IN (VALUES {})", [(id_,) for id_ in ids])
        case DropTable(name):
            db.execute("DELETE FROM region WHERE tbl = ?", (name,))
            db.execute("DELETE FROM tbl WHERE name = ?", (name,))
        case PutServer(server):
            db.execute("INSERT OR REPLACE INTO server VALUES (?, ?, ?, ?)", server)
        case Bury(name, incarnation):
            db.execute(BURIED, (name, incarnation))
        case PutNamespace(name):
            db.execute("INSERT OR IGNORE INTO namespace VALUES (?)", (name,))
        case PutMark(mark):
            db.execute("INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?, ?, ?)", mark)
        case DropServer() | Forget() | DropNamespace() | DropMark():
            db.execute(DROPS[type(write)], write)
        case _:
            raise TypeError(f"the catalog has no write {write!r}")
