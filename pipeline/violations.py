"""Makes violations of frames in Spark, and excuses comparisons of two rows where missing rows may explain them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from pipeline.gaps import SAME_NUMBER
from pipeline.schema import VIOLATIONS


def sentence(*parts: str | Column) -> Column:
    """Returns a sentence of texts and values."""
    texts = [fn.lit(part) if isinstance(part, str) else fn.coalesce(part.cast("string"), fn.lit("-")) for part in parts]
    return fn.concat_ws(" ", *texts)


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
