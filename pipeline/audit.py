"""Judges (J2) every invariant of the journal that its fields can show, over the merged rows of all daemons."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame

from pipeline.history import excusable, history, with_since
from pipeline.membership import elected_live, racks_kept
from pipeline.procedures import family_and_locks
from pipeline.region_opens import opens_kept
from pipeline.regions import owned_once
from pipeline.requests import current_epochs, falling_epochs
from pipeline.row_local import row_local
from pipeline.tables import keys_covered
from pipeline.terms import one_writer
from pipeline.violations import unexcused, violations

RACKS: Final = {"A13": "only judged for a cluster that promises racks"}


def audit(rows: DataFrame, terms: DataFrame, gaps: DataFrame, *, racks: bool = False) -> DataFrame:
    """Returns all violations, as :data:`pipeline.violations.VIOLATIONS`.

    ``rows`` are those of :func:`pipeline.jobs.rows_in`, ``terms`` and ``gaps`` its tables.
    ``racks``: the cluster promises to spread replicas over racks (A13).
    """
    shown = violations(with_since(rows), [*row_local(), history()])
    found = [
        unexcused(shown.withColumn("excusable", excusable()), gaps),
        elected_live(rows, gaps),
        one_writer(terms),
        family_and_locks(rows),
        current_epochs(rows, gaps),
        falling_epochs(rows),
        owned_once(rows, gaps),
        opens_kept(rows, gaps),
        keys_covered(rows, gaps),
    ]
    if racks:
        found.append(racks_kept(rows))
    return reduce(DataFrame.unionByName, found)


def unjudged(*, racks: bool) -> dict[str, str]:
    """Returns the invariants that :func:`audit` does not judge, and why."""
    return {} if racks else dict(RACKS)
