"""Journals of the simulation, and those that tests on real brokers left: an audit finds them clean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.left_journals import left

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
SEEDS = int(os.environ.get("REGENT_AUDITED_SEEDS", "4"))
"""Of each simulation. `make verify` plays more."""
BUG = "record-no-release-of-a-crashed-server"
BROKEN_SEEDS = range(5)
REGION_SEEDS = range(1_000, 1_000 + SEEDS)
KAFKA_SEEDS = range(2_000, 2_000 + SEEDS)
"""Each seed is a cluster of its own name, so that one audit judges all of them."""
ROWS_MIN = 500 * SEEDS
REGION_ROWS_MIN = 250 * SEEDS
TERMS_MIN = 3 * SEEDS
"""The seeds produce about twice as many of each."""


def audited(spark: SparkSession, journals: list[str], into: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs both jobs and returns their summaries."""
    from pipeline import jobs

    return jobs.ingest(spark, journals, str(into)), jobs.audit(spark, str(into))


def played(simulation: str, folder: Path, seeds: range, *options: str) -> list[str]:
    """Plays seeds in virtual time; returns the folders of their daemons' journals."""
    chosen = ("--first", str(seeds.start), "--seeds", str(len(seeds)))
    subprocess.run([sys.executable, "-m", f"tests.{simulation}", *options, *chosen], cwd=ROOT, check=True)
    return sorted(map(str, folder.iterdir()))


def rows_in(journals: list[str]) -> int:
    """Returns the number of rows in all files of these journals."""
    return sum(file.read_bytes().count(b"\n") for journal in journals for file in Path(journal).iterdir())


def test_the_simulations_journals_are_clean_and_a_bug_that_they_alone_show_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Terms of controllers, and owners, fences, tokens and key spaces of regions (A16 to A21), over all terms."""
    kafka, regions, broken = (tmp_path / name for name in ("kafka", "regions", "broken"))
    of_kafka = played("simulation.recording", kafka, KAFKA_SEEDS, str(kafka))
    of_regions = played("region_simulation", regions, REGION_SEEDS, "--journals", str(regions))
    with_bug = played("region_simulation", broken, BROKEN_SEEDS, "--journals", str(broken), "--mutation", BUG)
    assert rows_in(of_kafka) > ROWS_MIN
    assert rows_in(of_regions) > REGION_ROWS_MIN
    ingested, judged = audited(spark, of_kafka + of_regions + with_bug, tmp_path / "bronze")
    violations = spark.read.parquet(str(tmp_path / "bronze" / "violations")).collect()
    assert {row.cluster for row in violations} <= {f"seed-{seed}" for seed in BROKEN_SEEDS}, judged["first"]
    assert judged["broken"].keys() == {"A18"}
    assert ingested["terms"] > TERMS_MIN
    assert ingested["gaps"]["CUT_SHORT"] > 0, "a kill -9 ends a term"
    assert (ingested["quarantined"], ingested["missingRows"]) == (0, 0)


@pytest.mark.skipif(not left(), reason="no tests on real brokers left journals in build/journals")
def test_journals_of_real_brokers_controllers_are_clean(spark: SparkSession, tmp_path: Path) -> None:
    journals = [journal for of_suite in left().values() for journal in of_suite]
    ingested, judged = audited(spark, journals, tmp_path / "bronze")
    assert judged["first"] == []
    assert judged["clean"]
    assert ingested["rows"] > 0
