"""Writes the rows of journals' files as Parquet (J1), in a task of Spark or not: whole files in, a few numbers out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b, sha256
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from pipeline.layout import QUARANTINE, ROWS, RowsFile, bucketed, in_folder
from pipeline.lines import BLOCK_BYTES, Bad, Lines, blocks, count, lines_of
from pipeline.pieces import Piece, concatenated, narrow, pieces_of
from pipeline.schema import COLUMNS
from pipeline.storage import opened, written

PORTION_BYTES: Final = 64_000_000
"""Lines whose rows are sorted at once: those of a whole segment, as a daemon writes them by default."""
DIGEST_BYTES: Final = 16

PUT_ASIDE: Final = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), ("why", pa.string()), ("value", pa.string())]
)
"""Of lines in quarantine; ``line`` counts from 1."""

_SOUGHT: Final = ("cluster", "topic", "partition", "region", "kind", "ctl_epoch", "seq", "ts_us")
"""Columns by whose least and greatest value a reader may pass over a row group."""
_REPEATED: Final = [field.name for field in COLUMNS if field.type not in (pa.int64(), pa.bool_())]
"""Columns that are worth a dictionary."""


class Source(Struct, frozen=True):
    """A journal's file. ``number``: of its files in the folder, another one for each file and each time it is read.

    ``compiled``: its lines are worth a compiled loop.
    """

    path: str
    number: int
    compiled: bool = False


class Made(Struct, frozen=True):
    """The result for one file: what it had, where that went, and the pieces of terms in it."""

    source: Source
    lines: int
    copies: int
    quarantined: int
    files: Sequence[RowsFile]
    quarantine: Sequence[str]
    kinds: dict[str, int]
    pieces: Sequence[Piece]


class Digest(Struct, frozen=True):
    """The number of a file's lines, and a digest of all its bytes."""

    lines: int
    digest: str


def digest(path: str) -> Digest:
    """Reads a file for its digest."""
    hashed, lines, tail = sha256(), 0, b""
    with opened(path) as file:
        while read := file.read(BLOCK_BYTES):
            hashed.update(read)
            lines, tail = lines + read.count(b"\n"), read[-1:]
    return Digest(lines + (tail not in (b"", b"\n")), hashed.hexdigest())


def make(source: Source, folder: str, run: str, attempt: str) -> Made:
    """Writes the rows and the bad lines of one file into ``folder``."""
    with _Writer(source, folder, run, attempt) as into:
        pieces: list[Piece] = []
        for rows in into.portions(seen=None):
            pieces += pieces_of(narrow(rows))
    return into.made(pieces)


def make_together(sources: Sequence[Source], folder: str, run: str, attempt: str) -> list[Made]:
    """Writes files whose numbers meet: of lines that are the same, only the first is kept.

    The pieces of all files are those of the first result. Memory holds some 150 bytes for each line of all files.
    """
    seen: set[bytes] = set()
    made, narrowed = [], []
    for source in sources:
        with _Writer(source, folder, run, attempt) as into:
            narrowed += [narrow(rows) for rows in into.portions(seen)]
        made.append((into, source))
    together = pieces_of(concatenated(narrowed)) if narrowed else []
    return [into.made(together if number == 0 else []) for number, (into, _) in enumerate(made)]


def parquet_writer(stream: Any, schema: Any) -> Any:
    """Makes a writer of a file of rows, or of another table."""
    of_rows: dict[str, Any] = {"use_dictionary": _REPEATED, "write_statistics": list(_SOUGHT)}
    return pq.ParquetWriter(stream, schema, compression="zstd", **(of_rows if schema is COLUMNS else {}))


def write_bucketed(writer: Any, rows: Any) -> list[tuple[int, int]]:
    """Writes rows sorted, in a row group for each bucket; returns the bucket and the number of rows of each."""
    ordered, groups = bucketed(rows)
    at = 0
    for _, size in groups:
        writer.write_table(ordered.slice(at, size), row_group_size=size)
        at += size
    return groups


class _Writer:
    """Reads a file portion by portion, and writes the rows and bad lines of each."""

    def __init__(self, source: Source, folder: str, run: str, attempt: str) -> None:
        self._source, self._folder, self._aside = source, folder, f"{run}-{attempt}"
        name = f"{run}-{source.number:07d}.parquet"
        self._rows, self._bad = f"{ROWS}/{name}", f"{QUARANTINE}/{name}"
        self._files = ExitStack()
        self._open: dict[str, Any] = {}
        self._groups: list[tuple[int, int]] = []
        self._kinds: Counter[str] = Counter()
        self._lines = self._copies = self._quarantined = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

    def portions(self, seen: set[bytes] | None) -> Iterator[Any]:
        """Writes and yields tables of rows; with ``seen``, rows whose line is in it are left out, and added to it."""
        tables, size, lines = [], 0, Lines(compiled=self._source.compiled)
        with opened(self._source.path) as stream:
            for block in blocks(stream):
                tables.append(self._parsed(lines, block, seen))
                size += len(block)
                if size >= PORTION_BYTES:
                    yield self._written(pa.concat_tables(tables))
                    tables, size = [], 0
        if tables:
            yield self._written(pa.concat_tables(tables))

    def made(self, pieces: Sequence[Piece]) -> Made:
        """Returns the result, once all is written."""
        return Made(
            self._source,
            self._lines,
            self._copies,
            self._quarantined,
            [RowsFile(self._rows, self._groups)] if self._groups else [],
            [self._bad] if self._quarantined else [],
            dict(self._kinds),
            pieces,
        )

    def _parsed(self, lines: Lines, block: bytes, seen: set[bytes] | None) -> Any:
        """Returns the rows of a block that are kept."""
        rows, bad = lines.parsed(block)
        if bad:
            self._put_aside(bad)
        if seen is not None:
            rows = self._once(rows, block, {each.number for each in bad}, seen)
        self._lines += count(block)
        return rows

    def _once(self, rows: Any, block: bytes, bad: set[int], seen: set[bytes]) -> Any:
        new = []
        for number, line in enumerate(lines_of(block)):
            if number not in bad:
                hashed = blake2b(line, digest_size=DIGEST_BYTES).digest()
                new.append(hashed not in seen)
                seen.add(hashed)
        self._copies += new.count(False)
        return rows if all(new) else rows.filter(pa.array(new, pa.bool_()))

    def _put_aside(self, bad: Sequence[Bad]) -> None:
        table = {
            "file": [self._source.path] * len(bad),
            "line": [self._lines + each.number + 1 for each in bad],
            "why": [each.why for each in bad],
            "value": [each.value for each in bad],
        }
        self._quarantined += len(bad)
        self._writer(self._bad, PUT_ASIDE).write_table(pa.table(table, schema=PUT_ASIDE))

    def _written(self, rows: Any) -> Any:
        self._groups += write_bucketed(self._writer(self._rows, COLUMNS), rows) if len(rows) else []
        for each in pc.value_counts(rows["kind"]).to_pylist():
            self._kinds[each["values"]] += each["counts"]
        return rows

    def _writer(self, path: str, schema: Any) -> Any:
        """Returns the writer of a file, which is there once this file is done."""
        if path not in self._open:
            stream = self._files.enter_context(written(in_folder(self._folder, path), self._aside))
            self._open[path] = self._files.enter_context(parquet_writer(stream, schema))
        return self._open[path]
