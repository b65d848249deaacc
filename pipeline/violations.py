"""Makes rows of broken invariants, and compares two rows where missing rows are an excuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        StructField("table", StringType()),
        StructField("region", LongType()),
        StructField("server", StringType()),
    ]
)
"""A violation: the invariant's number, a sentence with the values, and the row that shows it."""

_ROW: Final = VIOLATIONS.names[2:]


class Broken(NamedTuple):
    """The condition under which a row breaks an invariant, and the sentence then; a condition that is null is not met.

    ``suspect`` is met by all such rows and few others: a condition that is cheaper to evaluate in every row.
    """

    when: Column
    what: Column
    suspect: Column | None = None


class Group(NamedTuple):
    """Invariants by number, of the rows that ``of`` holds for. ``compares``: with the row before (``since``)."""

    of: Column
    invariants: Mapping[str, Broken]
    compares: bool = False


def sentence(*parts: str | Column) -> Column:
    """Returns a sentence of texts and values."""
    texts = [fn.lit(part) if isinstance(part, str) else fn.coalesce(part.cast("string"), fn.lit("-")) for part in parts]
    return fn.concat_ws(" ", *texts)


def brokers(name: str) -> Column:
    """Returns a list of brokers, empty where there is none."""
    return fn.coalesce(name, fn.array().cast("array<int>"))


def violations(rows: DataFrame, groups: Sequence[Group]) -> DataFrame:
    """Returns each invariant that a row breaks, in one pass: :data:`VIOLATIONS`, ``topic_id``, and the compared row.

    The compared row is in ``compares``, ``since_epoch`` and ``since_seq``.
    """
    broken = rows.filter(_any(group.of & _any(map(_suspect, group.invariants.values())) for group in groups))
    found = [
        fn.when(
            group.of & each.when,
            fn.struct(
                fn.lit(name).alias("invariant"), each.what.alias("what"), fn.lit(group.compares).alias("compares")
            ),
        )
        for group in groups
        for name, each in group.invariants.items()
    ]
    each = broken.withColumn("found", fn.explode(fn.array(*found))).filter(fn.col("found").isNotNull())
    before = (fn.col("since.ctl_epoch").alias("since_epoch"), fn.col("since.seq").alias("since_seq"))
    return each.select("found.*", *_ROW, "topic_id", *before)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(Column.__or__, conditions)


def _suspect(each: Broken) -> Column:
    return each.when if each.suspect is None else each.suspect


def unexcused(found: DataFrame, gaps: DataFrame) -> DataFrame:
    """Returns violations without comparisons of two rows for which a gap between the two may be the reason.

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
