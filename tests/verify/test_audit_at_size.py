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
from state_machines.journal.audit import INVARIANTS
from tests.real.pipeline.broken_rows import BREAKS, audited, beyond
from tests.real.pipeline.test_region_audit import BROKEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1_200)

EVENTS = int(os.environ.get("REGENT_AUDITED_ROWS", "1000000"))
PARTITIONS = 8_000
TABLES = EVENTS // 100
"""Of regions; each has some 30 rows, so that they are a quarter of all."""
OF_TABLES = {name: (broken, mutation) for name, (broken, mutation) in BROKEN.items() if not name.startswith("in bulk")}


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
    found = audited(spark, tmp_path, EVENTS, PARTITIONS, breaks=False, tables=TABLES)
    assert (found.by_audit, found.by_rules, found.of_regions) == (set(), set(), set())


def test_each_broken_row_among_a_million_is_found_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    step = TABLES // len(OF_TABLES)
    tables = {number * step: name for number, name in enumerate(OF_TABLES)}
    mutations = {number: OF_TABLES[name][1] for number, name in tables.items()}
    found = audited(spark, tmp_path, EVENTS, PARTITIONS, tables=TABLES, of_tables=mutations)
    print("\n" + found.table())
    assert found.places.keys() == BREAKS.keys()
    shown = {(*place.shown, BREAKS[name].invariant) for name, place in found.places.items()}
    assert shown <= found.by_audit
    assert found.by_audit == found.by_rules | beyond(found.places)
    assert found.of_regions == {(number, name) for number, broken in tables.items() for name in OF_TABLES[broken][0]}


def test_every_invariant_is_broken() -> None:
    of_regions = {name for broken, _ in OF_TABLES.values() for name in broken}
    assert {each.invariant for each in BREAKS.values()} | of_regions == INVARIANTS.keys()
