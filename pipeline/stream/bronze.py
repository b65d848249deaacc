"""Keeps batches of a stream in a bronze folder, each once: what ``audit`` and ``report`` read, as after an ingest.

A batch becomes a file of rows that has the batch's number in its name, and counts once the manifest names it. The same
rename says that the batch is kept. So a batch that Spark repeats, after a kill anywhere, is passed over or written
again. Rows that are there already, as after a copy of a file, are found by their numbers and left out.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from pipeline.gaps import Gap, gaps, terms
from pipeline.layout import (
    AUDIT,
    GAPS,
    MANIFEST,
    QUARANTINE,
    ROWS,
    TERMS,
    VERSION,
    Manifest,
    RowsFile,
    gaps_table,
    in_folder,
    keep_table,
    table_in,
    terms_table,
)
from pipeline.pieces import Piece, narrow, pieces_of
from pipeline.schema import COLUMNS
from pipeline.segments import parquet_writer, write_bucketed
from pipeline.storage import (
    CannotMerge,
    NothingToRead,
    discard,
    first_line,
    move,
    opened,
    remove,
    under,
    write,
    writing,
    written,
)
from pipeline.stream.batch import Batch, Kept, new_rows, parted
from pipeline.stream.runs import merged, numbers_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT_BATCHES: Final = 100
"""Of so many batches the tables of terms and gaps stay, for readers that have an earlier manifest."""

Span = tuple[str, int, int, int, int]
"""Cluster, epoch and writer of a term, and its first and last number in a file."""


class Streamed(Struct, frozen=True):
    """How far a stream is: its query's id, its last batch, the rows that are there, and what each file has of them."""

    query: str
    batch: int
    runs: Sequence[Piece]
    spans: Sequence[Sequence[Span]]


class StreamManifest(Manifest, frozen=True):
    """The manifest of a folder that a stream fills."""

    streamed: Streamed


class Bronze:
    """The folder ``into``, which one stream fills, with the query's id ``query``."""

    def __init__(self, into: str, query: str) -> None:
        self._into, self._query = into, query
        self._run, self._aside = query[:8], secrets.token_hex(4)
        with writing(into):
            self._made = _manifest(into) or _recovered(into)
        self._gaps: Sequence[Gap] = ()
        _clear(into)

    @property
    def manifest(self) -> Manifest | None:
        """The manifest as this stream has seen or written it last."""
        return self._made

    @property
    def gaps(self) -> Sequence[Gap]:
        """The gaps after the last batch."""
        return self._gaps

    def keep(self, number: int, batch: Batch) -> Kept:
        """Keeps a batch, unless it is there already.

        Raises :class:`~pipeline.storage.CannotMerge`, also where the folder is not as this stream left it.
        """
        before = self._made
        if before is not None and before.streamed.query == self._query and number <= before.streamed.batch:
            return Kept(number, 0, 0, 0, None, again=True)
        self._follows(number)
        runs = before.streamed.runs if before is not None else ()
        known = batch.rows.filter(pa.array(numbers_in(runs, batch.rows)))
        rows = new_rows(batch.rows, self._written(known))
        copies = len(batch.rows) - len(rows)
        runs = merged(runs, rows) if len(rows) else list(runs)
        self._commit(self._with(number, batch, rows, runs))
        last_us = pc.max(rows["ts_us"]).as_py() if len(rows) else None
        return Kept(number, len(rows), copies, len(batch.bad), last_us, again=False)

    def _follows(self, number: int) -> None:
        """Checks that the folder has all batches before this one, and that nobody else has changed it."""
        if _manifest(self._into) != self._made:
            raise CannotMerge(f"another stream or ingest has changed {self._into}: stop it, then start this one again")
        if number == 0:
            return
        if self._made is None or self._made.streamed.query != self._query or self._made.streamed.batch != number - 1:
            raise CannotMerge(
                f"{self._into} does not have the {number} batches that this checkpoint has read: "
                "name a new checkpoint, and all files are read again"
            )

    def _written(self, like: Any) -> Any:
        """Reads the files that have a number between the first and the last one of these rows."""
        tables = [COLUMNS.empty_table()]
        sought = pieces_of(narrow(like))
        if self._made is not None and sought:
            for file, spans in zip(self._made.files, self._made.streamed.spans, strict=True):
                if any(_meet(span, piece) for span in spans for piece in sought):
                    tables.append(table_in(self._into, file.path).select(COLUMNS.names).cast(COLUMNS))
        return pa.concat_tables(tables)

    def _with(self, number: int, batch: Batch, rows: Any, runs: Sequence[Piece]) -> StreamManifest:
        """Writes the files of a batch, and returns the manifest that names them as well."""
        before = self._made
        files, spans = (list(before.files), list(before.streamed.spans)) if before is not None else ([], [])
        quarantine = list(before.quarantine) if before is not None else []
        kinds = Counter(before.kinds if before is not None else {})
        name = f"{self._run}-{number:07d}.parquet"
        if len(rows) or not files:
            files.append(self._rows_file(f"{ROWS}/{name}", rows))
            spans.append([(*piece.term, piece.first_seq, piece.last_seq) for piece in pieces_of(narrow(rows))])
        if len(batch.bad) or not quarantine:
            quarantine.append(self._table(QUARANTINE, name, batch.bad))
        for each in pc.value_counts(rows["kind"]).to_pylist():
            kinds[each["values"]] += each["counts"]
        joined = terms(runs)
        self._gaps = gaps(joined)
        copies = len(batch.rows) - len(rows)
        return StreamManifest(
            VERSION,
            files,
            self._table(TERMS, name, terms_table(joined)),
            self._table(GAPS, name, gaps_table(self._gaps)),
            quarantine,
            dict(sorted(kinds.items())),
            (before.lines if before is not None else 0) + len(batch.rows) + len(batch.bad),
            (before.copies if before is not None else 0) + copies,
            (before.quarantined if before is not None else 0) + len(batch.bad),
            Streamed(self._query, number, runs, spans),
        )

    def _commit(self, made: StreamManifest) -> None:
        assert made.lines == made.rows + made.quarantined + made.copies
        discard(in_folder(self._into, AUDIT))  # never beside rows that it is not about
        write(in_folder(self._into, MANIFEST), self._aside, msgspec.json.encode(made))
        self._made = made
        old = made.streamed.batch - KEPT_BATCHES
        for kind in (TERMS, GAPS) if old >= 0 else ():
            discard(in_folder(self._into, f"{kind}/{self._run}-{old:07d}.parquet"))

    def _rows_file(self, path: str, rows: Any) -> RowsFile:
        with (
            writing(self._into),
            written(in_folder(self._into, path), self._aside) as stream,
            parquet_writer(stream, COLUMNS) as writer,
        ):
            return RowsFile(path, write_bucketed(writer, rows) if len(rows) else [])

    def _table(self, kind: str, name: str, table: Any) -> str:
        return keep_table(self._into, f"{kind}/{name}", self._aside, table)


