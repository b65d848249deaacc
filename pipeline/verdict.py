"""Writes violations as Parquet, a file for each task, and sums them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.broken import VIOLATIONS, Broken, Gaps, table_of
from pipeline.storage import listed, opened, remove, written

BATCH_ROWS_MAX: Final = 10_000
"""Violations in memory at once."""
PARQUET: Final = ".parquet"
ORDER: Final = ("ctl_epoch", "seq", "invariant")


class Verdict(NamedTuple):
    """How many violations of each invariant there are, and the first of all, as rows of :data:`VIOLATIONS`."""

    broken: dict[str, int]
    first: list[dict[str, Any]]


def cleared(folder: str) -> None:
    """Removes the violations of an earlier audit, and leaves an empty file with their columns."""
    for path, _ in listed(folder, PARQUET):
        remove(path)
    with written(f"{folder}/none{PARQUET}", uuid4().hex) as stream:
        pq.write_table(VIOLATIONS.empty_table(), stream)


def put(found: Iterable[Broken], gaps: Gaps, folder: str, name: str) -> None:
    """Writes the violations that no gap excuses into a file of the folder; none: no file."""
    left = (one for one in found if not gaps.excuse(one))
    first = list(islice(left, BATCH_ROWS_MAX))
    if not first:
        return
    with written(f"{folder}/{name}{PARQUET}", uuid4().hex) as stream, pq.ParquetWriter(stream, VIOLATIONS) as writer:
        writer.write_table(table_of(first))
        while batch := list(islice(left, BATCH_ROWS_MAX)):
            writer.write_table(table_of(batch))


def verdict(folder: str, shown_max: int) -> Verdict:
    """Reads how many violations a folder has, and the first ``shown_max`` of them."""
    counts: Counter[str] = Counter()
    first = VIOLATIONS.empty_table()
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
        with opened(path) as file:
            for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS_MAX, columns=VIOLATIONS.names):
                yield pa.Table.from_batches([batch]).cast(VIOLATIONS)


def _of_regions(violation: dict[str, Any]) -> str:
    """Names the region, the table, the server or else the cluster of a violation."""
    table, region, server = violation["table"], violation["region"], violation["server"]
    if region is not None:
        return f"{table}#{region}"
    if table is not None:
        return f"table {table}"
    return f"server {server}" if server is not None else f"cluster {violation['cluster']}"
