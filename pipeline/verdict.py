"""Names broken invariants, excuses those that missing rows may explain, and writes and sums up violations."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.kernel import Ints
from pipeline.schema import VIOLATION_COLUMNS
from pipeline.storage import CannotMerge, first_line, listed, move, opened, remove, written
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


BATCH_ROWS_MAX: Final = 10_000
"""Violations in memory at once."""
PARQUET: Final = ".parquet"
ORDER: Final = ("ctl_epoch", "seq", "invariant")


ASIDE: Final = "_spark-"
"""Begin of the names of folders that Spark writes into; readers pass over them, and the next ingest empties them."""


class Verdict(NamedTuple):
    """How many violations of each invariant there are, and the first of all, with all columns."""

    broken: dict[str, int]
    first: list[dict[str, Any]]


def cleared(folder: str) -> None:
    """Removes the violations of an earlier audit, and leaves an empty file with their columns."""
    for path, _ in listed(folder, PARQUET):
        remove(path)
    with written(f"{folder}/none{PARQUET}", uuid4().hex) as stream:
        pq.write_table(VIOLATION_COLUMNS.empty_table(), stream)


def put(found: Iterable[Broken], gaps: Gaps, folder: str, name: str) -> int:
    """Writes the violations that no gap excuses into a file of the folder, and returns how many; none: no file."""
    left = (one for one in found if not gaps.excuse(one))
    first = list(islice(left, BATCH_ROWS_MAX))
    if not first:
        return 0
    count = len(first)
    with (
        written(f"{folder}/{name}{PARQUET}", uuid4().hex) as stream,
        pq.ParquetWriter(stream, VIOLATION_COLUMNS) as writer,
    ):
        writer.write_table(table_of(first))
        while batch := list(islice(left, BATCH_ROWS_MAX)):
            writer.write_table(table_of(batch))
            count += len(batch)
    return count


def take(aside: str, folder: str) -> int:
    """Moves the violations that Spark wrote into the folder ``aside``; returns how many."""
    count = 0
    for path, _ in listed(aside, PARQUET):
        with opened(path) as file:
            rows = pq.ParquetFile(file).metadata.num_rows
        if rows:
            move(path, f"{folder}/{path.rpartition('/')[2]}")
        count += rows
    return count


def verdict(folder: str, shown_max: int) -> Verdict:
    """Reads how many violations a folder has, and the first ``shown_max`` of them.

    Raises :class:`~pipeline.storage.CannotMerge`.
    """
    counts: Counter[str] = Counter()
    first = VIOLATION_COLUMNS.empty_table()
    for part in _batches(folder):
        counts.update({each["values"]: each["counts"] for each in pc.value_counts(part["invariant"]).to_pylist()})
        both = pa.concat_tables([first, part])
        order = pc.sort_indices(both, sort_keys=[(name, "ascending") for name in ORDER])
        first = both.take(order[:shown_max])
    return Verdict(dict(sorted(counts.items())), first.to_pylist())


def sentence(violation: dict[str, Any]) -> str:
    """Formats a violation as ``regent events check`` does."""
    of = violation
    entity = f"{of['topic']}-{of['partition']}" if of["topic"] is not None else _of_regions(of)
    broker = f" on broker {of['broker']}" if of["broker"] is not None else ""
    return f"{of['invariant']}: {entity}{broker} at epoch {of['ctl_epoch']}, row {of['seq']}: {of['what']}"


def _batches(folder: str) -> Iterator[Any]:
    for path, _ in listed(folder, PARQUET):
        with _readable(path) as file:
            for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS_MAX, columns=VIOLATION_COLUMNS.names):
                yield pa.Table.from_batches([batch]).cast(VIOLATION_COLUMNS)


@contextmanager
def _readable(path: str) -> Iterator[Any]:
    """Opens a file; raises :class:`CannotMerge` where it cannot be read, as where another process removed it."""
    try:
        with opened(path) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise CannotMerge(f"{path} cannot be read: {first_line(error)}: run the audit again") from None


def _of_regions(violation: dict[str, Any]) -> str:
    """Names the region, the table, the server or else the cluster of a violation."""
    table, region, server = violation["table"], violation["region"], violation["server"]
    if region is not None:
        return f"{table}#{region}"
    if table is not None:
        return f"table {table}"
    return f"server {server}" if server is not None else f"cluster {violation['cluster']}"
