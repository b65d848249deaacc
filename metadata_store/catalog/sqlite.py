"""Keeps the catalog in the SQLite file of the domain's procedures: one transaction holds both."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from metadata_store.catalog.rows import (
    Bury,
    Content,
    Drop,
    DropMark,
    DropNamespace,
    DropRegions,
    DropServer,
    DropTable,
    DropUnusable,
    Forget,
    NewRegions,
    Owner,
    Put,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    Write,
    flat,
)
from metadata_store.catalog.sqlite_reading import drop_unusable, read_all
from metadata_store.catalog.sqlite_schema import VERSION, prepare
from metadata_store.catalog.sqlite_small import SMALL
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.sqlite_rows import write_rows

OWNERS: Final = (
    "WITH owner (id, state, server, incarnation, token, sequence, version, clean, former) AS "
    "(VALUES {}) "
    "UPDATE region SET (state, server, incarnation, token, sequence, version, clean, former) = "
    "(owner.state, owner.server, owner.incarnation, owner.token, owner.sequence, owner.version, owner.clean, "
    "owner.former) "
    "FROM owner WHERE region.id = owner.id"
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
WITHOUT_REGIONS: Final = ("DELETE FROM heir WHERE id IN (VALUES {})", "DELETE FROM region WHERE id IN (VALUES {})")
WITHOUT_TABLE: Final = (
    "DELETE FROM heir WHERE id IN (SELECT id FROM region WHERE tbl = ?)",
    "DELETE FROM region WHERE tbl = ?",
    "DELETE FROM parent WHERE tbl = ?",
    "DELETE FROM tbl WHERE name = ?",
)
REGIONS: Final = "INSERT OR IGNORE INTO region VALUES {}"


class SqliteCatalog:
    """Implements :class:`metadata_store.catalog.rows.Catalog` and the rows of a :class:`SqliteRecords`."""

    rows_max = 5_000
    level = VERSION

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

    def prepare(self, db: sqlite3.Connection, path: Path) -> None:
        """Makes the tables, or adds what those of an earlier release lack; raises ``StoreFailed`` for a later one."""
        prepare(db, path)

    def put(self, db: sqlite3.Connection, rows: Iterable[object]) -> None:
        """Applies writes in their order; those of owners that follow each other together."""
        owners: dict[int, Owner] = {}
        for row in flat(rows):
            if isinstance(row, Owner):
                owners[row.id] = row
                continue
            write_rows(db, OWNERS, list(owners.values()))
            owners = {}
            _apply(db, row)  # type: ignore[arg-type]
        write_rows(db, OWNERS, list(owners.values()))


def _apply(db: sqlite3.Connection, write: Write) -> None:
    match write:
        case NewRegions() | PutTable() | DropRegions() | DropTable():
            _apply_to_tables(db, write)
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
        case Put(small):
            SMALL[type(small)].put(db, small)
        case Drop(kind, names):
            SMALL[kind].drop(db, names)
        case DropUnusable(place):
            drop_unusable(db, place)
        case _:
            raise TypeError(f"the catalog has no write {write!r}")


def _apply_to_tables(db: sqlite3.Connection, write: NewRegions | PutTable | DropRegions | DropTable) -> None:
    match write:
        case NewRegions(regions):
            write_rows(db, REGIONS, regions)
        case PutTable(row):
            cells = (*row[:3], json.dumps(dict(row.options)), row.version)
            db.execute("INSERT OR REPLACE INTO tbl VALUES (?, ?, ?, ?, ?)", cells)
        case DropRegions(ids):
            for statement in WITHOUT_REGIONS:
                write_rows(db, statement, [(id_,) for id_ in ids])
        case DropTable(name):
            for statement in WITHOUT_TABLE:
                db.execute(statement, (name,))
