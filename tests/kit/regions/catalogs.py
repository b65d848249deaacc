"""Opens catalogs in files, and names their columns with values that these must not have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from metadata_store.catalog.rows import (
    Catalog,
    HeirRow,
    MarkRow,
    ParentRow,
    PublishedRow,
    RegionRow,
    ServerRow,
    SnapshotPartRow,
    SnapshotRow,
    TableRow,
)
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.catalog.znodes import BuriedRow, NamespaceRow
from metadata_store.records.port import RecordStore
from metadata_store.records.sqlite import SqliteRecords

Both = tuple[RecordStore, Catalog]


@asynccontextmanager
async def in_a_file(path: Path) -> AsyncIterator[Both]:
    rows = SqliteCatalog()
    store = await SqliteRecords.open(path, rows)
    try:
        yield store, rows.of(store)
    finally:
        await store.close()


COLUMNS: Final[Mapping[type[Any], tuple[str, tuple[str, ...]]]] = {
    NamespaceRow: ("namespace", ("name",)),
    TableRow: ("tbl", ("name", "kind", "state", "options", "version")),
    RegionRow: (
        "region",
        (
            *("id", "tbl", "first", "last", "state", "server", "incarnation", "token", "sequence"),
            *("version", "clean", "former"),
        ),
    ),
    ServerRow: ("server", ("name", "incarnation", "address", "software")),
    MarkRow: ("mark", ("kind", "subject", "value", "until_ms", "author", "reason")),
    BuriedRow: ("buried", ("name", "incarnation")),
    HeirRow: ("heir", ("id", "sources")),
    ParentRow: ("parent", ("id", "tbl", "first", "last", "state", "heirs", "token", "sequence")),
    SnapshotRow: ("snapshot", ("name", "tbl", "kind", "options", "made_ms", "regions", "parts")),
    SnapshotPartRow: ("snapshot_part", ("name", "number", "regions")),
    PublishedRow: ("published", ("name", "number", "data")),
}
"""The table and the columns of each kind in a file; a row of the catalog has the same order of fields."""
NO_UTF_8: Final = b"\xff"
BAD: Final[Mapping[str, tuple[Any, ...]]] = {
    "text": (NO_UTF_8, b"abc"),
    "number": ("abc", -1, 2.5, b"\x01"),
    "key": ("text", b"x" * 1_025),
    "choice": (99, "abc", 2.5),
    "json": ("no JSON", "[1]", '{"a": 1}', b"\x00"),
    "ids": ("no JSON", "[]", "[0]", '["2"]', b"\xff"),
    "sources": ("no JSON", "[]", '[[0, "", "", 5, 1]]', '[[9, "", "", -1, 1]]', '[[9, "", ""]]', b"\xff"),
    "bytes": ("text", 7),
}
"""Values that a column must not have, by what it ought to hold."""
HOLDS: Final[Mapping[tuple[type[Any], str], str]] = {
    (TableRow, "kind"): "choice",
    (TableRow, "state"): "choice",
    (TableRow, "options"): "json",
    (RegionRow, "start"): "key",
    (RegionRow, "end"): "key",
    (RegionRow, "state"): "choice",
    (RegionRow, "id"): "number",
    (RegionRow, "incarnation"): "number",
    (RegionRow, "token"): "number",
    (RegionRow, "sequence"): "number",
    (RegionRow, "version"): "number",
    (RegionRow, "clean"): "choice",
    (TableRow, "version"): "number",
    (ServerRow, "incarnation"): "number",
    (MarkRow, "until_ms"): "number",
    (BuriedRow, "incarnation"): "number",
    (BuriedRow, "number"): "number",
    (HeirRow, "sources"): "sources",
    (ParentRow, "start"): "key",
    (ParentRow, "end"): "key",
    (ParentRow, "state"): "choice",
    (ParentRow, "heirs"): "ids",
    (ParentRow, "token"): "number",
    (ParentRow, "sequence"): "number",
    (SnapshotRow, "kind"): "choice",
    (SnapshotRow, "options"): "json",
    (SnapshotRow, "made_ms"): "number",
    (SnapshotRow, "regions"): "number",
    (SnapshotRow, "parts"): "number",
    (SnapshotPartRow, "number"): "number",
    (SnapshotPartRow, "regions"): "sources",
    (PublishedRow, "number"): "number",
    (PublishedRow, "data"): "bytes",
}
"""What a field holds that is no text."""
