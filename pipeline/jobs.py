"""Runs the jobs with their reading and writing: folders in, Parquet and one summary out, on any path of Spark's.

A bronze folder holds ``rows`` (parted by cluster and day), ``terms``, ``gaps`` and ``quarantine``, and after an audit
``violations``, all Parquet. It also holds ``ingest.json`` and ``audit.json`` if the folder is on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from pipeline import bronze
from pipeline.audit import audit as judged
from pipeline.audit import unjudged
from pipeline.gaps import EXPIRED, HOLE, UNRECORDED, gaps, terms
from pipeline.schema import GAPS, ROWS
from pipeline.violations import VIOLATIONS

Summary = dict[str, Any]
"""The result of a job for programs, as JSON."""

PARTED_BY: Final = ("cluster", "d")
FILE_ROWS_MAX: Final = 5_000_000
SHOWN_MAX: Final = 20
"""Violations that a summary names; all of them are in the Parquet."""


class NothingToRead(Exception):
    """There is no such journal, or no such bronze folder; the message names it."""


def ingest(spark: SparkSession, journals: Sequence[str], into: str) -> Summary:
    """Runs J1: merges ``journals`` (folders of ``*.jsonl``, or single files) into a new bronze folder ``into``.

    Raises :class:`NothingToRead`.
    """
    read, seen = bronze.parsed(lines_of(spark, journals)), Observation()
    _write(bronze.rows(read.observe(seen, fn.count("bad").alias("bad"))), f"{into}/rows", PARTED_BY)
    put_aside = bronze.quarantine(read)
    # Most journals have no bad line: they need not be parsed again to find that out.
    _write(put_aside if seen.get["bad"] else put_aside.limit(0), f"{into}/quarantine")
    rows = rows_in(spark, into)
    _write(terms(rows).coalesce(1), f"{into}/terms")
    found = spark.read.parquet(f"{into}/terms")
    _write(gaps(rows, found).coalesce(1), f"{into}/gaps")
    whole = found.agg(
        fn.sum("rows").alias("rows"), fn.count("*").alias("terms"), fn.min("first_us"), fn.max("last_us")
    ).first()
    assert whole is not None
    missing = spark.read.schema(GAPS).parquet(f"{into}/gaps")
    return _kept(into, "ingest", {
        "rows": whole["rows"] or 0,
        "terms": whole["terms"],
        "from": _time(whole[2]),
        "to": _time(whole[3]),
        "quarantined": spark.read.parquet(f"{into}/quarantine").count(),
        "gaps": _counts(missing, "kind"),
        "missingRows": _sum(missing.filter(fn.col("kind").isin(HOLE, UNRECORDED)), "rows"),
    })  # fmt: skip


def audit(spark: SparkSession, folder: str, *, racks: bool = False, strict: bool = False) -> Summary:
    """Runs J2: judges a bronze folder. ``clean`` in the summary is the verdict.

    ``racks``: the cluster promises to spread replicas over racks. ``strict``: unexpected gaps and lines in quarantine
    count against a clean journal. Raises :class:`NothingToRead`.
    """
    rows = rows_in(spark, folder)
    term_rows, missing = spark.read.parquet(f"{folder}/terms"), spark.read.schema(GAPS).parquet(f"{folder}/gaps")
    _write(judged(rows, term_rows, missing, racks=racks), f"{folder}/violations")
    found = spark.read.schema(VIOLATIONS).parquet(f"{folder}/violations")
    broken = _counts(found, "invariant")
    holes = _counts(missing, "kind")
    quarantined = spark.read.parquet(f"{folder}/quarantine").count()
    incomplete = quarantined > 0 or any(kind != EXPIRED for kind in holes)
    return _kept(folder, "audit", {
        "clean": not broken and not (strict and incomplete),
        "rows": _sum(term_rows, "rows"),
        "violations": sum(broken.values()),
        "broken": broken,
        "first": [_sentence(row) for row in found.orderBy("ctl_epoch", "seq", "invariant").limit(SHOWN_MAX).collect()],
        "gaps": holes,
        "quarantined": quarantined,
        "unjudged": unjudged(racks=racks),
    })  # fmt: skip


def lines_of(spark: SparkSession, journals: Sequence[str]) -> DataFrame:
    """Reads the lines of journals, with the file of each (value, file). Raises :class:`NothingToRead`."""
    paths = [path if path.endswith(".jsonl") else f"{path.rstrip('/')}/*.jsonl" for path in journals]
    try:
        text = spark.read.option("lineSep", "\n").text(paths)
    except AnalysisException as error:
        raise NothingToRead(f"there is no journal in {', '.join(journals)}: {_first_line(error)}") from None
    return text.select("value", fn.col("_metadata.file_path").alias("file"))


def rows_in(spark: SparkSession, folder: str) -> DataFrame:
    """Reads the rows of a bronze folder. Raises :class:`NothingToRead`."""
    try:
        # The schema gives the type of a folder's name: a cluster id that looks like a number stays a text.
        found = spark.read.schema(StructType(ROWS.fields)).parquet(f"{folder}/rows")
    except AnalysisException as error:
        raise NothingToRead(f"{folder} was not made by 'regent pipeline ingest': {_first_line(error)}") from None
    return found.fillna("", ["cluster"])


def _write(frame: DataFrame, path: str, parted_by: Sequence[str] = ()) -> None:
    writer = frame.write.mode("overwrite").option("maxRecordsPerFile", FILE_ROWS_MAX)
    (writer.partitionBy(*parted_by) if parted_by else writer).parquet(path)


def _counts(frame: DataFrame, by: str) -> dict[str, int]:
    return {row[by]: row["count"] for row in frame.groupBy(by).count().orderBy(by).collect()}


def _sum(frame: DataFrame, column: str) -> int:
    row = frame.agg(fn.sum(column).alias("sum")).first()
    return row["sum"] or 0 if row is not None else 0


def _sentence(row: Any) -> str:
    """Formats a violation as ``regent events check`` does."""
    entity = f"{row.topic}-{row.partition}" if row.topic is not None else _of_regions(row) or f"cluster {row.cluster}"
    broker = f" on broker {row.broker}" if row.broker is not None else ""
    return f"{row.invariant}: {entity}{broker} at epoch {row.ctl_epoch}, row {row.seq}: {row.what}"


def _of_regions(row: Any) -> str:
    """Names the region, the table or the server of a violation; empty where it is about none."""
    if row.region is not None:
        return f"{row.table}#{row.region}"
    return f"table {row.table}" if row.table is not None else f"server {row.server}" if row.server is not None else ""


def _time(microseconds: int | None) -> str | None:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat() if microseconds is not None else None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _kept(folder: str, name: str, summary: Summary) -> Summary:
    """Writes the summary beside the Parquet where that is a folder of this machine."""
    if Path(folder).is_dir():
        Path(folder, f"{name}.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return summary
