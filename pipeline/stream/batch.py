"""Declares the columns of a batch: those of a row, and one that is filled for a line that is no row instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pipeline.columns import COLUMNS
from pipeline.lines import Bad
from pipeline.schema import EVENT
from pipeline.segments import PUT_ASIDE

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
    """Rows with :data:`~pipeline.columns.COLUMNS`, and lines with :data:`~pipeline.segments.PUT_ASIDE`."""

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
