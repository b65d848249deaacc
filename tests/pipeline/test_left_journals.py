"""Journals of the simulation, and those that tests on real brokers left: an audit finds them clean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.left_journals import left

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SEEDS = 10
ROWS_MIN = 5_000
TERMS_MIN = 30
KILLED_MIN = 3
"""Terms that ended by a kill -9. The seeds produce about twice as many of each."""


def audited(spark: SparkSession, journals: list[str], into: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs both jobs and returns their summaries."""
    from pipeline import jobs

    return jobs.ingest(spark, journals, str(into)), jobs.audit(spark, str(into))


def test_the_simulations_journals_are_clean(spark: SparkSession, tmp_path: Path) -> None:
    recording = [sys.executable, "-m", "tests.simulation.recording", str(tmp_path / "journals"), "--seeds", str(SEEDS)]
    subprocess.run(recording, cwd=ROOT, check=True)
    journals = sorted(map(str, (tmp_path / "journals").iterdir()))
    ingested, judged = audited(spark, journals, tmp_path / "bronze")
    assert judged["first"] == []
    assert judged["clean"]
    assert ingested["rows"] > ROWS_MIN
    assert ingested["terms"] > TERMS_MIN
    assert ingested["gaps"]["CUT_SHORT"] >= KILLED_MIN
    assert (ingested["quarantined"], ingested["missingRows"]) == (0, 0)


@pytest.mark.skipif(not left(), reason="no tests on real brokers left journals in build/journals")
def test_journals_of_real_brokers_controllers_are_clean(spark: SparkSession, tmp_path: Path) -> None:
    journals = [journal for of_suite in left().values() for journal in of_suite]
    ingested, judged = audited(spark, journals, tmp_path / "bronze")
    assert judged["first"] == []
    assert judged["clean"]
    assert ingested["rows"] > 0
