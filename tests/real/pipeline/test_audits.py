"""Audits of folders that fail, of rows that are broken, and of journals that tests left."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from tests.kit.results import left
from tests.real.pipeline.broken_rows import BREAKS, audited, beyond
from tests.real.pipeline.logs import change, sound, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="the extra pipeline is not installed")
pytest.importorskip("numba", reason="the extra pipeline is not installed")

from pipeline import jobs, judging, storage, verdict
from pipeline.ending import Disagreement
from pipeline.judging import given, judge_buckets, shares
from pipeline.layout import manifest_of
from pipeline.merge import Workers, merge
from pipeline.storage import CannotMerge, NothingToRead

HERE = Workers(lambda function, values, _=None: [function(value) for value in values], 2)


@pytest.fixture
def bronze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Merges a journal with one broken row; its audit runs in this process."""
    monkeypatch.setattr("pipeline.audit.workers_of", lambda _: HERE)
    journals = write(tmp_path / "journals", [change((5, 9), isr0=[1, 3])(sound("c"))])
    merge(HERE, journals, str(tmp_path / "bronze"))
    return tmp_path / "bronze"


def audit(folder: Path) -> dict[str, Any]:
    return jobs.audit(cast("Any", None), str(folder))


def test_the_broken_row_is_found(bronze: Path) -> None:
    summary = audit(bronze)
    assert (summary["clean"], summary["violations"], summary["broken"]) == (False, 1, {"A10": 1})


def test_violations_that_another_audit_removes_fail_this_one(bronze: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def after_another(folder: str, shown_max: int) -> verdict.Verdict:
        verdict.cleared(folder)
        return verdict.verdict(folder, shown_max)

    monkeypatch.setattr(jobs, "verdict", after_another)
    with pytest.raises(CannotMerge, match=r"another audit or ingest changed .*bronze during this audit"):
        audit(bronze)
    assert not (bronze / "audit.json").exists()


def test_an_ingest_that_ends_before_the_audit_fails_it(
    bronze: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_an_ingest(path: str, run: str, content: bytes) -> None:
        merge(HERE, write(tmp_path / "others", [sound("d")]), str(bronze))
        (bronze / "audit.json").write_bytes(content)

    monkeypatch.setattr(jobs, "write", after_an_ingest)
    with pytest.raises(CannotMerge, match="another audit or ingest changed"):
        audit(bronze)
    assert not (bronze / "audit.json").exists()


def test_a_file_of_violations_that_goes_while_it_is_read_is_named(bronze: Path) -> None:
    audit(bronze)
    (bronze / "violations" / "gone.parquet").symlink_to(bronze / "nowhere")
    (bronze / "violations" / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(CannotMerge, match=r"\.parquet cannot be read: .*: run the audit again"):
        verdict.verdict(str(bronze / "violations"), 1)


@contextmanager
def full(path: str, aside: str) -> Iterator[Any]:
    """Has no room for violations."""
    with storage.written(path, aside) as stream:
        yield stream
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_in_a_task_or_before_names_the_folder(bronze: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = given(str(bronze), manifest_of(str(bronze)))
    monkeypatch.setattr(verdict, "written", full)
    [buckets] = shares(found.manifest, 1)
    fault = judge_buckets(found, buckets)
    assert isinstance(fault, CannotMerge)
    assert "there is no room left to write" in str(fault)
    with pytest.raises(CannotMerge, match=r"there is no room left to write .*violations: free some"):
        audit(bronze)


def test_rules_that_differ_from_the_kernel_end_the_task_with_that_error(
    bronze: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differing(*_: Any) -> NoReturn:
        raise Disagreement("A1 of epoch 5, row 9")

    monkeypatch.setattr(judging, "judged", differing)
    with pytest.raises(Disagreement, match="A1 of epoch 5, row 9"):
        audit(bronze)


def test_a_missing_file_of_gaps_is_named(bronze: Path) -> None:
    [file] = (bronze / "gaps").iterdir()
    file.unlink()
    with pytest.raises(NothingToRead, match=r"gaps/.*\.parquet cannot be read"):
        audit(bronze)


EVENTS, PARTITIONS = 10_000, 80


def test_each_broken_row_is_found_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    found = audited(spark, tmp_path, EVENTS, PARTITIONS)
    assert found.places.keys() == BREAKS.keys()
    shown = {(*place.shown, BREAKS[name].invariant) for name, place in found.places.items()}
    assert shown <= found.by_audit, found.table()
    assert found.by_audit == found.by_rules | beyond(found.places)


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


def audited_left(spark: SparkSession, journals: list[str], into: Path) -> tuple[dict[str, Any], dict[str, Any]]:
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
    """Terms of controllers, and owners, fences, tokens and key spaces of regions (A16 to A24), over all terms."""
    kafka, regions, broken = (tmp_path / name for name in ("kafka", "regions", "broken"))
    of_kafka = played("simulation.kafka.recording", kafka, KAFKA_SEEDS, str(kafka))
    of_regions = played("simulation.regions", regions, REGION_SEEDS, "--journals", str(regions))
    with_bug = played("simulation.regions", broken, BROKEN_SEEDS, "--journals", str(broken), "--mutation", BUG)
    assert rows_in(of_kafka) > ROWS_MIN
    assert rows_in(of_regions) > REGION_ROWS_MIN
    ingested, judged = audited_left(spark, of_kafka + of_regions + with_bug, tmp_path / "bronze")
    violations = spark.read.parquet(str(tmp_path / "bronze" / "violations")).collect()
    assert {row.cluster for row in violations} <= {f"seed-{seed}" for seed in BROKEN_SEEDS}, judged["first"]
    assert judged["broken"].keys() == {"A18"}
    assert ingested["terms"] > TERMS_MIN
    assert ingested["gaps"]["CUT_SHORT"] > 0, "a kill -9 ends a term"
    assert (ingested["quarantined"], ingested["missingRows"]) == (0, 0)


@pytest.mark.skipif(not left(), reason="no tests on real brokers left journals in build/journals")
def test_journals_of_real_brokers_controllers_are_clean(spark: SparkSession, tmp_path: Path) -> None:
    journals = [journal for of_suite in left().values() for journal in of_suite]
    ingested, judged = audited_left(spark, journals, tmp_path / "bronze")
    assert judged["first"] == []
    assert judged["clean"]
    assert ingested["rows"] > 0
