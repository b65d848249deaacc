"""Judges the key space of tables (A17): the regions of a new table cover all keys, each once."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from pipeline.regions import rows_of
from pipeline.schema import VIOLATIONS
from pipeline.violations import sentence, unexcused
from state_machines.journal.events import Kind
from state_machines.regions.states import TableState

_TABLE = ["cluster", "table", "made"]


def keys_covered(rows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Returns violations of A17: holes, overlaps, and regions that are too few or too many.

    Keys are text whose order is another one than that of their bytes, so ends are looked up among starts.
    """
    seen = _since_creation(rows)
    enabled = seen.filter(
        (fn.col("kind") == Kind.TABLE_STATE.value)
        & (fn.col("from_state") == TableState.CREATING.name)
        & (fn.col("to_state") == TableState.ENABLED.name)
    )
    new = seen.filter(fn.col("start").isNotNull()).select(*_TABLE, "start", "end")
    counts = new.groupBy(*_TABLE).agg(
        fn.count("*").alias("count"),
        fn.countDistinct("start").alias("starts"),
        fn.countDistinct("end").alias("ends"),
        fn.count(fn.when(fn.col("start") == "", 1)).alias("first"),
        fn.count(fn.when(fn.col("end") == "", 1)).alias("last"),
    )
    starts = new.select(*_TABLE, fn.col("start").alias("end"))
    loose = (
        new.filter(fn.col("end") != "").join(starts, [*_TABLE, "end"], "left_anti").groupBy(*_TABLE)
        .agg(fn.count("*").alias("loose"), fn.min("end").alias("key"))
    )  # fmt: skip
    joined = enabled.join(counts, _TABLE, "left").join(loose, _TABLE, "left").fillna(0, ["count", "loose", "starts"])
    count, key = fn.col("count"), fn.col("key")
    what = (
        fn.when(count != fn.col("regions"), sentence("it has", fn.col("regions"), "regions and", count, "were made"))
        .when(fn.col("loose") > 0, sentence("no region begins at", key, "where one ends"))
        .when((fn.col("starts") != count) | (fn.col("ends") != count), sentence("two regions have the same key"))
        .when((fn.col("first") != 1) | (fn.col("last") != 1), sentence("no region has the first key, or the last one"))
    )
    found = joined.withColumn("what", what).filter(fn.col("what").isNotNull())
    return unexcused(
        found.withColumns(
            {
                "invariant": fn.lit("A17"),
                "since_epoch": fn.col("made.ctl_epoch"),
                "since_seq": fn.col("made.seq"),
                "excusable": fn.lit(True),
            }
        ).select("invariant", *VIOLATIONS.names[1:], "since_epoch", "since_seq", "excusable"),
        gaps,
    )


def _since_creation(rows: DataFrame) -> DataFrame:
    """Returns rows of tables and of new regions with ``made``, where the table was created last."""
    seen = rows_of(rows, Kind.TABLE_STATE, Kind.REGION_STATE).filter(
        (fn.col("kind") == Kind.TABLE_STATE.value) | fn.col("start").isNotNull()
    )
    so_far = Window.partitionBy("cluster", "table").orderBy("at").rowsBetween(Window.unboundedPreceding, 0)
    creates = (fn.col("kind") == Kind.TABLE_STATE.value) & (fn.col("to_state") == TableState.CREATING.name)
    made = fn.last(fn.when(creates, fn.col("at")), ignorenulls=True).over(so_far)
    return seen.withColumn("made", made).filter(fn.col("made").isNotNull())
