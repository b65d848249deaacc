"""Derives the journal's schema in Spark from :class:`state_machines.journal.events.Row`: one definition of fields."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any, Final, get_args

import pyarrow as pa
from msgspec.structs import fields
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from state_machines.journal.events import Row

LONGS: Final = frozenset(
    {"seq", "ts_us", "mono_us", "t_detect", "t_decide", "t_committed", "broker_epoch", "lost"}
    | {"pid", "ppid", "root", "took_ms", "t_sent", "t_acknowledged"}
    | {"region", "incarnation0", "incarnation", "token", "sequence", "pids"}
    | {"file_bytes", "seq_first", "seq_last"},
)
"""Numbers, and lists of them, of 64 bits; all others have 32, as in Kafka's protocol."""

_TYPES: Final[dict[Any, DataType]] = {
    int: IntegerType(),
    str: StringType(),
    bool: BooleanType(),
    Sequence[int]: ArrayType(IntegerType()),
    Sequence[str]: ArrayType(StringType()),
}
_WIDE: Final[dict[Any, DataType]] = {int: LongType(), Sequence[int]: ArrayType(LongType())}


def _type(name: str, annotation: Any) -> DataType:
    [plain] = [part for part in get_args(annotation) if part is not NoneType] or [annotation]
    return (_WIDE if name in LONGS else _TYPES)[plain]


REQUIRED: Final = tuple(field.name for field in fields(Row) if field.required)
"""Fields that every row has."""

EVENT: Final = StructType([StructField(field.name, _type(field.name, field.type)) for field in fields(Row)])
"""One row of a journal."""

GAPS: Final = StructType(
    [
        StructField("cluster", StringType()),
        StructField("ctl_epoch", IntegerType()),
        StructField("ctl_id", IntegerType()),
        StructField("seq", LongType()),
        StructField("rows", LongType()),
        StructField("kind", StringType()),
        StructField("why", StringType()),
        StructField("ts_from_us", LongType()),
        StructField("ts_to_us", LongType()),
    ]
)
"""Where something is missing: from ``seq`` of ``ctl_epoch`` on, ``rows`` of them (null: not known), in the time from
the last row before to the first row after (wall clock, microseconds; null: open)."""

VIOLATIONS: Final = StructType(
    [
        StructField("invariant", StringType()),
        StructField("what", StringType()),
        StructField("cluster", StringType()),
        StructField("ctl_epoch", IntegerType()),
        StructField("seq", LongType()),
        StructField("ctl_id", IntegerType()),
        StructField("ts_us", LongType()),
        StructField("kind", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("broker", IntegerType()),
        StructField("table", StringType()),
        StructField("region", LongType()),
        StructField("server", StringType()),
    ]
)
"""A violation: the invariant's number, a sentence with the values, and the row that shows it."""


_PLAIN: Final = {"integer": pa.int32(), "long": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}


def arrow_schema(fields: StructType) -> Any:
    """Returns Arrow's schema of a schema in Spark."""
    return pa.schema([pa.field(field.name, _arrow_type(field.dataType)) for field in fields.fields])


def _arrow_type(of: DataType) -> Any:
    return (
        pa.list_(pa.field("element", _arrow_type(of.elementType)))
        if isinstance(of, ArrayType)
        else _PLAIN[of.typeName()]
    )


COLUMNS: Final = arrow_schema(EVENT)
"""Columns of a row."""

GAP_COLUMNS: Final = arrow_schema(GAPS)
VIOLATION_COLUMNS: Final = arrow_schema(VIOLATIONS)
