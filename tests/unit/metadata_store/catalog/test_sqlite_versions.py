"""A file of the first release gets the present form, and may go back; one of a later release is left alone."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Final

import pytest

from metadata_store.catalog.rows import (
    HeirRow,
    NewRegions,
    Owner,
    PublishedRow,
    Put,
    PutServer,
    PutTable,
    RegionRow,
    ServerRow,
    Source,
    TableRow,
)
from metadata_store.catalog.sqlite_schema import SCHEMA, VERSION
from metadata_store.records.port import StoreFailed
from metadata_store.records.sqlite import SqliteRecords
from tests.kit.documented import statement_for_going_back
from tests.kit.regions.catalogs import in_a_file

FIRST: Final = (
    "CREATE TABLE record (pid INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE fence (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER, last_pid INTEGER)",
    "INSERT INTO fence VALUES (1, 7, 90)",
    "CREATE TABLE namespace (name TEXT PRIMARY KEY)",
    "CREATE TABLE tbl (name TEXT PRIMARY KEY, kind INTEGER, state INTEGER, options TEXT)",
    (
        "CREATE TABLE region (id INTEGER PRIMARY KEY, tbl TEXT NOT NULL, first BLOB NOT NULL, last BLOB NOT NULL, "
        "state INTEGER NOT NULL, server TEXT NOT NULL, incarnation INTEGER NOT NULL, token INTEGER NOT NULL, "
        "sequence INTEGER NOT NULL)"
    ),
    "CREATE INDEX region_of_table ON region (tbl, first)",
    (
        "CREATE TABLE server (name TEXT, incarnation INTEGER, address TEXT, software TEXT, "
        "PRIMARY KEY (name, incarnation))"
    ),
    (
        "CREATE TABLE mark (kind TEXT, subject TEXT, value TEXT, until_ms INTEGER, author TEXT, reason TEXT, "
        "PRIMARY KEY (kind, subject))"
    ),
    "CREATE TABLE buried (name TEXT PRIMARY KEY, incarnation INTEGER)",
    "INSERT INTO tbl VALUES ('t', 2, 0, '{\"a\": \"1\"}')",
    "INSERT INTO region VALUES (1, 't', x'', x'6b', 2, 's1', 5, 9, 3), (2, 't', x'6b', x'', 4, '', 0, 8, 0)",
    "INSERT INTO server VALUES ('s1', 5, 's1:1', '')",
)
"""What the first release left."""
TABLE: Final = TableRow("t", 2, 0, (("a", "1"),))
REGIONS: Final = [RegionRow(1, "t", b"", b"k", 2, "s1", 5, 9, 3), RegionRow(2, "t", b"k", b"", 4, "", 0, 8)]


def a_file(path: Path, *statements: str) -> Path:
    """Makes a store from statements."""
    db = sqlite3.connect(path, isolation_level=None)
    for one in statements:
        db.execute(one)
    db.close()
    return path


def columns(path: Path) -> dict[str, list[str]]:
    """Returns the columns of each table of a catalog, and the version of the file."""
    db = sqlite3.connect(path)
    names = [name for [name] in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    found = {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for name in names}
    found["user_version"] = [str(db.execute("PRAGMA user_version").fetchone()[0])]
    db.close()
    return found


async def test_a_new_file_has_the_present_version(tmp_path: Path) -> None:
    async with in_a_file(tmp_path / "new.db"):
        pass
    assert columns(tmp_path / "new.db")["user_version"] == [str(VERSION)]


@pytest.mark.seed("S1-18", "S3-19")
async def test_a_file_of_the_first_release_keeps_its_rows_and_gets_what_they_lack(tmp_path: Path) -> None:
    file, new = a_file(tmp_path / "old.db", *FIRST), tmp_path / "new.db"
    async with in_a_file(file) as (store, catalog):
        found = await catalog.read()
        assert (list(found.tables), list(found.regions)) == ([TABLE], REGIONS)
        assert (list(found.servers), found.damaged) == ([ServerRow("s1", 5, "s1:1")], ())
        assert (await store.reserve(1), store.epoch) == (91, 8)  # type: ignore[attr-defined]
        heir = HeirRow(2, (Source(9, b"k", b"", 5, 1),))
        await store.write((), (), [PutTable(TABLE._replace(version=1)), Owner(1, 4, "", 0, 9, 3, 1, 1), Put(heir)])
    async with in_a_file(file) as (_, catalog):
        found = await catalog.read()
        assert list(found.tables) == [TABLE._replace(version=1)]
        closed = REGIONS[0]._replace(state=4, server="", incarnation=0, version=1, clean=1)
        assert (list(found.regions), list(found.small)) == ([closed, REGIONS[1]], [heir])
    async with in_a_file(new):
        pass
    assert columns(file) == columns(new)


async def test_a_copy_that_lost_its_version_is_opened_as_it_is(tmp_path: Path) -> None:
    """As a dump of SQLite's shell leaves it."""
    file = tmp_path / "copied.db"
    async with in_a_file(file) as (store, _):
        await store.write((), (), [PutTable(TABLE._replace(version=4)), NewRegions(tuple(REGIONS))])
    before = columns(file)
    a_file(file, "PRAGMA user_version = 0")
    async with in_a_file(file) as (_, catalog):
        assert list((await catalog.read()).tables) == [TABLE._replace(version=4)]
    assert columns(file) == before


