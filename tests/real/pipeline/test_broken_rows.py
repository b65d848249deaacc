"""A journal in which single rows are broken: the audit finds each, and nothing that the rules in Python do not find."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.real.pipeline.broken_rows import BREAKS, audited, beyond

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS, PARTITIONS = 10_000, 80


def test_each_broken_row_is_found_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    found = audited(spark, tmp_path, EVENTS, PARTITIONS)
    assert found.places.keys() == BREAKS.keys()
    shown = {(*place.shown, BREAKS[name].invariant) for name, place in found.places.items()}
    assert shown <= found.by_audit, found.table()
    assert found.by_audit == found.by_rules | beyond(found.places)
