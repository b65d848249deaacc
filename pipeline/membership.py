"""Judges invariants about which brokers were there, and in which racks: A9 and A13."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from pipeline.violations import VIOLATIONS, sentence, unexcused
from state_machines.journal.events import Kind
from state_machines.model.types import NO_LEADER

_KINDS = (Kind.BROKER_UP.value, Kind.BROKER_DOWN.value, Kind.BROKER_SHUTDOWN_BEGIN.value)


def elected_live(rows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Returns violations of A9: an elected leader has come, and has neither gone nor begun to shut down, in that term.

    Each term begins with the brokers that it found, so it is judged by itself.
    """
    elected = rows.filter(
        fn.col("strategy").isNotNull()
        & (fn.col("leader1") > NO_LEADER)
        & ~fn.col("leader1").eqNullSafe(fn.col("leader0"))
    )
    live = fn.broadcast(lifetimes(rows))
    there = (
        (live["of_cluster"] == elected["cluster"])
        & (live["of_epoch"] == elected["ctl_epoch"])
        & (live["of_broker"] == elected["leader1"])
        & (live["since"] < elected["seq"])
        & fn.coalesce(elected["seq"] < live["until"], fn.lit(True))
    )
    found = elected.join(live, there, "left_anti").withColumns(
        {
            "invariant": fn.lit("A9"),
            "what": sentence("broker", fn.col("leader1"), "was elected while it was not live or was shutting down"),
            "since_epoch": fn.col("ctl_epoch"),
            "since_seq": fn.lit(0).cast("long"),
            "excusable": fn.lit(True),
        }
    )
    return unexcused(found, gaps)


def lifetimes(rows: DataFrame) -> DataFrame:
    """Returns when a broker could lead, within a term: from its BROKER_UP (``since``) to its end (``until``, or null).

    One that began to shut down comes back only with a new registration.
    """
    # Rows of brokers name no topic and come first in their files, so that the rest of those is not read.
    events = rows.filter(fn.col("topic").isNull() & fn.col("kind").isin(*_KINDS)).select(
        "cluster", "ctl_epoch", "broker", "seq", "kind"
    )
    order = Window.partitionBy("cluster", "ctl_epoch", "broker").orderBy("seq")
    return (
        events.withColumn("until", fn.lead("seq").over(order))
        .filter(fn.col("kind") == Kind.BROKER_UP.value)
        .select(
            fn.col("cluster").alias("of_cluster"),
            fn.col("ctl_epoch").alias("of_epoch"),
            fn.col("broker").alias("of_broker"),
            fn.col("seq").alias("since"),
            "until",
        )
    )


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
