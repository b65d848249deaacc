"""Lays out a bronze folder: which files it has, in which row groups a history is, and what says that it is whole.

``manifest.json`` is written last and names all files that count; a reader takes no other. So a folder is always that of
the last ingest that ended, and files that a killed one left are passed over.

A file of ``rows`` has the rows of one segment (or a part of one), a row group for each bucket of them. A bucket has
whole histories: a partition's or a region's rows are in the same one in all files, sorted by :data:`ORDER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from pipeline.gaps import Gap
from pipeline.pieces import Piece
from pipeline.schema import COLUMNS, GAP_COLUMNS
from pipeline.storage import NothingToRead, first_line, opened, writing, written

BUCKETS: Final = 16
"""Of rows of a topic's partition, of a topic, or of a region."""
REST: Final = BUCKETS
"""Bucket of all other rows: of the term, brokers, requests, procedures, servers and tables."""
ORDER: Final = ("cluster", "topic", "partition", "region", "ctl_epoch", "seq", "ctl_id")
"""Order within a bucket, null first: a history is in one place, oldest row first."""

VERSION: Final = 2
"""Of the layout; ``manifest.json`` has it. The first one had no manifest."""
MANIFEST: Final = "manifest.json"
AUDIT: Final = "audit.json"
"""The result of the audit of these rows."""
ROWS: Final = "rows"
TERMS: Final = "terms"
GAPS: Final = "gaps"
QUARANTINE: Final = "quarantine"
VIOLATIONS: Final = "violations"
"""Folders of Parquet. An audit writes the violations; the manifest does not name those."""

FOOTERS_MAX: Final = 256
"""A footer is half a megabyte: it describes each column of each row group."""

_MULTIPLIERS: Final = (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35)
_WORD: Final = 0xFFFFFFFF
_SHIFT: Final = 28
"""The upper four of 32 bits are the bucket."""


class RowsFile(Struct, frozen=True):
    """A file of rows: its path in the folder, and the bucket and the number of rows of each row group."""

    path: str
    groups: Sequence[tuple[int, int]]

    @property
    def rows(self) -> int:
        """Returns the number of rows in the file."""
        return sum(rows for _, rows in self.groups)


class Manifest(Struct, frozen=True):
    """All files of a folder that count, and how many rows there are of each kind.

    ``lines`` = rows + ``quarantined`` + ``copies``.
    """

    version: int
    files: Sequence[RowsFile]
    terms: str
    gaps: str
    quarantine: Sequence[str]
    kinds: dict[str, int]
    lines: int
    copies: int
    quarantined: int

    @property
    def rows(self) -> int:
        """Returns the number of rows in the folder."""
        return sum(file.rows for file in self.files)


def manifest_of(folder: str) -> Manifest:
    """Reads the manifest. Raises :class:`~pipeline.storage.NothingToRead` without one: the folder is not whole."""
    unmade = f"{folder} was not made by 'regent pipeline ingest', or that did not end"
    try:
        with opened(in_folder(folder, MANIFEST)) as file:
            found = msgspec.json.decode(file.read(), type=Manifest)
    except FileNotFoundError:
        raise NothingToRead(f"{unmade}: it has no {MANIFEST}") from None
    except (OSError, msgspec.DecodeError) as error:
        raise NothingToRead(f"{unmade}: its {MANIFEST} cannot be read: {first_line(error)}") from None
    if found.version != VERSION:
        raise NothingToRead(f"{folder} has layout {found.version}, and this release reads {VERSION}")
    return found


def rows_by_bucket(manifest: Manifest) -> list[int]:
    """Returns how many rows each bucket has, also those without any."""
    sizes = [0] * (BUCKETS + 1)
    for file in manifest.files:
        for bucket, rows in file.groups:
            sizes[bucket] += rows
    return sizes


def in_folder(folder: str, path: str) -> str:
    """Returns the path of a file whose path in the folder is ``path``."""
    return f"{folder.rstrip('/')}/{path}"


def table_in(folder: str, path: str) -> Any:
    """Reads a file of Parquet of the folder as an Arrow table. Raises :class:`~pipeline.storage.NothingToRead`."""
    named = in_folder(folder, path)
    try:
        with opened(named) as file:
            return pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise NothingToRead(
            f"{named} cannot be read: {first_line(error)}; run 'regent pipeline ingest' again"
        ) from None


def buckets(rows: Any) -> Any:
    """Returns the bucket of each row of a table with ``topic``, ``partition`` and ``region``, as an array of int8.

    It is the same in every release with this layout.
    """
    topics = rows["topic"].combine_chunks().dictionary_encode()
    hashes = np.array([crc32(topic.encode()) for topic in topics.dictionary.to_pylist()] + [0], dtype=np.uint64)
    index = pc.fill_null(topics.indices, len(hashes) - 1).to_numpy()
    partition, region = (pc.fill_null(rows[name], -1).to_numpy().astype(np.int64) for name in ("partition", "region"))
    rest = pc.and_(pc.is_null(rows["topic"]), pc.is_null(rows["region"])).to_numpy()
    return np.where(rest, REST, _mixed(hashes[index], partition, region)).astype(np.int8)


def bucketed(rows: Any) -> tuple[Any, list[tuple[int, int]]]:
    """Sorts rows by bucket and :data:`ORDER`; returns them with each bucket that has rows and how many."""
    each = buckets(rows)
    keys = rows.select(ORDER).append_column("bucket", pa.array(each))
    counts = np.bincount(each, minlength=BUCKETS + 1)
    groups = [(bucket, int(count)) for bucket, count in enumerate(counts) if count]
    return _taken(rows, _order(keys, ("bucket", *ORDER))), groups


