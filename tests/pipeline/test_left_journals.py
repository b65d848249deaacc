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
REGION_ROWS_MIN = 2_500
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


def of_regions(folder: Path, *options: str) -> list[str]:
    """Plays regions in virtual time; returns the folders of their daemons' journals."""
    playing = [sys.executable, "-m", "tests.region_simulation", "--journals", str(folder), *options]
    subprocess.run(playing, cwd=ROOT, check=True)
    return sorted(map(str, folder.iterdir()))


def test_the_journals_of_simulated_regions_are_clean(spark: SparkSession, tmp_path: Path) -> None:
    """Owners, fences, tokens and key spaces (A16 to A21) are judged over all terms of each seed."""
    journals = of_regions(tmp_path / "journals", "--seeds", str(SEEDS))
    ingested, judged = audited(spark, journals, tmp_path / "bronze")
    assert judged["first"] == []
    assert judged["clean"]
    assert ingested["rows"] > REGION_ROWS_MIN
    assert (ingested["quarantined"], ingested["missingRows"]) == (0, 0)


def test_a_bug_of_regions_that_their_journals_alone_show_is_found(spark: SparkSession, tmp_path: Path) -> None:
    journals = of_regions(tmp_path / "journals", "--seeds", "5", "--mutation", "record-no-release-of-a-crashed-server")
    _, judged = audited(spark, journals, tmp_path / "bronze")
    assert judged["broken"].keys() == {"A18"}


@pytest.mark.skipif(not left(), reason="no tests on real brokers left journals in build/journals")
def test_journals_of_real_brokers_controllers_are_clean(spark: SparkSession, tmp_path: Path) -> None:
    journals = [journal for of_suite in left().values() for journal in of_suite]
    ingested, judged = audited(spark, journals, tmp_path / "bronze")
    assert judged["first"] == []
    assert judged["clean"]
    assert ingested["rows"] > 0
