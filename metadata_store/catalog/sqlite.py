"""Keeps the catalog in the SQLite file of the domain's procedures: one transaction holds both; each row read is judged.

Regions are judged by SQLite itself: a million of them by Python would take as long as their reading.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from metadata_store.catalog.judging import BIGGEST_REGION, INT_MAX, STATES, sound
from metadata_store.catalog.rows import (
    Bury,
    Content,
    Drop,
    DropMark,
    DropNamespace,
    DropRegions,
    DropServer,
    DropTable,
    Forget,
    MarkRow,
    NewRegions,
    Owner,
    Put,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    RegionRow,
    ServerRow,
    Small,
    TableRow,
    Write,
    flat,
)
from metadata_store.catalog.sqlite_schema import VERSION, prepare
from metadata_store.catalog.sqlite_small import SMALL
from metadata_store.catalog.znodes import BuriedRow, NamespaceRow
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.sqlite_rows import write_rows
from state_machines.regions.damage import Damage
from state_machines.regions.layout import KEY_BYTES_MAX
from state_machines.regions.states import RegionState

SOUND: Final = (
    "first >= x'' AND (first < last OR last = x'') AND tbl > '' AND tbl < x'' "
    f"AND length(first) <= {KEY_BYTES_MAX} AND length(last) <= {KEY_BYTES_MAX} AND id BETWEEN 1 AND {BIGGEST_REGION} "
    f"AND (state = {RegionState.OPEN:d} OR state IN ({', '.join(map(str, sorted(STATES)))})) "
    "AND server < x'' AND (server > '' AND incarnation > 0 OR server = '' AND incarnation = 0) "
    + " AND ".join(("", *(f"{name} & {INT_MAX} = {name}" for name in ("incarnation", "token", "sequence", "version"))))
    + " AND clean IN (0, 1) AND former < x''"
)
"""The condition of a region that can be used, as :func:`metadata_store.catalog.judging.fault_of` has it.

SQLite orders values by type: numbers, texts, blobs. What is changed by the bitwise operation is no number from 0 on.
"""
_REGION: Final[Callable[[tuple[Any, ...]], RegionRow]] = partial(tuple.__new__, RegionRow)
"""Makes a region of a row in half the time of a call with its fields."""


def read_all(db: sqlite3.Connection) -> Content:
    """Reads everything; rows that cannot be used are left out, and named by table, row and field."""
    damaged: list[Damage] = []
    with _any_text(db):
        namespaces = [one for at, one in _rows(db, "namespace", NamespaceRow) if sound(one, at, damaged)]
        tables = [one for at, one in _rows(db, "tbl", _table) if sound(one, at, damaged)]
        servers = [one for at, one in _rows(db, "server", ServerRow) if sound(one, at, damaged)]
        marks = [one for at, one in _rows(db, "mark", MarkRow) if sound(one, at, damaged)]
        buried = [one for at, one in _rows(db, "buried", BuriedRow) if sound(one, at, damaged)]
        small: list[Small] = []
        for of in SMALL.values():
            small += sorted(one for at, one in _rows(db, of.name, of.made) if sound(one, at, damaged))
    return Content(
        sorted(one.name for one in namespaces),
        sorted(tables),
        _regions(db, damaged),
        sorted(servers),
        {one.name: one.incarnation for one in buried},
        sorted(marks),
        tuple(damaged),
        small,
    )


def _rows(db: sqlite3.Connection, table: str, make: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yields the rows of a small table, in the order of their writing, each with its place."""
    for number, *row in db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid"):  # noqa: S608 - a constant
        yield f"row {number} of table {table}", make(*row)


def _table(name: Any, kind: Any, state: Any, options: Any, version: Any) -> TableRow:
    """Makes a table; options that are no JSON object stay as they are, and are judged so."""
    try:
        found = tuple(sorted(json.loads(options).items()))
    except (ValueError, TypeError, AttributeError):
        found = options
    return TableRow(name, kind, state, found, version)


def _regions(db: sqlite3.Connection, damaged: list[Damage]) -> list[RegionRow]:
    """Reads regions by table and start key; looks for those that cannot be used only where some are missing."""
    query = f"SELECT * FROM region WHERE {SOUND} ORDER BY tbl, first"  # noqa: S608 - constants
    try:
        found = [*map(_REGION, db.execute(query))]
    except sqlite3.OperationalError as error:
        if "UTF-8" not in str(error):
            raise
        return _regions_of_any_text(db, query, damaged)
    if len(found) < db.execute("SELECT count(*) FROM region").fetchone()[0]:
        _name_unsound(db, damaged)
    return found


def _regions_of_any_text(db: sqlite3.Connection, query: str, damaged: list[Damage]) -> list[RegionRow]:
    _name_unsound(db, damaged)
    with _any_text(db):
        found = [*map(_REGION, db.execute(query))]
    kept = [one for one in found if _is_ascii(one)]
    others = (one for one in found if not _is_ascii(one))
    kept += [one for one in others if sound(one, _place(one), damaged)]
    return sorted(kept, key=lambda one: (one.table, one.start))


def _is_ascii(row: RegionRow) -> bool:
    return row.table.isascii() and row.server.isascii() and row.former.isascii()


def _name_unsound(db: sqlite3.Connection, damaged: list[Damage]) -> None:
    """Adds the regions that SQLite's condition leaves out."""
    with _any_text(db):
        for row in db.execute(f"SELECT * FROM region WHERE ({SOUND}) IS NOT TRUE ORDER BY id"):  # noqa: S608
            sound(_REGION(row), _place(row), damaged)


def _place(row: tuple[Any, ...]) -> str:
    return f"row {row[0]} of table region"


@contextmanager
def _any_text(db: sqlite3.Connection) -> Iterator[None]:
    """Reads texts that are no UTF-8, too: one of them would end the reading of all."""
    before = db.text_factory
    db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        db.text_factory = before


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
