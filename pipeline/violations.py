"""What a broken invariant looks like, and when a comparison of two rows means nothing because of what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from pipeline.gaps import SAME_NUMBER

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
    ]
)
"""A violation: the invariant's number, a sentence with the values, and the row that shows it."""

_ROW: Final = VIOLATIONS.names[2:]


class Broken(NamedTuple):
    """When a row breaks an invariant, and what it then says; a condition that is null is not met."""

    when: Column
    what: Column


def say(*parts: str | Column) -> Column:
    """A sentence of texts and values."""
    texts = [fn.lit(part) if isinstance(part, str) else fn.coalesce(part.cast("string"), fn.lit("-")) for part in parts]
    return fn.concat_ws(" ", *texts)


def violations(rows: DataFrame, invariants: Mapping[str, Broken], *more: str) -> DataFrame:
    """Each of ``invariants`` that a row breaks, as :data:`VIOLATIONS` and the columns ``more``."""
    broken = rows.filter(reduce(lambda one, other: one | other, (each.when for each in invariants.values())))
    found = [
        fn.when(each.when, fn.struct(fn.lit(name).alias("invariant"), each.what.alias("what")))
        for name, each in invariants.items()
    ]
    each = broken.withColumn("found", fn.explode(fn.array(*found))).filter(fn.col("found").isNotNull())
    return each.select("found.invariant", "found.what", *_ROW, *more)


def unexcused(found: DataFrame, gaps: DataFrame) -> DataFrame:
    """Violations that compare a row with one before, without those for which a gap between the two may be the reason.

    ``found`` has, beside :data:`VIOLATIONS`, ``since_epoch`` and ``since_seq`` of the row before, and ``excusable``.
    """
    missing = gaps.filter(fn.col("kind") != SAME_NUMBER).select(
        fn.col("cluster").alias("gap_cluster"), fn.struct("ctl_epoch", "seq").alias("at")
    )
    between = (
        fn.col("excusable")
        & (fn.col("gap_cluster") == fn.col("cluster"))
        & (fn.struct(fn.col("since_epoch").alias("ctl_epoch"), fn.col("since_seq").alias("seq")) <= fn.col("at"))
        & (fn.col("at") <= fn.struct("ctl_epoch", "seq"))
    )
    return found.join(fn.broadcast(missing), between, "left_anti").select(*VIOLATIONS.names)
