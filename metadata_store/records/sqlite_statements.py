"""Writes many rows with few statements: each one releases the interpreter, which the loop may take for long."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

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
