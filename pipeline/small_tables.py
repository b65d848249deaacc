"""Writes the small tables of a bronze folder: terms, gaps, and empty ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.gaps import Gap
from pipeline.layout import in_folder
from pipeline.pieces import Piece
from pipeline.schema import GAP_COLUMNS
from pipeline.storage import writing, written

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
