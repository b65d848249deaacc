"""Runs the jobs with their reading and writing: folders in, Parquet and one summary out, on any path of Spark's.

A bronze folder holds ``rows``, ``terms``, ``gaps`` and ``quarantine``, and after an audit ``violations``, all Parquet
(:mod:`pipeline.layout`), and the summaries ``ingest.json`` and ``audit.json``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipeline.audit import audit as judged
from pipeline.audit import unjudged
from pipeline.executors import workers_of
from pipeline.gaps import EXPIRED, HOLE, UNRECORDED
from pipeline.layout import AUDIT, VIOLATIONS, Manifest, in_folder, manifest_of, table_in
from pipeline.merge import merge
from pipeline.schema import EVENT
from pipeline.storage import CannotMerge, discard, for_spark, write
from pipeline.verdict import sentence, verdict

Summary = dict[str, Any]
"""The result of a job for programs, as JSON."""

SHOWN_MAX: Final = 20
"""Violations that a summary names; all of them are in the Parquet."""
CHANGED: Final = "another audit or ingest changed {} during this audit: run the audit again when the other has ended"


def ingest(spark: SparkSession, journals: Sequence[str], into: str) -> Summary:
    """Runs J1: merges ``journals`` (folders of ``*.jsonl``, or single files) into a bronze folder ``into``.

    It replaces the folder's content, audits as well, once all is there. Raises
    :class:`~pipeline.storage.NothingToRead`, :class:`~pipeline.storage.CannotMerge`,
    :class:`~pipeline.executors.Unfit`.
    """
    made, terms, missing = merge(workers_of(spark), journals, into)
    return _kept(into, "ingest.json", {
        "rows": made.rows,
        "terms": len(terms),
        "from": _time(min((term.first_us for term in terms), default=None)),
        "to": _time(max((term.last_us for term in terms), default=None)),
        "lines": made.lines,
        "copies": made.copies,
        "quarantined": made.quarantined,
        "kinds": made.kinds,
        "gaps": dict(sorted(Counter(gap.kind for gap in missing).items())),
        "missingRows": sum(gap.rows or 0 for gap in missing if gap.kind in (HOLE, UNRECORDED)),
    })  # fmt: skip


def audit(spark: SparkSession, folder: str, *, racks: bool = False, strict: bool = False) -> Summary:
    """Runs J2: judges a bronze folder. ``clean`` in the summary is the verdict.

    ``racks``: the cluster promises to spread replicas over racks. ``strict``: unexpected gaps and lines in quarantine
    count against a clean journal. Raises :class:`~pipeline.storage.NothingToRead`,
    :class:`~pipeline.storage.CannotMerge`, also where another job changes the folder meanwhile,
    :class:`~pipeline.ending.Disagreement`, :class:`~pipeline.executors.Unfit`.
    """
    made = manifest_of(folder)
    discard(in_folder(folder, AUDIT))  # of other violations
    count = judged(spark, folder, made, lambda: rows_in(spark, folder, made), racks=racks)
    found = verdict(in_folder(folder, VIOLATIONS), SHOWN_MAX)
    if sum(found.broken.values()) != count:
        raise CannotMerge(CHANGED.format(folder))
    holes = dict(sorted(Counter(table_in(folder, made.gaps)["kind"].to_pylist()).items()))
    incomplete = made.quarantined > 0 or any(kind != EXPIRED for kind in holes)
    summary = _kept(folder, AUDIT, {
        "clean": count == 0 and not (strict and incomplete),
        "rows": made.rows,
        "violations": count,
        "broken": found.broken,
        "first": [sentence(violation) for violation in found.first],
        "gaps": holes,
        "quarantined": made.quarantined,
        "unjudged": unjudged(racks=racks),
    })  # fmt: skip
    if manifest_of(folder) != made:
        discard(in_folder(folder, AUDIT))  # the ingest may have removed it before this wrote it
        raise CannotMerge(CHANGED.format(folder))
    return summary


def rows_in(spark: SparkSession, folder: str, made: Manifest) -> DataFrame:
    """Reads the rows of a bronze folder."""
    return _read(spark, folder, EVENT, [file.path for file in made.files])


def _read(spark: SparkSession, folder: str, schema: StructType, paths: Sequence[str]) -> DataFrame:
    return spark.read.schema(schema).parquet(*(for_spark(in_folder(folder, path)) for path in paths))


def _time(microseconds: int | None) -> str | None:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat() if microseconds is not None else None


def _kept(folder: str, name: str, summary: Summary) -> Summary:
    """Writes the summary beside the Parquet. Raises :class:`~pipeline.storage.CannotMerge`."""
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    write(in_folder(folder, name), uuid4().hex, text.encode())
    return summary
