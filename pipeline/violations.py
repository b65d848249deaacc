"""Makes violations of frames in Spark, also those of A13, and excuses comparisons that missing rows may explain."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from pipeline.gaps import SAME_NUMBER
from pipeline.schema import VIOLATIONS
from state_machines.journal.events import Kind


def sentence(*parts: str | Column) -> Column:
    """Returns a sentence of texts and values."""
    texts = [fn.lit(part) if isinstance(part, str) else fn.coalesce(part.cast("string"), fn.lit("-")) for part in parts]
    return fn.concat_ws(" ", *texts)


def unexcused(found: DataFrame, gaps: DataFrame, rows_after: int = 0) -> DataFrame:
    """Returns violations without comparisons of two rows for which a gap between the two may be the reason.

    ``found`` has, beside :data:`VIOLATIONS`, ``since_epoch`` and ``since_seq`` of the row before, and ``excusable``.
    ``rows_after``: how many rows behind the later one may be the reason, too.
    """
    missing = gaps.filter(fn.col("kind") != SAME_NUMBER).select(
        fn.col("cluster").alias("gap_cluster"), fn.struct("ctl_epoch", "seq").alias("at")
    )
    between = (
        fn.col("excusable")
        & (fn.col("gap_cluster") == fn.col("cluster"))
        & (fn.struct(fn.col("since_epoch").alias("ctl_epoch"), fn.col("since_seq").alias("seq")) <= fn.col("at"))
        & (fn.col("at") <= fn.struct("ctl_epoch", (fn.col("seq") + rows_after).alias("seq")))
    )
    return found.join(fn.broadcast(missing), between, "left_anti").select(*VIOLATIONS.names)


def racks_kept(rows: DataFrame) -> DataFrame:
    """Returns violations of A13: replicas of a settled partition are in as many racks as there are, or as they are.

    Kafka leaves the spread to the assignment, so it is judged only for clusters that promise it. Each assignment is
    judged where it is seen first, by the racks of brokers in that term; brokers of unknown racks are not judged.
    """
    racks = (
        rows.filter((fn.col("kind") == Kind.BROKER_UP.value) & fn.col("rack").isNotNull())
        .groupBy("cluster", "ctl_epoch", "broker")
        .agg(fn.max_by("rack", "seq").alias("rack"))
    )
    counted = racks.groupBy("cluster", "ctl_epoch").agg(fn.countDistinct("rack").alias("racks"))
    settled = rows.filter(fn.col("replicas").isNotNull() & fn.col("adding").isNull() & fn.col("removing").isNull())
    fields = [name for name in VIOLATIONS.names[2:] if name not in ("cluster", "topic", "partition", "broker")]
    first = settled.groupBy("cluster", "topic", "partition", "replicas").agg(
        fn.min_by(fn.struct(*fields), fn.struct("ctl_epoch", "seq")).alias("first")
    )
    each = first.select("cluster", "topic", "partition", "replicas", "first.*").withColumn(
        "broker", fn.explode("replicas")
    )
    spread = (
        each.join(fn.broadcast(racks), ["cluster", "ctl_epoch", "broker"])
        .groupBy("cluster", "topic", "partition", "replicas", *fields)
        .agg(fn.countDistinct("rack").alias("used"), fn.count("*").alias("known"))
        .join(fn.broadcast(counted), ["cluster", "ctl_epoch"])
    )
    size = fn.size("replicas")
    return (
        spread.filter((fn.col("known") == size) & (fn.col("used") < fn.least(size, fn.col("racks"))))
        .withColumn("invariant", fn.lit("A13"))
        .withColumn("what", sentence("the replicas", fn.col("replicas"), "are in", fn.col("used"), "racks only"))
        .withColumn("broker", fn.lit(None).cast("int"))
        .select(*VIOLATIONS.names)
    )
