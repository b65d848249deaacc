"""Derives the journal's schema in Arrow from the one in Spark (:data:`pipeline.schema.EVENT`)."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

from pipeline.schema import EVENT, GAPS, VIOLATIONS

_PLAIN: Final = {"integer": pa.int32(), "long": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}


def arrow_schema(fields: StructType) -> Any:
    """Returns Arrow's schema of a schema in Spark."""
    return pa.schema([pa.field(field.name, _type(field.dataType)) for field in fields.fields])


def _type(of: DataType) -> Any:
    return pa.list_(pa.field("element", _type(of.elementType))) if isinstance(of, ArrayType) else _PLAIN[of.typeName()]


COLUMNS: Final = arrow_schema(EVENT)
"""Columns of a row."""

GAP_COLUMNS: Final = arrow_schema(GAPS)
VIOLATION_COLUMNS: Final = arrow_schema(VIOLATIONS)
