"""Reads a slice of a journal's file in a task, as Arrow's batches with the columns of a batch of the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pipeline.lines import Bad, Lines, blocks, count
from pipeline.storage import first_line, opened
from pipeline.stream.batch import of_bad, of_rows
from pipeline.stream.offsets import Slice

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
