"""Rows with one damaged field, of each kind and in both stores: the field is named, and the rest is read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from metadata_store.catalog import znodes
from metadata_store.catalog.judging import CHECKS, INT_MAX, KINDS, damage_of, fault_of, region_is_sound
from metadata_store.catalog.rows import (
    NAMES,
    Bury,
    Content,
    HeirRow,
    MarkRow,
    NewRegions,
    ParentRow,
    PublishedRow,
    Put,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    RegionRow,
    ServerRow,
    SnapshotPartRow,
    SnapshotRow,
    Source,
    TableRow,
)
from metadata_store.catalog.sqlite_reading import SOUND, read_all
from metadata_store.catalog.sqlite_schema import SCHEMA
from metadata_store.catalog.znodes import BuriedRow, NamespaceRow
from metadata_store.port import ANY_VERSION
from state_machines.regions.damage import Damage
from tests.contracts.catalog_zookeeper import ROOT, both, sealed
from tests.contracts.memory import MemoryBackend
from tests.contracts.support import session
from tests.kit.regions.catalogs import BAD, COLUMNS, HOLDS, NO_UTF_8, in_a_file

GOOD: Final = (
    PutNamespace("n"),
    PutTable(TableRow("n:t", 2, 0, (("a", "1"),))),
    NewRegions((RegionRow(1, "n:t", b"", b"k", 2, "s1", 5, 9, 3), RegionRow(2, "n:t", b"k", b"", 0))),
    PutServer(ServerRow("s1", 5, "s1:1", "2.1")),
    PutMark(MarkRow("cordon", "s1", "", 0, "ops", "why")),
    Bury("s1", 4, 7),
    Put(HeirRow(2, (Source(9, b"k", b"", 5, 1),))),
    Put(ParentRow(9, "n:t", b"k", b"", 6, (2,), 5, 1)),
    Put(SnapshotRow("s", "n:t", 2, (("a", "1"),), 7, 1, 1)),
    Put(SnapshotPartRow("s", 1, (Source(9, b"", b"", 5, 1, "s"),))),
    Put(PublishedRow("acl", 1, b"all")),
)
"""One row of each kind, and a second region."""
IN_FILE: Final = [
    (kind, field, bad)
    for kind, (_, columns) in COLUMNS.items()
    for field in list(CHECKS[kind])[: len(columns)]
    for bad in (*BAD[HOLDS.get((kind, field), "text")], None)
    if field != "id"
    and not (bad is None and (kind is RegionRow or field == "version"))  # the file itself refuses these
]
IN_ZNODE: Final = [
    (kind, field, bad)
    for kind in COLUMNS
    for field in CHECKS[kind]
    for bad in (None, {"choice": 99, "number": -1}.get(HOLDS.get((kind, field), ""), 7.5))
]


def judged(found: Content, kind: type[Any]) -> Damage:
    """Checks that one row of a kind is left out, and that all others are there."""
    [damage] = found.damaged
    assert damage.kind == KINDS[kind]
    there = {
        NamespaceRow: len(found.namespaces),
        TableRow: len(found.tables),
        RegionRow: len(found.regions) - 1,
        ServerRow: len(found.servers),
        MarkRow: len(found.marks),
        BuriedRow: len(found.buried),
    } | {small: sum(isinstance(one, small) for one in found.small) for small in NAMES}
    assert there == {other: int(other is not kind) for other in there}
    return damage


@pytest.mark.parametrize(
    ("kind", "field", "bad"), IN_FILE, ids=[f"{kind.__name__}.{field}={bad!r:.12}" for kind, field, bad in IN_FILE]
)
async def test_a_damaged_column_of_a_file_is_named_and_the_rest_is_read(
    tmp_path: Path, kind: type[Any], field: str, bad: Any
) -> None:
    file = tmp_path / "regions.db"
    async with in_a_file(file) as (store, _):
        await store.write((), (), GOOD)
    table, columns = COLUMNS[kind]
    column = columns[list(CHECKS[kind]).index(field)]
    db = sqlite3.connect(file, isolation_level=None)
    value = "CAST(? AS TEXT)" if bad == NO_UTF_8 else "?"
    where = "WHERE id = 1" if kind is RegionRow else ""
    db.execute(f"UPDATE {table} SET {column} = {value} {where}", (bad,))
    async with in_a_file(file) as (_, catalog):
        damage = judged(await catalog.read(), kind)
    number = {HeirRow: 2, ParentRow: 9}.get(kind, 1)
    assert (damage.place, damage.field) == (f"row {number} of table {table}", field)
    about = damage.table if kind is RegionRow else damage.name
    assert about in str(damage).partition(": ")[0]
    assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (1 + (kind is RegionRow),), "it stays"
    db.close()


@pytest.mark.parametrize(
    ("kind", "field", "bad"), IN_ZNODE, ids=[f"{kind.__name__}.{field}={bad!r}" for kind, field, bad in IN_ZNODE]
)
async def test_a_damaged_field_of_a_znode_is_named_and_the_rest_is_read(kind: type[Any], field: str, bad: Any) -> None:
    async with session(MemoryBackend()) as s:
        store, catalog = await both(s)
        await store.write((), (), GOOD)
        path = f"{ROOT}/{znodes.FORMS[kind].folder}"
        while names := await s.names(path):
            path = f"{path}/{names[0]}"
        row = json.loads((await s.data(path) or b"").rpartition(b"\n")[0])
        await s.zk.set(path, sealed(json.dumps(row | {znodes.JSON_NAMES.get(field, field): bad}).encode()), ANY_VERSION)
        damage = judged(await catalog.read(), kind)
        names_another = bad == -1 and field in list(CHECKS[kind])[: znodes.FORMS[kind].names]
        assert (damage.place, damage.field) == (path, "data" if names_another else field)
        assert await s.data(path) is not None, "it stays"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"state": "open"}, ("n:t", b"", b"k")),
        ({"table": 7}, ("", b"", b"k")),
        ({"start": 7}, ("n:t", None, b"k")),
        ({"end": "no base64"}, ("n:t", b"", None)),
        ({"end": 7, "table": ""}, ("", b"", None)),
        (None, ("", None, None)),
    ],
)
async def test_the_damage_of_a_znode_tells_what_of_its_region_can_be_read(
    fields: dict[str, Any] | None, told: tuple[Any, ...]
) -> None:
    async with session(MemoryBackend()) as s:
        store, catalog = await both(s)
        await store.write((), (), GOOD)
        path = f"{ROOT}/{znodes.region_path(1)}"
        row = json.loads((await s.data(path) or b"").rpartition(b"\n")[0])
        data = b"a JSON of another region" if fields is None else sealed(json.dumps(row | fields).encode())
        await s.zk.set(path, data, ANY_VERSION)
        damage = judged(await catalog.read(), RegionRow)
        assert (damage.region, damage.table, damage.start, damage.end) == (1, *told)


VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "table": ("t", ""),
    "start": (b"", b"a", b"b", b"c", b"x" * 1_025),
    "end": (b"", b"b", b"x" * 1_025),
    "state": (0, 2, 7, 13, 5, 99, -1),
    "server": ("s1", ""),
    "incarnation": (5, 0, -1, INT_MAX),
    "token": (0, -1, INT_MAX),
    "sequence": (3, -1),
    "version": (0, -1),
    "clean": (0, 1, 2),
    "former": ("", "s1"),
}


def new_file(rows: list[RegionRow]) -> sqlite3.Connection:
    """Makes a store that another tool has copied, without its constraints."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    for statement in SCHEMA:
        db.execute(statement.replace(" NOT NULL", ""))
    db.executemany("INSERT INTO region VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return db


def test_both_fast_judgements_of_regions_agree_with_the_slow_one() -> None:
    """Three pieces of code judge a region whose fields have their types."""
    rows = [RegionRow(at, *values) for at, values in enumerate(product(*VALUES.values()), 1)]
    db = new_file(rows)
    sound = {id_ for [id_] in db.execute(f"SELECT id FROM region WHERE {SOUND}")}
    assert 0 < len(sound) < len(rows)
    for row in rows:
        assert region_is_sound(row) is (fault_of(row) is None) is (row.id in sound), row
    found = read_all(db)
    assert ({one.id for one in found.regions}, len(found.damaged)) == (sound, len(rows) - len(sound))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"state": 99}, ("n:t", b"k", b"")),
        ({"table": 7}, ("", b"k", b"")),
        ({"start": "k"}, ("n:t", None, b"")),
        ({"end": b"x" * 1_025}, ("n:t", b"k", None)),
        ({"end": b"a"}, ("n:t", None, None)),
    ],
)
def test_the_damage_of_a_region_tells_what_can_be_read(fields: dict[str, Any], told: tuple[Any, ...]) -> None:
    row = RegionRow(2, "n:t", b"k", b"", 0)._replace(**fields)
    fault = fault_of(row)
    assert fault is not None
    found = damage_of(row, "row 2", fault)
    assert (found.region, found.table, found.start, found.end) == (2, *told)


def test_a_name_that_is_no_utf_8_takes_no_other_region_with_it() -> None:
    row = RegionRow(1, "t", b"a", b"b", 2, "s1", 5, 9, 3)
    db = new_file([row._replace(id=at, server=server) for at, server in ((1, "s1"), (2, "zürich"), (3, "s3"))])
    db.execute("UPDATE region SET server = CAST(x'ff' AS TEXT) WHERE id = 3")
    found = read_all(db)
    assert sorted(one.id for one in found.regions) == [1, 2]
    assert [(one.region, one.field, one.why) for one in found.damaged] == [(3, "server", "it is no UTF-8")]


@pytest.mark.parametrize(("field", "column"), list(zip(RegionRow._fields, COLUMNS[RegionRow][1], strict=True))[1:])
def test_a_region_without_a_value_is_named(field: str, column: str) -> None:
    row = RegionRow(1, "t", b"a", b"b", 2, "s1", 5, 9, 3)
    db = new_file([row, row._replace(id=2)])
    db.execute(f"UPDATE region SET {column} = NULL WHERE id = 1")
    found = read_all(db)
    assert [one.id for one in found.regions] == [2]
    assert [(one.region, one.field) for one in found.damaged] == [(1, field)]
