"""Makes the tables of a catalog in a SQLite file, and brings those of an earlier release to the present form."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from metadata_store.records.port import StoreFailed

VERSION: Final = 2
"""Version of the form, kept as the file's ``user_version``: 0 in a new file, and in one of the first release."""
SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS namespace (name TEXT PRIMARY KEY)",
    (
        "CREATE TABLE IF NOT EXISTS tbl (name TEXT PRIMARY KEY, kind INTEGER, state INTEGER, options TEXT, "
        "version INTEGER NOT NULL DEFAULT 0)"
    ),
    (
        "CREATE TABLE IF NOT EXISTS region (id INTEGER PRIMARY KEY, tbl TEXT NOT NULL, first BLOB NOT NULL, "
        "last BLOB NOT NULL, state INTEGER NOT NULL, server TEXT NOT NULL, incarnation INTEGER NOT NULL, "
        "token INTEGER NOT NULL, sequence INTEGER NOT NULL, version INTEGER NOT NULL DEFAULT 0, "
        "clean INTEGER NOT NULL DEFAULT 0, former TEXT NOT NULL DEFAULT '')"
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
    "CREATE TABLE IF NOT EXISTS heir (id INTEGER PRIMARY KEY, sources TEXT)",
    (
        "CREATE TABLE IF NOT EXISTS parent (id INTEGER PRIMARY KEY, tbl TEXT, first BLOB, last BLOB, state INTEGER, "
        "heirs TEXT, token INTEGER, sequence INTEGER)"
    ),
    (
        "CREATE TABLE IF NOT EXISTS snapshot (name TEXT PRIMARY KEY, tbl TEXT, kind INTEGER, options TEXT, "
        "made_ms INTEGER, regions INTEGER, parts INTEGER)"
    ),
    ("CREATE TABLE IF NOT EXISTS snapshot_part (name TEXT, number INTEGER, regions TEXT, PRIMARY KEY (name, number))"),
    "CREATE TABLE IF NOT EXISTS published (name TEXT PRIMARY KEY, number INTEGER, data BLOB)",
)
NUMBER, TEXT = "INTEGER NOT NULL DEFAULT 0", "TEXT NOT NULL DEFAULT ''"
ADDED: Final = (
    ("tbl", "version", NUMBER),
    ("region", "version", NUMBER),
    ("region", "clean", NUMBER),
    ("region", "former", TEXT),
)
"""Columns that tables of the first release lack; regions and tables of that time have 0 there, or nothing."""


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Makes the tables, or adds what they lack, in the transaction that is open; raises ``StoreFailed``.

    A copy that another tool has made may have the columns, and no version.
    """
    [version] = db.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise StoreFailed(
            f"a later release wrote the catalog in {path}: format {version} is newer than this daemon's ({VERSION}): "
            "upgrade the daemon. This daemon does not begin, because it would pass rows over"
        )
    if version == VERSION:
        return
    for table, column, kind in ADDED:
        columns = {name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")}
        if columns and column not in columns:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    for statement in SCHEMA:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")
