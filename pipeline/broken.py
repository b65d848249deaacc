"""Names broken invariants, and excuses those that missing rows may explain."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.kernel import Ints
from pipeline.schema import VIOLATION_COLUMNS
from state_machines.journal.events import SCHEMA_VERSION, Row

NAMED: Final = tuple(VIOLATION_COLUMNS.names[2:])
"""Columns of the row that a violation names."""

Place = tuple[int, int]
"""Term and number of a row."""


class Broken(NamedTuple):
    """An invariant that a row breaks. ``since``: the row that it was compared with, where a gap may excuse it."""

    invariant: str
    what: str
    row: Row
    since: Place | None = None


class Gaps:
    """Finds whether rows are missing between two rows. ``places``: of gaps, by cluster."""

    def __init__(self, places: Iterable[tuple[str, Place]]) -> None:
        self._places: dict[str, list[Place]] = {}
        for cluster, place in sorted(places):
            self._places.setdefault(cluster, []).append(place)

    def excuse(self, broken: Broken) -> bool:
        """Checks whether a gap between the two rows of a comparison may explain what these show."""
        if broken.since is None:
            return False
        places = self._places.get(broken.row.cluster, [])
        at = bisect_left(places, broken.since)
        return at < len(places) and places[at] <= (broken.row.ctl_epoch, broken.row.seq)


def table_of(found: Iterable[Broken]) -> pa.Table:
    """Returns violations as a table of columns :data:`~pipeline.schema.VIOLATION_COLUMNS`."""
    rows = [{"invariant": one.invariant, "what": one.what} | _named(one.row) for one in found]
    return pa.Table.from_pylist(rows, schema=VIOLATION_COLUMNS)


def rows_of(table: pa.Table) -> list[Row]:
    """Returns rows as the rules have them; fields without a column are absent."""
    unread = {"v": SCHEMA_VERSION, "ctl_id": 0, "ts_us": 0, "mono_us": 0}
    return [Row(**(unread | fields)) for fields in table.to_pylist()]


def keyed(rows: Iterable[tuple[int, ...]], lines: int) -> Ints:
    """Returns rows of numbers as sorted columns, for :func:`pipeline.compiling.latest`."""
    return np.ascontiguousarray(np.array(sorted(rows), np.int64).reshape(-1, lines).T)


def _named(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in NAMED}
