"""Runs a report on Spark: a task for each bucket of partitions, a result of constant size from each.

No row enters the JVM: tasks read Parquet by :mod:`pipeline.layout` and write the intervals themselves.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from pipeline.executors import workers_of
from pipeline.layout import (
    BUCKETS,
    REST,
    Manifest,
    bucket_parts,
    bucket_tables,
    in_folder,
    manifest_of,
    rows_by_bucket,
    table_in,
)
from pipeline.merge import Workers
from pipeline.progress import of_buckets
from pipeline.report import asking, history, told
from pipeline.report.asking import Wanted
from pipeline.report.bucket import Found, Question, answered
from pipeline.report.files import Files
from pipeline.report.merging import merged
from pipeline.report.result import Result
from pipeline.schema import COLUMNS
from pipeline.storage import NothingToRead, first_line, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REGIONS: Final = "regions"
"""``cluster`` of the journal of regions, which has no partitions."""


class NoReport(Exception):
    """There is nothing to report; the message says why and what to do."""


class Source(Struct, frozen=True):
    """Where a report reads: a bronze folder, its manifest, and the cluster."""

    folder: str
    manifest: Manifest
    cluster: str

    def table(
        self, bucket: int, columns: Sequence[str], keep: Callable[[pa.Table], pa.Table] = lambda rows: rows
    ) -> pa.Table:
        """Reads the cluster's rows of a bucket that ``keep`` returns of those of each file."""
        there = [name for name in columns if name in COLUMNS.names]
        found = bucket_tables(
            self.folder, bucket, ["cluster", *there], self.manifest, lambda part: keep(self._mine(part))
        )
        mine = found.drop_columns(["cluster"])
        for name in columns:
            if name not in there:
                mine = mine.append_column(name, pa.nulls(len(mine), pa.int64()))
        return mine

    def parts(self, bucket: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Reads the cluster's rows of a bucket file by file."""
        yield from map(self._mine, bucket_parts(self.folder, bucket, ["cluster", *columns], self.manifest))

    def _mine(self, part: pa.Table) -> pa.Table:
        return part.filter(pc.equal(pc.fill_null(part["cluster"], ""), self.cluster))


def source(folder: str, cluster: str | None) -> Source:
    """Finds the cluster of a bronze folder. Raises :class:`NoReport` where it has several, or not that one.

    Raises :class:`pipeline.storage.NothingToRead` where there is no whole bronze folder.
    """
    manifest = manifest_of(folder)
    parts = bucket_parts(folder, REST, ["cluster"], manifest)
    there = {name or "" for part in parts for name in part["cluster"].unique().to_pylist()}
    clusters = sorted(there - {REGIONS})
    if not clusters or (cluster is not None and cluster not in clusters):
        wanted = "a Kafka cluster" if cluster is None else f"cluster {cluster}"
        raise NoReport(f"{folder} has no rows of {wanted}, it has {', '.join(sorted(there)) or 'no rows'}")
    if cluster is None and len(clusters) > 1:
        raise NoReport(f"{folder} has {len(clusters)} clusters, {', '.join(clusters)}: choose one by --cluster")
    return Source(folder, manifest, cluster or clusters[0])


class Engine(NamedTuple):
    """Processes that answer for buckets. ``share``: gives a value to all of them, as Spark's broadcast does."""

    workers: Workers
    share: Callable[[Any], Shared]


class Shared(Protocol):
    """A value that tasks see."""

    @property
    def value(self) -> Any:
        """Returns it."""

    def destroy(self) -> None:
        """Frees it."""


def on_spark(spark: SparkSession) -> Engine:
    """Returns the executors of Spark."""
    return Engine(workers_of(spark), spark.sparkContext.broadcast)


def report(engine: Engine, of: Source, wanted: Wanted, files: Files, intervals: str | None = None) -> Result:
    """Makes the result; writes the intervals as Parquet into the folder ``intervals``, a file for each bucket.

    Raises :class:`NoReport` where the window has no rows or a file fails, :class:`~pipeline.executors.Unfit`, and what
    :func:`~pipeline.report.usual.now` raises.
    """
    gaps = _gaps(of)
    rest = of.table(REST, asking.COLUMNS, asking.needed)
    requests = [told.told(part) for part in of.parts(REST, told.COLUMNS)]
    try:
        question = asking.question(rest, requests, gaps, wanted, files.beside())
    except ValueError as error:
        raise NoReport(str(error)) from None
    shared = engine.share(question)
    try:
        phase = of_buckets("reporting", [[bucket] for bucket in range(BUCKETS)], rows_by_bucket(of.manifest))
        answers = engine.workers.each(partial(_bucket, of, shared, intervals), range(BUCKETS), phase)
    finally:
        shared.destroy()
    if failed := next((each for each in answers if isinstance(each, str)), None):
        raise NoReport(failed)
    first_us, last_us = question.around.first_us, question.around.last_us
    plans = asking.plans(rest, question.terms)
    return merged(of.cluster, answers, question, wanted, files.known(), plans, asking.reported(gaps, first_us, last_us))


def _bucket(of: Source, shared: Shared, intervals: str | None, bucket: int) -> Found | str:
    """Answers for one bucket; its intervals are written and not returned. Returns a sentence where a file fails."""
    question: Question = shared.value
    try:
        found = answered(of.table(bucket, history.COLUMNS), question)
    except NothingToRead as error:
        return str(error)
    if intervals is not None:
        try:
            # Spark may run two attempts of a task at once.
            with written(in_folder(intervals, f"part-{bucket:02d}.parquet"), uuid.uuid4().hex) as stream:
                pq.write_table(found.intervals, stream, compression="zstd")
        except OSError as error:
            return f"{intervals} cannot be written: {first_line(error)}"
    return found._replace(intervals=None)


def _gaps(of: Source) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table_in(of.folder, of.manifest.gaps).to_pylist()
    return [row for row in rows if (row["cluster"] or "") == of.cluster]
