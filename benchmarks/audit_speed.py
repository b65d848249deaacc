"""Measures how fast the pipeline ingests and audits a journal: ``python -m benchmarks.audit_speed``.

It makes the journal first. CPU seconds are those of Spark's driver, which does all the work of a local master; on a
shared machine they mean more than seconds. It needs the extra ``pipeline`` and Java 17, and prints one JSON object to
standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from benchmarks import procfs
from pipeline.session import start

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

T = TypeVar("T")
BROKERS: Final = 50
TERMS: Final = 10
ROUNDS: Final = 3
"""Number of audits; the first one runs on a cold JVM."""


def main() -> None:
    """Makes the journal, ingests it once and audits it several times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit_speed", description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g", help="of the driver")
    chosen = parser.parse_args()
    spark = start(chosen.master, {"spark.driver.memory": chosen.memory})
    folder = Path(tempfile.mkdtemp(prefix="regent-audit-"))
    try:
        print(json.dumps(measured(spark, folder, chosen.events, chosen.partitions), indent=2))
    finally:
        spark.stop()
        shutil.rmtree(folder)


def measured(spark: SparkSession, folder: Path, events: int, partitions: int) -> dict[str, object]:
    """Returns seconds and events per second of each step."""
    from pipeline import jobs

    journal, bronze = str(folder / "journal"), str(folder / "bronze")
    making, _ = timed("making", lambda: make(spark, events, partitions, journal))
    for part in (folder / "journal").glob("part-*.txt"):
        part.rename(part.with_suffix(".jsonl"))
    ingest, ingested = timed("ingest", lambda: jobs.ingest(spark, [journal], bronze))
    rows: int = ingested["rows"]
    audits = [timed("audit", lambda: jobs.audit(spark, bronze, strict=True)) for _ in range(ROUNDS)]
    if not all(summary["clean"] for _, summary in audits):
        raise SystemExit(f"the journal was made wrong: {audits[0][1]}")
    return {
        "rows": rows,
        "partitions": partitions,
        "makingS": making.s,
        "ingestS": ingest.s,
        "ingestCpuS": ingest.cpu_s,
        "ingestRowsPerS": round(rows / ingest.s),
        "auditS": [took.s for took, _ in audits],
        "auditCpuS": [took.cpu_s for took, _ in audits],
        "auditRowsPerS": [round(rows / took.s) for took, _ in audits],
    }


class Took(NamedTuple):
    """The seconds of a step, and the CPU seconds of Spark's driver."""

    s: float
    cpu_s: float


def timed(what: str, work: Callable[[], T]) -> tuple[Took, T]:
    """Times a step and returns its result, too."""
    [driver] = procfs.children(os.getpid())
    began, cpu_began = time.monotonic(), procfs.cpu_s(driver)
    found = work()
    took = Took(round(time.monotonic() - began, 2), round(procfs.cpu_s(driver) - cpu_began, 2))
    print(f"{what}: {took.s} s, {took.cpu_s} s of CPU", file=sys.stderr, flush=True)
    return took, found


def make(spark: SparkSession, events: int, partitions: int, journal: str) -> None:
    """Makes a sound journal as text: each partition loses its leader, which returns to the ISR and leads again."""
    from pyspark.sql import functions as fn

    per_term = events // TERMS
    term_rows(spark, per_term).unionByName(changes(spark, per_term, partitions), allowMissingColumns=True).select(
        fn.to_json(fn.struct("*")).alias("value")
    ).write.text(journal)


def changes(spark: SparkSession, per_term: int, partitions: int) -> DataFrame:
    """Yields ``per_term`` changes of ``partitions`` in each term."""
    from pyspark.sql import functions as fn

    number = fn.col("id")
    at, cycle = (fn.col("k") % 3), fn.floor(fn.col("k") / 3).cast("int")
    a, b, c = ((fn.col("p") + i) % BROKERS for i in range(3))
    begun = spark.range(per_term * TERMS).withColumn("p", (number % partitions).cast("int"))
    numbered = begun.withColumn("k", fn.floor(number / partitions).cast("int"))

    def of(died: object, back: object, led: object) -> Column:
        return fn.when(at == 0, died).when(at == 1, back).otherwise(led)

    full, short, again = fn.array(a, b, c), fn.array(b, c), fn.array(b, c, a)
    return numbered.select(
        *_head(fn.floor(number / per_term).cast("int") + 1, number % per_term + BROKERS + 2),
        of("LEADER", "ISR", "LEADER").alias("kind"),
        fn.concat(fn.lit("topic-"), fn.floor(fn.col("p") / 50).cast("string")).alias("topic"),
        fn.sha2(fn.floor(fn.col("p") / 50).cast("string"), 256).substr(1, 22).alias("topic_id"),
        (fn.col("p") % 50).alias("partition"),
        fn.lit("ONLINE").alias("from_state"),
        fn.lit("ONLINE").alias("to_state"),
        of(a, b, b).alias("leader0"),
        of(b, b, a).alias("leader1"),
        (cycle * 2 + fn.when(at == 0, 0).otherwise(1)).alias("leader_epoch0"),
        (cycle * 2 + fn.when(at == 2, 2).otherwise(1)).alias("leader_epoch1"),
        fn.col("k").alias("pepoch0"),
        (fn.col("k") + 1).alias("pepoch1"),
        of(full, short, again).alias("isr0"),
        of(short, again, again).alias("isr1"),
        full.alias("replicas"),
        of("broker_failure", "isr_by_leader", "preferred").alias("reason"),
        of("offline", None, "preferred").alias("strategy"),
        of(fn.array(fn.lit("leader lost")), None, fn.array(fn.lit("preferred"))).alias("steps"),
        of(fn.array(fn.lit("OFFLINE"), fn.lit("ONLINE")), None, None).alias("states"),
        number.alias("t_committed"),
        fn.lit("broker 7 is gone").alias("why"),
    )


def term_rows(spark: SparkSession, per_term: int) -> DataFrame:
    """Yields the first and last rows of each term."""
    from pyspark.sql import functions as fn

    every = spark.range(TERMS * (BROKERS + 2)).withColumn("i", (fn.col("id") % (BROKERS + 2)).cast("int"))
    first, last = fn.col("i") == 0, fn.col("i") == BROKERS + 1
    seq = fn.when(last, per_term + BROKERS + 2).otherwise(fn.col("i") + 1).cast("long")
    return every.select(
        *_head(fn.floor(fn.col("id") / (BROKERS + 2)).cast("int") + 1, seq),
        fn.when(first, "CTL_ELECTED").when(last, "CTL_RESIGNED").otherwise("BROKER_UP").alias("kind"),
        fn.when(~first & ~last, fn.col("i") - 1).alias("broker"),
    )


def _head(epoch: Column, seq: Column) -> list[Column]:
    from pyspark.sql import functions as fn

    time_us = epoch.cast("long") * 3_600_000_000 + seq
    return [
        fn.lit(1).alias("v"),
        fn.lit("made").alias("cluster"),
        (epoch % 2 + 1).alias("ctl_id"),
        epoch.alias("ctl_epoch"),
        seq.alias("seq"),
        (fn.lit(1_760_000_000_000_000) + time_us).alias("ts_us"),
        time_us.alias("mono_us"),
    ]


if __name__ == "__main__":
    main()
