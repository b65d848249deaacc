"""Declares the columns of a batch of the stream, and reads a slice of a journal's file as batches with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pipeline.lines import Bad, Lines, blocks, count
from pipeline.pieces import TERM
from pipeline.schema import COLUMNS, EVENT
from pipeline.segments import PUT_ASIDE
from pipeline.storage import first_line, opened
from pipeline.stream.offsets import Slice

BAD: Final = "bad"
"""Column with file, line (from 1), reason and text of a line that is no row; null for a row."""
STREAMED: Final = StructType(
    [
        *EVENT.fields,
        StructField(
            BAD,
            StructType(
                [
                    StructField("file", StringType()),
                    StructField("line", LongType()),
                    StructField("why", StringType()),
                    StructField("value", StringType()),
                ]
            ),
        ),
    ]
)
"""Columns of a batch."""

_BAD: Final = pa.field(BAD, pa.struct(list(PUT_ASIDE)))
_BOTH: Final = pa.schema([*COLUMNS, _BAD])


class Batch(NamedTuple):
    """Rows with :data:`~pipeline.schema.COLUMNS`, and lines with :data:`~pipeline.segments.PUT_ASIDE`."""

    rows: Any
    bad: Any


class Kept(NamedTuple):
    """What became of a batch. ``last_us``: time of its last row; ``again``: it was there already."""

    batch: int
    rows: int
    copies: int
    quarantined: int
    last_us: int | None
    again: bool


def of_rows(rows: Any) -> Any:
    """Returns a table of rows with the columns of a batch."""
    return rows.append_column(_BAD, pa.nulls(len(rows), _BAD.type))


def of_bad(file: str, before: int, bad: Sequence[Bad]) -> Any:
    """Returns a table of a file's bad lines with the columns of a batch; ``before``: lines before the block."""
    found = [{"file": file, "line": before + each.number + 1, "why": each.why, "value": each.value} for each in bad]
    rows = pa.table([pa.nulls(len(bad), field.type) for field in COLUMNS], schema=COLUMNS)
    return rows.append_column(_BAD, pa.array(found, _BAD.type))


def parted(table: Any) -> Batch:
    """Parts a table with the columns of a batch, as Spark gives it, into rows and bad lines."""
    table = table.cast(_BOTH)
    aside = pc.is_valid(table[BAD])
    bad = table.filter(aside)[BAD].combine_chunks()
    columns = [bad.field(number) for number in range(len(PUT_ASIDE))]
    return Batch(table.filter(pc.invert(aside)).select(COLUMNS.names), pa.table(columns, schema=PUT_ASIDE))


KEY: Final = (*TERM, "seq")


def new_rows(rows: Any, kept: Any, key: Sequence[str] = KEY) -> Any:
    """Returns the rows that are neither in ``kept`` nor earlier in ``rows``, which has the same columns.

    Rows with the same ``key`` are compared.
    """
    both = pa.concat_tables([kept, rows]).combine_chunks()
    order = pc.sort_indices(
        both.select(key).append_column("at", pa.array(np.arange(len(both)))),
        sort_keys=[(name, "ascending") for name in (*key, "at")],
    ).to_numpy()
    first = _first_of_key(both, order, key)
    copies: Any = np.zeros(len(both), dtype=bool)
    for distance in range(1, int((np.arange(len(both)) - first).max(initial=0)) + 1):
        at = np.flatnonzero(first + distance <= np.arange(len(both)))
        at = at[order[at] >= len(kept)]
        if len(at):
            copies[order[at[same(both, order[at], order[at - distance])]]] = True
    return rows if not copies.any() else rows.filter(pa.array(~copies[len(kept) :]))


def same(table: Any, one: Any, other: Any) -> Any:
    """Compares rows ``one`` of a table with rows ``other`` in all columns; null is the same as null.

    Returns an array of bool, as long as the two arrays of indices.
    """
    alike: Any = np.ones(len(one), dtype=bool)
    for name in table.column_names:
        column = table[name].combine_chunks()
        if column.null_count < len(column) and alike.any():
            alike &= _alike(column.take(pa.array(one)), column.take(pa.array(other)))
    return alike


def _first_of_key(both: Any, order: Any, key: Sequence[str]) -> Any:
    """Returns for each place of the order the first place with the same key."""
    begins: Any = np.ones(len(order), dtype=bool)
    for name in key:
        values = both[name].combine_chunks().take(pa.array(order))
        differs = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
        begins[1:] = differs if name == key[0] else begins[1:] | differs
    return np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))


def _alike(one: Any, other: Any) -> Any:
    if pa.types.is_list(one.type):  # Arrow compares no lists
        return np.array([a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], dtype=bool)
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(pc.fill_null(pc.equal(one, other), False), both_null).to_numpy(zero_copy_only=False)


GONE: Final = "it was removed before it was read: {}"

PART_BYTES: Final = 1 << 24
"""Of small slices that one task reads."""

_COUNT_BYTES: Final = 1 << 20


class Part(InputPartition):
    """Slices of files, which one task reads."""

    def __init__(self, value: Sequence[Slice]) -> None:
        super().__init__(value)


def parts(found: Iterable[Slice]) -> list[Part]:
    """Puts small slices together: a task of its own for each takes longer than to read it."""
    together: list[list[Slice]] = []
    room = 0
    for each in found:
        if each.end - each.begin > room or not together:
            together.append([])
            room = PART_BYTES
        together[-1].append(each)
        room -= each.end - each.begin
    return [Part(slices) for slices in together]


def read(partition: InputPartition) -> Iterator[Any]:
    """Yields Arrow's batches of a part."""
    for each in partition.value:
        yield from batches(each)


def batches(part: Slice) -> Iterator[Any]:
    """Yields Arrow's batches of a slice. One that is gone gives a bad line, so that nothing is left out unsaid."""
    pa.set_cpu_count(1)
    lines = Lines()
    at = 0
    try:
        with opened(part.path) as stream:
            before = _lines_before(stream, part.begin) if part.begin else 0
            for block in blocks(_Upto(stream, part.end - part.begin)):
                rows, bad = lines.parsed(block)
                yield from of_rows(rows).combine_chunks().to_batches()
                if bad:
                    yield from of_bad(part.path, before + at, bad).to_batches()
                at += count(block)
    except FileNotFoundError as error:
        yield from of_bad(part.path, -1, [Bad(0, GONE.format(first_line(error)), "")]).to_batches()


class _Upto:
    """Reads so many bytes of a stream and then has no more."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, size: int) -> bytes:
        read: bytes = self._stream.read(min(size, self._left))
        self._left -= len(read)
        return read


def _lines_before(stream: Any, end: int) -> int:
    """Counts the lines before a slice, and leaves the stream there."""
    lines, upto = 0, _Upto(stream, end)
    while read := upto.read(_COUNT_BYTES):
        lines += read.count(b"\n")
    return lines
