"""Judges A15 beyond single rows: requests name a registration of their time, by a term that is not over."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from pipeline.violations import VIOLATIONS, sentence, unexcused
from state_machines.journal.events import Kind

CLOCKS_US_MAX: Final = 1_000_000
"""Difference of the wall clocks of two machines that excuses an order of requests."""

_REGISTRATIONS: Final = (Kind.BROKER_UP.value, Kind.BROKER_DOWN.value)


def current_epochs(rows: DataFrame, gaps: DataFrame) -> DataFrame:
    """Returns violations of A15: the request was sent to another incarnation than the registered one.

    A request that was under way when its broker went may be acknowledged later. One that was given up is not judged.
    """
    sent = _requests(rows).filter(fn.col("t_acknowledged").isNotNull())
    registered = fn.broadcast(registrations(rows))
    there = (
        (registered["of_cluster"] == sent["cluster"])
        & (registered["of_epoch"] == sent["ctl_epoch"])
        & (registered["of_broker"] == sent["broker"])
        & (registered["of_broker_epoch"] == sent["broker_epoch"])
        & (registered["since"] < sent["seq"])
        & fn.coalesce(registered["until_us"] >= sent["t_sent"], fn.lit(True))
    )
    found = sent.join(registered, there, "left_anti").withColumns(
        {
            "invariant": fn.lit("A15"),
            "what": sentence(fn.col("api"), "went to broker epoch", fn.col("broker_epoch"), "which was not registered"),
            "since_epoch": fn.col("ctl_epoch"),
            "since_seq": fn.lit(0).cast("long"),
            "excusable": fn.lit(True),
        }
    )
    return unexcused(found, gaps)


def registrations(rows: DataFrame) -> DataFrame:
    """Returns incarnations of brokers within a term: from their row (``since``) to the time of the next (or null)."""
    events = rows.filter(fn.col("topic").isNull() & fn.col("kind").isin(*_REGISTRATIONS)).select(
        "cluster", "ctl_epoch", "broker", "broker_epoch", "seq", "kind", "mono_us"
    )
    order = Window.partitionBy("cluster", "ctl_epoch", "broker").orderBy("seq")
    return (
        events.withColumn("until_us", fn.lead("mono_us").over(order))
        .filter(fn.col("kind") == Kind.BROKER_UP.value)
        .select(
            fn.col("cluster").alias("of_cluster"),
            fn.col("ctl_epoch").alias("of_epoch"),
            fn.col("broker").alias("of_broker"),
            fn.col("broker_epoch").alias("of_broker_epoch"),
            fn.col("seq").alias("since"),
            "until_us",
        )
    )


def falling_epochs(rows: DataFrame) -> DataFrame:
    """Returns violations of A15: a broker acknowledged a request of a term that was sent after a later term's.

    One that the broker refused had no effect. The wall clocks of two daemons may differ by ``CLOCKS_US_MAX``.
    """
    took_us = fn.col("t_acknowledged") - fn.col("t_sent")
    sent = (
        _requests(rows)
        .filter(fn.col("t_acknowledged").isNotNull() & fn.col("err").isNull())
        .withColumn("sent_us", fn.col("ts_us") - took_us)
    )
    terms = sent.groupBy("cluster", "broker", "ctl_epoch").agg(fn.min("ts_us").alias("first_us"))
    later = Window.partitionBy("cluster", "broker").orderBy("ctl_epoch").rowsBetween(1, Window.unboundedFollowing)
    overtaken = terms.withColumn("overtaken_us", fn.min("first_us").over(later)).select(
        "cluster", "broker", "ctl_epoch", "overtaken_us"
    )
    late = fn.col("sent_us") > fn.col("overtaken_us") + CLOCKS_US_MAX
    what = sentence("term", fn.col("ctl_epoch"), "sent", fn.col("api"), "after a later term's request was acknowledged")
    found = sent.join(overtaken, ["cluster", "broker", "ctl_epoch"]).filter(late)
    return found.withColumns({"invariant": fn.lit("A15"), "what": what}).select(*VIOLATIONS.names)


def _requests(rows: DataFrame) -> DataFrame:
    return rows.filter(fn.col("topic").isNull() & (fn.col("kind") == Kind.RPC_BATCH.value))
