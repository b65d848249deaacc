"""Writes violations as Parquet, a file for each task, and sums them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.broken import Broken, Gaps, table_of
from pipeline.schema import VIOLATION_COLUMNS
from pipeline.storage import CannotMerge, first_line, listed, move, opened, remove, written

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
