"""Reads the catalog of a SQLite file, and judges each row.

Regions are judged by SQLite itself: a million of them by Python would take as long as their reading.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from metadata_store.catalog.judging import BIGGEST_REGION, INT_MAX, STATES, fault_of, sound
from metadata_store.catalog.rows import Content, MarkRow, RegionRow, ServerRow, Small, TableRow
from metadata_store.catalog.sqlite_small import SMALL
from metadata_store.catalog.znodes import BuriedRow, NamespaceRow
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


PLACE: Final = re.compile(r"row (-?\d+) of table (\w+)")
"""Where a row is, as damages name it: its number, and its table."""


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


_MAKES: Final[Mapping[str, Callable[..., Any]]] = {
    "namespace": NamespaceRow,
    "tbl": _table,
    "region": RegionRow,
    "server": ServerRow,
    "mark": MarkRow,
    "buried": BuriedRow,
    **{of.name: of.made for of in SMALL.values()},
}
"""What makes a row of its cells, by table."""


def drop_unusable(db: sqlite3.Connection, place: str) -> None:
    """Removes a row that cannot be used; one that was written anew meanwhile stays, also under the same number."""
    found = PLACE.fullmatch(place)
    if found is None or (table := found[2]) not in _MAKES:
        raise ValueError(f"no row of a catalog is at {place!r}")
    with _any_text(db):
        row = db.execute(f"SELECT * FROM {table} WHERE rowid = ?", (int(found[1]),)).fetchone()  # noqa: S608
    if row is not None and fault_of(_MAKES[table](*row)) is not None:
        db.execute(f"DELETE FROM {table} WHERE rowid = ?", (int(found[1]),))  # noqa: S608 - a constant
