"""Judges A7 of whole terms: one writer per controller epoch, and none after it was fenced."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from pipeline.violations import VIOLATIONS, sentence
from state_machines.journal.events import Kind

NOTHING: Final = ("topic", "partition", "broker", "table", "region", "server")
"""What a term is not about."""


def one_writer(terms: DataFrame) -> DataFrame:
    """Returns violations of A7 that the terms show; no row should follow ``seq``."""
    writers = fn.count("*").over(Window.partitionBy("cluster", "ctl_epoch"))
    what = fn.when(
        fn.col("writers") > 1, sentence("epoch", fn.col("ctl_epoch"), "was written by", fn.col("writers"), "daemons")
    ).when(fn.col("last_write") > fn.col("fenced"), sentence("row", fn.col("last_write"), "is a write after the fence"))
    return (
        terms.withColumn("writers", writers)
        .withColumn("what", what)
        .filter(fn.col("what").isNotNull())
        .select(
            fn.lit("A7").alias("invariant"),
            "what",
            "cluster",
            "ctl_epoch",
            fn.coalesce("fenced", "first_seq").alias("seq"),
            "ctl_id",
            fn.col("last_us").alias("ts_us"),
            fn.lit(Kind.FENCED.value).alias("kind"),
            *(fn.lit(None).cast(VIOLATIONS[name].dataType).alias(name) for name in NOTHING),
        )
    )
