"""Judges (J2) every invariant of the journal that its fields can show, over the merged rows of all daemons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from pipeline.executors import workers_of
from pipeline.judging import given, judge_buckets, judge_terms, shares
from pipeline.layout import VIOLATIONS, Manifest, in_folder, rows_by_bucket
from pipeline.progress import Phase, of_buckets, telling
from pipeline.regions import keys_covered, opens_kept, owned_once
from pipeline.schema import GAPS
from pipeline.shapes import shapes_kept
from pipeline.storage import for_spark, remove_folder, writing
from pipeline.verdict import ASIDE, cleared, take
from pipeline.violations import racks_kept
from state_machines.journal.events import Kind

RACKS: Final = {"A13": "only judged for a cluster that promises racks"}
OF_REGIONS: Final = frozenset({Kind.REGION_STATE, Kind.SERVER_STATE, Kind.TABLE_STATE})
"""Kinds of rows of which each domain of regions has some."""

Judge = Callable[[DataFrame, DataFrame], DataFrame]
"""Returns the violations that rows show; the second frame has the gaps."""


def audit(spark: SparkSession, folder: str, manifest: Manifest, rows: Callable[[], DataFrame], *, racks: bool) -> int:
    """Writes all violations of a folder into its ``violations``, and returns how many.

    ``rows`` makes the frame of all rows; a plan in Spark takes seconds, so it is only made for what the folder has.
    ``racks``: the cluster promises to spread replicas over racks (A13). Raises
    :class:`~pipeline.storage.NothingToRead`, :class:`~pipeline.storage.CannotMerge`,
    :class:`~pipeline.ending.Disagreement`, :class:`~pipeline.executors.Unfit`.
    """
    found, into = given(folder, manifest), in_folder(folder, VIOLATIONS)
    with writing(into):
        cleared(into)
    count = judge_terms(found)
    workers = workers_of(spark)
    buckets = shares(manifest, workers.slots)
    for each in workers.each(
        partial(judge_buckets, found), buckets, of_buckets("judging", buckets, rows_by_bucket(manifest))
    ):
        if isinstance(each, Exception):
            raise each
        count += each
    planned = _planned(manifest, racks=racks)
    if planned:
        frame, gaps = rows(), spark.read.schema(GAPS).parquet(for_spark(in_folder(folder, manifest.gaps)))
        with telling(Phase("judging regions and racks")):
            count += _written(reduce(DataFrame.unionByName, [judge(frame, gaps) for judge in planned]), into)
    return count


def unjudged(*, racks: bool) -> dict[str, str]:
    """Returns the invariants that :func:`audit` does not judge, and why."""
    return {} if racks else dict(RACKS)


def _written(found: DataFrame, into: str) -> int:
    """Writes the violations that Spark finds, aside first, for the count must not depend on what others remove."""
    aside = in_folder(into, f"{ASIDE}{uuid4().hex}")
    with writing(into):
        try:
            found.write.parquet(for_spark(aside))
            return take(aside, into)
        finally:
            remove_folder(aside)


def _planned(manifest: Manifest, *, racks: bool) -> list[Judge]:
    """Returns what is judged by plans in Spark, because it joins rows of many buckets."""
    of_regions: list[Judge] = [owned_once, opens_kept, keys_covered, shapes_kept]
    judges = of_regions if OF_REGIONS & manifest.kinds.keys() else []
    return [*judges, lambda rows, _: racks_kept(rows)] if racks else judges
