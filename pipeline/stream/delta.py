"""Keeps batches of a stream in two tables of Delta Lake, ``rows`` and ``quarantine``, each row once.

The jars are the user's. A table takes a batch in one commit. A batch that Spark repeats, and a copy of a file, have
rows that the table has already: those with the same numbers are read, and equal ones are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from pipeline.executors import Unfit
from pipeline.layout import QUARANTINE, ROWS
from pipeline.pieces import narrow, pieces_of
from pipeline.storage import for_spark, under
from pipeline.stream.batch import KEY, Kept, new_rows, parted
from pipeline.stream.query import Keeper

FORMAT: Final = "delta"
SPARK: Final = "4.2"
"""The releases of Spark that the package below is made for."""
PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
SETTINGS: Final = {
    "spark.jars.packages": PACKAGE,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What Spark needs, as its settings."""
NOT_FOUND: Final = "DATA_SOURCE_NOT_FOUND"
RANGES_MAX: Final = 100
"""Ranges of numbers in one condition; beyond, their epochs alone choose the rows to compare."""
LOG: Final = "_delta_log"
"""Folder of a table's commits; a kill before the first of them leaves it empty."""
COMMIT: Final = ".json"


def fit(spark: SparkSession) -> None:
    """Checks that Spark has Delta Lake, and is one that it works with; raises :class:`~pipeline.executors.Unfit`."""
    if not spark.version.startswith(f"{SPARK}."):
        raise Unfit(f"Delta Lake ({PACKAGE}) works with Spark {SPARK}, and this is {spark.version}: take that one")
    try:
        spark.read.format(FORMAT).load("/")
    except PySparkException as error:
        if error.getCondition() == NOT_FOUND:
            settings = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
            raise Unfit(f"Spark has no Delta Lake: give {settings}") from None


def keeper(spark: SparkSession, into: str, _query: str) -> Keeper:
    """Returns a function that keeps a batch of Spark's in tables in the folder; the driver holds it in memory."""
    rows, bad = (_Table(spark, f"{into.rstrip('/')}/{name}") for name in (ROWS, QUARANTINE))

    def keep(number: int, batch: DataFrame) -> Kept:
        found = parted(batch.toArrow())
        new = rows.append(found.rows, KEY, _same_numbers)
        quarantined = bad.append(found.bad, ("file", "line"), _same_files)
        last_us = pc.max(new["ts_us"]).as_py() if len(new) else None
        return Kept(number, len(new), len(found.rows) - len(new), len(quarantined), last_us, again=False)

    return keep


class _Table:
    """A table that is made with its first rows."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark, self._folder = spark, folder

    def append(self, table: Any, key: Sequence[str], like: Callable[[Any], Column]) -> Any:
        """Appends the rows of an Arrow table that are not there; returns them."""
        if not len(table):
            return table
        new = new_rows(table, self._there(like(table)).cast(table.schema) if self._is_made() else table[:0], key)
        if len(new):
            rows = self._spark.createDataFrame(new)
            rows.write.format(FORMAT).mode("append").save(for_spark(self._folder))
        return new

    def _is_made(self) -> bool:
        return any(name.endswith(COMMIT) for name in under(self._folder, LOG))

    def _there(self, like: Column) -> Any:
        return self._spark.read.format(FORMAT).load(for_spark(self._folder)).where(like).toArrow()


def _same_numbers(rows: Any) -> Column:
    """Returns a condition for all rows with a number of these."""
    pieces = pieces_of(narrow(rows))
    if len(pieces) > RANGES_MAX:
        return fn.col("ctl_epoch").isin(sorted({piece.ctl_epoch for piece in pieces}))
    each = (
        (fn.col("cluster") == piece.cluster)
        & (fn.col("ctl_epoch") == piece.ctl_epoch)
        & (fn.col("ctl_id") == piece.ctl_id)
        & fn.col("seq").between(piece.first_seq, piece.last_seq)
        for piece in pieces
    )
    return reduce(or_, each)


def _same_files(bad: Any) -> Column:
    return fn.col("file").isin(pc.unique(bad["file"]).to_pylist())
