"""Finds missing rows of the merged journals (J1), as intervals of numbers and of time."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from pipeline.schema import GAPS
from state_machines.journal.events import Kind

HOLE: Final = "HOLE"
UNRECORDED: Final = "UNRECORDED"
CUT_SHORT: Final = "CUT_SHORT"
IN_DOUBT: Final = "IN_DOUBT"
NO_JOURNAL: Final = "NO_JOURNAL"
EXPIRED: Final = "EXPIRED"
SAME_NUMBER: Final = "SAME_NUMBER"

WHY: Final = {
    HOLE: "rows are missing",
    UNRECORDED: "the daemon could not write them",
    CUT_SHORT: "the term has no end: its daemon was killed, its last second may be missing",
    IN_DOUBT: "the store gave no response to the last write of the term: it may be applied, and has no rows",
    NO_JOURNAL: "no journal of these terms is here: a broker's, or those of a daemon that was not named",
    EXPIRED: "the daemon's oldest file begins here",
    SAME_NUMBER: "two different rows have this number",
}
"""Kinds of gaps. EXPIRED is expected; SAME_NUMBER is no gap, but spoils a count as well."""

TERM: Final = ("cluster", "ctl_epoch", "ctl_id")


def terms(rows: DataFrame) -> DataFrame:
    """Returns a row per term and writer: how many rows, from when to when, whether it was ended.

    ``first_seq`` and ``last_seq`` include the rows that UNRECORDED rows stand for. ``last_write`` is the number of the
    last row of a write, ``fenced`` that of the row of the fence, or null.
    """
    kind, seq = fn.col("kind"), fn.col("seq")
    wrote = fn.col("t_committed").isNotNull() & (~fn.col("pepoch1").eqNullSafe(fn.col("pepoch0")))
    return rows.groupBy(*TERM).agg(
        fn.count("*").alias("rows"),
        fn.min("seq").alias("first_seq"),
        fn.max(_last()).alias("last_seq"),
        fn.min("ts_us").alias("first_us"),
        fn.max("ts_us").alias("last_us"),
        fn.max(kind == Kind.CTL_RESIGNED.value).alias("ended"),
        fn.max((kind == Kind.CTL_RESIGNED.value) & fn.col("pids").isNotNull()).alias("in_doubt"),
        fn.max(fn.when(wrote, seq)).alias("last_write"),
        fn.min(fn.when(kind == Kind.FENCED.value, seq)).alias("fenced"),
    )


def gaps(rows: DataFrame, terms: DataFrame) -> DataFrame:
    """Returns every gap, as :data:`pipeline.schema.GAPS`. ``terms`` are those of ``rows``."""
    narrow = rows.select(*TERM, "seq", "lost", "kind", "ts_us")
    found = (_between(narrow), _unrecorded(narrow), _begins(terms), _ends(terms), _no_journal(terms))
    every = found[0]
    for more in found[1:]:
        every = every.unionByName(more)
    why = fn.create_map(*(fn.lit(text) for pair in WHY.items() for text in pair))
    return every.withColumn("why", why[fn.col("kind")]).select(
        *(fn.col(field.name).cast(field.dataType) for field in GAPS.fields)
    )


def _last() -> Column:
    """Returns the last number that a row stands for."""
    return fn.col("seq") + fn.greatest(fn.coalesce("lost", fn.lit(1)), fn.lit(1)) - 1


def _between(narrow: DataFrame) -> DataFrame:
    """Returns holes within terms, and numbers that two rows have."""
    order = Window.partitionBy(*TERM).orderBy("seq")
    due, seq = fn.col("due"), fn.col("seq")
    placed = narrow.withColumn("due", fn.lag(_last() + 1).over(order)).withColumn(
        "before_us", fn.lag("ts_us").over(order)
    )
    return placed.filter(due.isNotNull() & (due != seq)).select(
        *TERM,
        fn.least(due, seq).alias("seq"),
        fn.when(due < seq, seq - due).alias("rows"),
        fn.when(due < seq, HOLE).otherwise(SAME_NUMBER).alias("kind"),
        fn.col("before_us").alias("ts_from_us"),
        fn.col("ts_us").alias("ts_to_us"),
    )


def _unrecorded(narrow: DataFrame) -> DataFrame:
    return narrow.filter(fn.col("kind") == Kind.UNRECORDED.value).select(
        *TERM,
        "seq",
        fn.col("lost").alias("rows"),
        fn.lit(UNRECORDED).alias("kind"),
        fn.col("ts_us").alias("ts_from_us"),
        fn.col("ts_us").alias("ts_to_us"),
    )


def _begins(terms: DataFrame) -> DataFrame:
    """Returns gaps at the begin of terms; a daemon's oldest term may have one, its first files are expired."""
    daemon = Window.partitionBy("cluster", "ctl_id")
    oldest = fn.col("ctl_epoch") == fn.min("ctl_epoch").over(daemon)
    return (
        terms.withColumn("kind", fn.when(oldest, EXPIRED).otherwise(HOLE))
        .filter(fn.col("first_seq") > 1)
        .select(
            *TERM,
            fn.lit(1).alias("seq"),
            (fn.col("first_seq") - 1).alias("rows"),
            "kind",
            fn.lit(None).alias("ts_from_us"),
            fn.col("first_us").alias("ts_to_us"),
        )
    )


def _followed(terms: DataFrame) -> DataFrame:
    """Adds to terms the epoch and the time at which the cluster's next one begins."""
    order = Window.partitionBy("cluster").orderBy("ctl_epoch", "ctl_id")
    return terms.withColumn("next_epoch", fn.lead("ctl_epoch").over(order)).withColumn(
        "next_us", fn.lead("first_us").over(order)
    )


def _ends(terms: DataFrame) -> DataFrame:
    """Returns terms that another one followed although their last rows are not known: killed ones, and in doubt."""
    known = fn.col("ended") & ~fn.col("in_doubt")
    followed = _followed(terms).filter(~known & (fn.col("next_epoch") > fn.col("ctl_epoch")))
    return followed.select(
        *TERM,
        (fn.col("last_seq") + 1).alias("seq"),
        fn.lit(None).alias("rows"),
        fn.when(fn.col("ended"), IN_DOUBT).otherwise(CUT_SHORT).alias("kind"),
        fn.col("last_us").alias("ts_from_us"),
        fn.col("next_us").alias("ts_to_us"),
    )


def _no_journal(terms: DataFrame) -> DataFrame:
    """Returns epochs between those of the journals; the gap begins with the first of them."""
    followed = _followed(terms).filter(fn.col("next_epoch") > fn.col("ctl_epoch") + 1)
    return followed.select(
        "cluster",
        (fn.col("ctl_epoch") + 1).alias("ctl_epoch"),
        fn.lit(None).alias("ctl_id"),
        fn.lit(1).alias("seq"),
        fn.lit(None).alias("rows"),
        fn.lit(NO_JOURNAL).alias("kind"),
        fn.col("last_us").alias("ts_from_us"),
        fn.col("next_us").alias("ts_to_us"),
    )
