"""Makes typed rows of journals' lines (J1); puts other lines aside, and keeps repeated ones once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.schema import EVENT, OF_PARTITION, REQUIRED, ROWS, SINCE
from state_machines.journal.events import SCHEMA_VERSION

LINE_CHARACTERS_MAX: Final = 1 << 20
"""A longer line is none of the journal's."""

LAYOUT: Final = ("cluster", "d", "topic", "partition", "region", "ctl_epoch", "seq")
"""Order within a file: the history of a partition or a region is in one place, oldest first."""

_CORRUPT: Final = "_corrupt"


def parsed(lines: DataFrame) -> DataFrame:
    """Parses ``lines`` (value, file) into ``row``, its fields, and ``bad``: why it is no row, or null."""
    schema = StructType([*EVENT.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    # As a generator, because conditions on a plain column would be moved below it and parse the line for each field.
    row = fn.explode(fn.array(fn.from_json("value", schema, options)))
    return lines.select("value", "file", row.alias("row")).withColumn("bad", _bad())


def _bad() -> Column:
    value, row = fn.col("value"), fn.col("row")
    missing = [fn.when(row[name].isNull(), fn.lit(f"{name} is missing")) for name in REQUIRED]
    return fn.coalesce(
        fn.when(fn.length(value) > LINE_CHARACTERS_MAX, fn.lit("it is too long for a row")),
        fn.when(~value.endswith("}"), fn.lit("it is torn")),
        fn.when(row.isNull() | row[_CORRUPT].isNotNull(), fn.lit("it is no JSON object with the fields of a row")),
        *missing,
        fn.when(row["v"] != SCHEMA_VERSION, fn.concat(fn.lit("unknown version "), row["v"].cast("string"))),
        fn.when((row["ctl_epoch"] < 0) | (row["seq"] < 1), fn.lit("its epoch or number is out of range")),
    )


def quarantine(read: DataFrame) -> DataFrame:
    """Returns the lines of :func:`parsed` that are no rows, their files, and why (file, why, value)."""
    return read.filter(fn.col("bad").isNotNull()).select("file", fn.col("bad").alias("why"), "value")


def rows(read: DataFrame) -> DataFrame:
    """Returns the rows of :func:`parsed`, each once, as :data:`pipeline.schema.ROWS` and ordered as :data:`LAYOUT`.

    Copies of a row are the same line. Different rows with one number both stay: :mod:`pipeline.gaps` reports them.
    """
    sound = read.filter(fn.col("bad").isNull()).select("row.*", fn.xxhash64("value").alias("digest")).drop(_CORRUPT)
    # One shuffle and one order for both windows.
    partition, order = ("cluster", "topic", "partition", "region"), ("ctl_epoch", "seq", "ctl_id", "digest")
    parted = sound.repartition(*partition)
    same = Window.partitionBy(*partition, *order).orderBy("mono_us")
    once = parted.withColumn("copy", fn.row_number().over(same)).filter(fn.col("copy") == 1)
    earlier = Window.partitionBy(*partition).orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)
    tells = fn.col("kind").isin(*OF_PARTITION) & fn.col("pepoch1").isNotNull()
    left = fn.struct(*(fn.col(row).alias(name) for name, row in SINCE.items()))
    linked = once.withColumn("since", fn.when(tells, fn.last(fn.when(tells, left), ignorenulls=True).over(earlier)))
    dated = linked.withColumn("d", fn.to_date(fn.timestamp_micros("ts_us")))
    return dated.select(*ROWS.names).sortWithinPartitions(*LAYOUT)