def keeper(into: str, query: str) -> Callable[[int, DataFrame], Kept]:
    """Returns a function that keeps a batch of Spark's in the folder; the driver holds it in memory."""
    bronze = Bronze(into, query)
    return lambda number, batch: bronze.keep(number, parted(batch.toArrow()))


def _meet(span: Span, piece: Piece) -> bool:
    *term, first, last = span
    return piece.term == tuple(term) and first <= piece.last_seq and piece.first_seq <= last


def _manifest(folder: str) -> StreamManifest | None:
    """Reads the manifest of a folder; None without one."""
    try:
        return _decoded(folder, MANIFEST)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        remedy = "name another folder and another checkpoint, and all files are read again"
        raise NothingToRead(f"{folder}/{MANIFEST} cannot be read: {first_line(error)}: {remedy}") from None


def _recovered(folder: str) -> StreamManifest | None:
    """Puts the last manifest in its place: some stores remove the one before first, and a kill may come between.

    One that a kill has left half written is not the last one, and stays where it is.
    """
    for path in under(folder):
        if path.startswith("_") and path.endswith(f"-{MANIFEST}"):
            with suppress(msgspec.DecodeError):
                found = _decoded(folder, path)
                move(in_folder(folder, path), in_folder(folder, MANIFEST))
                return found
    return None


def _decoded(folder: str, path: str) -> StreamManifest:
    with opened(in_folder(folder, path)) as file:
        content = file.read()
    try:
        return msgspec.json.decode(content, type=StreamManifest)
    except msgspec.ValidationError:
        raise CannotMerge(
            f"{folder} was filled by 'regent pipeline ingest' or by another release: name another folder"
        ) from None


def _clear(folder: str) -> None:
    """Removes what a killed writer has left half written."""
    with writing(folder):
        for path in [path for kind in ("", ROWS, TERMS, GAPS, QUARANTINE) for path in under(folder, kind)]:
            name = path.rpartition("/")[2]
            if name.startswith("_") and (name != path or name.endswith(f"-{MANIFEST}")):
                remove(in_folder(folder, path))