def filled(rows: Any) -> list[str]:
    """Returns the columns of a table that have values."""
    return [name for name in rows.column_names if rows[name].null_count < len(rows)]


def with_nulls(rows: Any, schema: Any) -> Any:
    """Returns a table with all columns of a schema; those that it lacks are null, and share their memory by type."""
    have = set(rows.column_names)
    nulls = {of: pa.nulls(len(rows), of) for of in {field.type for field in schema if field.name not in have}}
    return pa.table([rows[field.name] if field.name in have else nulls[field.type] for field in schema], schema=schema)


def bucket_tables(
    folder: str,
    bucket: int,
    columns: Sequence[str],
    manifest: Manifest | None = None,
    keep: Callable[[Any], Any] | None = None,
) -> Any:
    """Reads the rows of one bucket (0 to :data:`REST`) from all files, with these columns and in :data:`ORDER`.

    Returns a ``pyarrow.Table``. A caller that reads many buckets gives the manifest, which is read otherwise. ``keep``
    chooses rows of the table of each file before they are put together. Raises
    :class:`~pipeline.storage.NothingToRead`.
    """
    manifest = manifest or manifest_of(folder)
    needed = [*columns, *(name for name in ORDER if name not in columns)]
    empty = pa.schema([COLUMNS.field(name) for name in needed]).empty_table()
    parts = bucket_parts(folder, bucket, needed, manifest)
    found = pa.concat_tables([empty, *(parts if keep is None else map(keep, parts))])
    return _taken(found.select(columns), _order(found.select(ORDER), ORDER)).combine_chunks()


def bucket_parts(
    folder: str,
    bucket: int,
    columns: Sequence[str],
    manifest: Manifest,
    *,
    coded: Sequence[str] = (),
    footers: dict[str, Any] | None = None,
) -> Iterator[Any]:
    """Yields the rows of one bucket file by file, each as a ``pyarrow.Table``: for a bucket that need not be merged.

    Columns of ``coded`` are dictionaries of texts. ``footers``: keeps those of :data:`FOOTERS_MAX` files, for a caller
    that reads more buckets. Raises :class:`~pipeline.storage.NothingToRead`.
    """
    kept = {} if footers is None else footers
    for file in manifest.files:
        wanted = [number for number, (of, _) in enumerate(file.groups) if of == bucket]
        if wanted:
            yield _groups(in_folder(folder, file.path), wanted, columns, coded, kept)


def _groups(path: str, numbers: Sequence[int], columns: Sequence[str], coded: Sequence[str], footers: Any) -> Any:
    try:
        with opened(path) as stream:
            file = pq.ParquetFile(stream, metadata=footers.get(path), read_dictionary=list(coded))
            found = file.read_row_groups(numbers, columns=list(columns), use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise NothingToRead(f"{path} cannot be read: {first_line(error)}; run 'regent pipeline ingest' again") from None
    if len(footers) < FOOTERS_MAX:
        footers[path] = file.metadata
    return found.select(columns)


def _order(keys: Any, names: Sequence[str]) -> Any:
    """Returns the indices that sort; null comes first, because no value is less than what stands for it."""
    filled = [pc.fill_null(keys[name], "" if keys[name].type == pa.string() else -1) for name in names]
    return pc.sort_indices(pa.table(filled, names), sort_keys=[(name, "ascending") for name in names])


def _taken(rows: Any, order: Any) -> Any:
    """Takes rows in an order. Most columns of a journal are null, and Arrow takes the longest for those."""
    return with_nulls(rows.select(filled(rows)).take(order), rows.schema)


def _mixed(name: Any, partition: Any, region: Any) -> Any:
    """Mixes hashes of topics with partitions and regions into buckets."""
    by_partition, by_region, last = map(np.uint64, _MULTIPLIERS)
    word = np.uint64(_WORD)
    with np.errstate(over="ignore"):
        mixed = name ^ ((partition.astype(np.uint64) + np.uint64(1)) * by_partition & word)
        mixed ^= (region.astype(np.uint64) + np.uint64(1)) * by_region & word
        mixed ^= mixed >> np.uint64(15)
        return ((mixed * last) & word) >> np.uint64(_SHIFT)


TERM_COLUMNS: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("ctl_epoch", pa.int32()),
        ("ctl_id", pa.int32()),
        ("rows", pa.int64()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
        ("ended", pa.bool_()),
        ("in_doubt", pa.bool_()),
        ("last_write", pa.int64()),
        ("fenced", pa.int64()),
    ]
)


def terms_table(found: Sequence[Piece]) -> Any:
    """Returns the terms as a table."""
    return _table(found, TERM_COLUMNS)


def gaps_table(found: Sequence[Gap]) -> Any:
    """Returns the gaps as a table."""
    return _table(found, GAP_COLUMNS)


def keep_table(into: str, path: str, aside: str, table: Any) -> str:
    """Writes a table as a file of the folder, and returns its path in it.

    Raises :class:`~pipeline.storage.CannotMerge`.
    """
    with writing(into), written(in_folder(into, path), aside) as stream:
        pq.write_table(table, stream, compression="zstd")
    return path


def _table(found: Sequence[Any], schema: Any) -> Any:
    return pa.table(
        [pa.array([getattr(each, field.name) for each in found], field.type) for field in schema], schema=schema
    )
