"""Merges journals in a few lines of plain Python: what an ingest has to find, on small files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import fields

from state_machines.journal.events import Row
from tests.real.pipeline.logs import Line

FIELDS = {field.name for field in fields(Row)}
REQUIRED = {field.name for field in fields(Row) if field.required}
TEXTS = {"cluster", "kind", "topic"}


class Expected(NamedTuple):
    """Rows as text, how many lines are in quarantine, and places of gaps: kind, epoch, daemon, number, rows, times."""

    rows: list[str]
    quarantined: int
    gaps: set[tuple[Any, ...]]


def expected(files: Iterable[Path]) -> Expected:
    """Reads whole files, each once, and then keeps each line once."""
    rows: dict[bytes, Line] = {}
    quarantined = 0
    for content in dict.fromkeys(path.read_bytes() for path in files):
        for line in content.removesuffix(b"\n").split(b"\n") if content else []:
            row = parsed(line)
            if row is None:
                quarantined += 1
            else:
                rows.setdefault(line, row)
    return Expected(sorted(map(as_text, rows.values())), quarantined, holes(list(rows.values())))


def parsed(line: bytes) -> Line | None:
    """Returns a row, or None."""
    try:
        row = json.loads(line.decode())
    except ValueError:
        return None
    if not (isinstance(row, dict) and line.endswith(b"}") and {k for k, v in row.items() if v is not None} >= REQUIRED):
        return None
    kept = {name: value for name, value in row.items() if name in FIELDS and value is not None}
    typed = all(isinstance(kept[name], str if name in TEXTS else int) for name in REQUIRED)
    return kept if typed and kept["v"] == 1 and kept["seq"] > 0 and kept["ctl_epoch"] >= 0 else None


def as_text(row: Line) -> str:
    """Returns the fields that are there, in one order."""
    return json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True)


def holes(rows: Sequence[Line]) -> set[tuple[Any, ...]]:
    """Returns missing numbers, and ones that are there twice, within each term of each daemon."""
    found: set[tuple[Any, ...]] = set()
    for term in {(row["ctl_epoch"], row["ctl_id"]) for row in rows}:
        of_term = sorted((row["seq"], row["ts_us"]) for row in rows if (row["ctl_epoch"], row["ctl_id"]) == term)
        for (one, _), (following, _) in pairwise(of_term):
            if following > one + 1:
                found.add(("HOLE", *term, one + 1, following - one - 1))
            elif following == one:
                found.add(("SAME_NUMBER", *term, one, None))
    return found