async def test_a_file_of_a_later_release_is_named_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "later.db"
    async with in_a_file(file) as (store, _):
        await store.write((), (), [PutServer(ServerRow("s1", 5, "s1:1"))])
    a_file(file, f"PRAGMA user_version = {VERSION + 1}", "ALTER TABLE server ADD COLUMN zone TEXT")
    before = sqlite3.connect(file).execute("SELECT * FROM fence").fetchall()
    why = (
        f"a later release wrote the catalog in {file}: format {VERSION + 1} is newer than this daemon's ({VERSION}): "
        "upgrade the daemon. This daemon does not begin, because it would pass rows over"
    )
    with pytest.raises(StoreFailed, match=re.escape(why)):
        async with in_a_file(file):
            pass
    assert sqlite3.connect(file).execute("SELECT * FROM fence").fetchall() == before, "no epoch is taken"
    assert columns(file)["user_version"] == [str(VERSION + 1)]


async def test_an_upgrade_that_dies_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = a_file(tmp_path / "old.db", *FIRST)
    before = columns(file)
    monkeypatch.setattr("metadata_store.catalog.sqlite_schema.SCHEMA", (*SCHEMA[:-1], "CREATE TABLE heir (id)"))
    with pytest.raises(StoreFailed, match="heir already exists"):
        async with in_a_file(file):
            pass
    assert columns(file) == before
    monkeypatch.undo()
    async with in_a_file(file) as (_, catalog):
        assert list((await catalog.read()).regions) == REGIONS


async def test_a_store_of_procedures_alone_has_no_version(tmp_path: Path) -> None:
    store = await SqliteRecords.open(tmp_path / "procedures.db")
    await store.close()
    assert columns(tmp_path / "procedures.db")["user_version"] == ["0"]


async def test_a_file_goes_back_to_the_first_release_by_the_documented_command(tmp_path: Path) -> None:
    file = a_file(tmp_path / "old.db", *FIRST)
    first = columns(file)
    async with in_a_file(file) as (store, _):
        await store.write((), (), [Put(PublishedRow("acl", 1, b"all")), PutTable(TABLE._replace(version=3))])
    db = sqlite3.connect(file, isolation_level=None)
    db.executescript(statement_for_going_back())
    back = columns(file)
    assert {name: back[name] for name in first} == first
    assert db.execute("SELECT * FROM region ORDER BY id").fetchall() == [one[:9] for one in REGIONS]
    db.close()
    async with in_a_file(file) as (_, catalog):  # and forth again
        found = await catalog.read()
    assert (list(found.tables), list(found.regions)) == ([TABLE], REGIONS)
    assert list(found.small) == [PublishedRow("acl", 1, b"all")]
