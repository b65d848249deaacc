"""The audit of a million rows: each row that is broken by hand is found, and a sound journal has none.

``pytest -s tests/verify/test_audit_at_size.py`` prints where each break was and which judge found it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.session import CannotStart, need_java, start
from tests.pipeline.broken_rows import BREAKS, audited, beyond

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = int(os.environ.get("REGENT_AUDITED_ROWS", "1000000"))
PARTITIONS = 8_000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    session = start("local[2]")
    yield session
    session.stop()


def test_a_sound_journal_of_a_million_rows_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    found = audited(spark, tmp_path, EVENTS, PARTITIONS, breaks=False)
    assert (found.by_audit, found.by_rules) == (set(), set())


def test_each_broken_row_among_a_million_is_found_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    found = audited(spark, tmp_path, EVENTS, PARTITIONS)
    print("\n" + found.table())
    assert found.places.keys() == BREAKS.keys()
    shown = {(*place.shown, BREAKS[name].invariant) for name, place in found.places.items()}
    assert shown <= found.by_audit
    assert found.by_audit == found.by_rules | beyond(found.places)
