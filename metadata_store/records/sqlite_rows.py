"""Reads and writes the rows of a SQLite store, also damaged ones, and names what ends an error."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from metadata_store.records import codec
from metadata_store.records.port import Found, Stored, damaged, read
from state_machines.procedures.record import Fault, Record

ROWS: Final = "SELECT pid, crc, body FROM record ORDER BY pid"


def entry(pid: int, crc: Any, body: Any) -> Found:
    """Reads one row."""
    data = body if isinstance(body, bytes) else str(body).encode()

    def decode(pid: int, data: bytes) -> Record:
        if not isinstance(body, bytes) or not isinstance(crc, int):
            raise codec.Unreadable(Fault.CORRUPT, "its row has another type than this store writes")
        return codec.decode(pid, data, crc)

    return read(pid, f"row {pid}", data, decode, crc if isinstance(crc, int) else 0)


def load(db: sqlite3.Connection) -> Stored:
    """Reads records in the order of pids, and the highest pid."""
    records: list[Record] = []
    others: list[Found] = []
    for pid, crc, body in db.execute(ROWS):
        try:
            records.append(codec.decode(pid, body, crc))
        except (codec.Unreadable, TypeError):  # a row of another type
            others.append(entry(pid, crc, body))
    return Stored(records, damaged(others), last_pid(db))


def salvaged(db: sqlite3.Connection) -> tuple[list[Found], str]:
    """Reads rows from both ends up to a page that is damaged; returns them, and a sentence where rows are missing."""
    found: dict[int, Found] = {}
    trouble = ""
    for order in ("", " DESC"):
        try:
            for row in db.execute(ROWS + order):
                found[row[0]] = entry(*row)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            trouble = f"{error}: rows between others may be missing; keep a copy of the file, see SQLite's .recover"
            continue
        break
    return [one for _, one in sorted(found.items())], trouble


def last_pid(db: sqlite3.Connection) -> int:
    """Returns the highest pid that was reserved, or is in use although the mark says otherwise."""
    return max(int(pid or 0) for [pid] in db.execute("SELECT last_pid FROM fence UNION SELECT max(pid) FROM record"))


FULL: Final = "make room on the disk: the daemon goes on by itself then"
REMEDIES: Final = {
    "disk is full": FULL,
    "No space left": FULL,
    "readonly": "give the daemon's user the right to write the file and its folder",
    "malformed": "stop the daemon, keep a copy, and see the SQLite documentation on recovery (.recover)",
    "not a database": "name another file: this one is no store of procedures",
    "unable to open": "create the folder, and give the daemon's user the right to write there",
    "locked": "another process keeps the file locked: find it (fuser, lsof) and end it",
}
"""Remedies by a part of a message."""


def remedy(error: Exception) -> str:
    """Returns what ends an error."""
    text = str(error)
    found = (one for known, one in REMEDIES.items() if known in text)
    return next(found, "check the file, its folder and the disk: the daemon goes on by itself once they are sound")


ROWS_MAX: Final = 64
"""Rows of one statement: SQLite keeps compiled statements of up to this size."""


def write_rows(db: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Executes a statement for some rows at a time; ``{}`` in it becomes ``(?, ?), (?, ?)``, a row each."""
    for first in range(0, len(rows), ROWS_MAX):
        some = rows[first : first + ROWS_MAX]
        db.execute(_filled(statement, len(some), len(some[0])), tuple(chain.from_iterable(some)))


@cache
def _filled(statement: str, rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement.format(", ".join([row] * rows))
