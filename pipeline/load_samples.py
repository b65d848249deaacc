"""Reads samples of loads with their times: files of ``regent loads`` that were kept, and a user's own.

A file has the columns ``topic``, ``partition``, ``time_ms`` and any of :data:`NUMBERS`. Of files with ``is_leader``
those rows count that are of leaders, and copies that move between directories (``is_future``) are passed over.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv, json

from pipeline.inputs import BadInput
from pipeline.storage import first_line, opened, size_of

NUMBERS: Final = ("size_bytes", "bytes_in_per_s", "bytes_out_per_s", "start_offset", "end_offset")
SAMPLES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("time_ms", pa.int64()),
        *((name, pa.float64()) for name in NUMBERS),
    ]
)
"""Columns of samples; a number that is not known is null."""
FLAGS: Final = ("is_leader", "is_future")
FILE_BYTES_MAX: Final = 2 * 1024**3
"""A file is read at once."""
REMEDY: Final = (
    f"give files of 'regent loads', or the columns topic, partition, time_ms and any of {', '.join(NUMBERS)}"
)

_TYPES: Final = {field.name: field.type for field in SAMPLES} | {name: pa.bool_() for name in FLAGS}


def read_samples(path: str) -> Any:
    """Returns the samples of a file, CSV, JSON lines or Parquet, as an Arrow table of :data:`SAMPLES`.

    Raises :class:`BadInput`.
    """
    size = size_of(path)
    if size is None:
        raise BadInput(f"{path} is no file")
    if size > FILE_BYTES_MAX:
        raise BadInput(f"{path} has {size:,} bytes, more than {FILE_BYTES_MAX:,}: give it in several files")
    try:
        table = _read(path)
        missing = {"topic", "partition", "time_ms"}.difference(table.column_names)
        if missing:
            raise BadInput(f"{path}: it has no column {' and no '.join(sorted(missing))}: {REMEDY}")
        columns = [name for name in _TYPES if name in table.column_names]
        table = table.select(columns).cast(pa.schema([(name, _TYPES[name]) for name in columns]))
    except pa.ArrowException as error:
        raise BadInput(f"{path} cannot be read: {first_line(error)}: {REMEDY}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {first_line(error)}") from None
    if not set(NUMBERS) & set(columns):
        raise BadInput(f"{path}: it has no column of loads: {REMEDY}")
    _check(path, table)
    for name in SAMPLES.names:
        if name not in columns:
            table = table.append_column(name, pa.nulls(len(table), _TYPES[name]))
    return table.filter(_counting(table)).select(SAMPLES.names)


def _read(path: str) -> Any:
    with opened(path) as stream:
        begin = stream.read(4)
    with opened(path) as stream:
        if begin == b"PAR1":
            file = pq.ParquetFile(stream)
            return file.read(columns=[name for name in _TYPES if name in file.schema_arrow.names])
        if begin[:1] == b"{":
            wanted = json.ParseOptions(
                explicit_schema=pa.schema(list(_TYPES.items())), unexpected_field_behavior="ignore"
            )
            return json.read_json(stream, parse_options=wanted)
        return csv.read_csv(stream, convert_options=csv.ConvertOptions(column_types=_TYPES, strings_can_be_null=True))


def _check(path: str, table: Any) -> None:
    """Raises :class:`BadInput` for the first value that cannot be."""
    for name in table.column_names:
        column = table[name]
        if name in ("topic", "partition", "time_ms"):
            _refuse(path, table, name, pc.is_null(column))
        if name in NUMBERS or name in ("partition", "time_ms"):
            fits = pc.and_(pc.greater_equal(column, 0), pc.less(column, 2.0**63))
            _refuse(path, table, name, pc.invert(pc.fill_null(fits, True)))


def _refuse(path: str, table: Any, name: str, wrong: Any) -> None:
    found = np.flatnonzero(wrong.to_numpy())
    if len(found):
        row = int(found[0])
        value = table[name][row].as_py()
        raise BadInput(f"{path}: row {row + 1}: {name} = {value!r} is no number of 0 or more: {REMEDY}")


def _counting(table: Any) -> Any:
    """Returns which rows count."""
    kept = pa.chunked_array([pa.array(np.ones(len(table), dtype=bool))])
    if "is_leader" in table.column_names:
        kept = pc.and_(kept, pc.fill_null(table["is_leader"], True))
    if "is_future" in table.column_names:
        kept = pc.and_(kept, pc.invert(pc.fill_null(table["is_future"], False)))
    return kept
