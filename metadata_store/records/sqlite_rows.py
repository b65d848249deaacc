"""Reads the rows of a SQLite store: also those of another type, and those beside a page that is damaged."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from metadata_store.records import codec
from metadata_store.records.found import Found, damaged, read
from metadata_store.records.port import Stored
from state_machines.procedures.faults import Fault
from state_machines.procedures.record import Record

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
