"""An audit of a folder that is full, read-only or changed by another job ends with one sentence, without Spark."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from tests.real.pipeline.logs import change, sound, write

pytest.importorskip("pyspark", reason="the extra pipeline is not installed")
pytest.importorskip("numba", reason="the extra pipeline is not installed")

from pipeline import jobs, judging, storage, verdict
from pipeline.disagreement import Disagreement
from pipeline.judging import given, judge_buckets, shares
from pipeline.layout import manifest_of
from pipeline.merge import Workers, merge
from pipeline.storage import NothingToRead
from pipeline.writing import CannotMerge

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
