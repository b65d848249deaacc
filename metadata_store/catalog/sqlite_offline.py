"""Reads the catalog of a SQLite store without a daemon, and changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from metadata_store.catalog.rows import Content
from metadata_store.catalog.sqlite_reading import read_all
from metadata_store.catalog.sqlite_schema import prepare
from metadata_store.records.sqlite_offline import opened


def read(path: Path) -> Content:
    """Reads a catalog as a daemon would; raises ``StoreFailed`` where the file is none, or a later release wrote it.

    A copy in memory is brought to the present form: the file stays as it is.
    """
    with opened(path, "ro") as db:
        copy = sqlite3.connect(":memory:", isolation_level=None)
        try:
            db.backup(copy)
            copy.execute("BEGIN")
            prepare(copy, path)
            copy.execute("COMMIT")
            return read_all(copy)
        finally:
            copy.close()
