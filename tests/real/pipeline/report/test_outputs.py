"""Files of a report: all of them are the new ones, or the old ones stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.layout import BUCKETS
from pipeline.report.outputs import InUse, alone, aside, write
from tests.real.pipeline.report.kit import reported
from tests.real.pipeline.report.test_figures import stopped

RESULT = reported(stopped().lines)


def made(folder: Path, parts: int = BUCKETS) -> list[str]:
    """Writes a report whose files of intervals are of a few bytes; returns the names of these."""
    with alone(str(folder)):
        return _written(folder, parts)


def _written(folder: Path, parts: int) -> list[str]:
    intervals = Path(aside(str(folder)))
    intervals.mkdir()
    for number in range(parts):
        (intervals / f"part-{number:02d}.parquet").write_bytes(b"x")
    return list(write(RESULT, str(folder), str(intervals)).interval_files)


def state(folder: Path) -> dict[str, bytes]:
    """Returns the files of a report, without what a run writes aside."""
    files = (path for path in folder.rglob("*") if path.is_file() and "_unfinished-" not in str(path))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_result_names_its_files_of_intervals_and_those_of_the_last_report_are_gone(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path)
    assert len(set(first) | set(second)) == 2 * BUCKETS
    assert json.loads((tmp_path / "report.json").read_bytes())["intervalFiles"] == second
    assert state(tmp_path).keys() == {"report.json", "report.html", "topics.csv", *second}
    assert not list(tmp_path.glob("_*"))


@pytest.mark.parametrize("broken", ["page", "topics_csv"])
def test_an_error_leaves_the_report_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    made(tmp_path)
    before = state(tmp_path)

    def fail(_: object) -> str:
        raise OSError("no space left")

    monkeypatch.setattr(f"pipeline.report.outputs.{broken}", fail)
    with pytest.raises(OSError, match="no space left"):
        made(tmp_path)
    assert state(tmp_path) == before


def test_a_file_that_cannot_be_renamed_leaves_the_report_that_was_there(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "topics.csv").unlink()
    (tmp_path / "topics.csv").mkdir()
    before = state(tmp_path)
    with pytest.raises(OSError, match=r"topics\.csv"):
        made(tmp_path)
    assert state(tmp_path) == before


def test_a_report_without_all_files_of_intervals_is_not_published(tmp_path: Path) -> None:
    made(tmp_path)
    before = state(tmp_path)
    with pytest.raises(OSError, match="15 of 16 files of intervals are left"):
        made(tmp_path, BUCKETS - 1)
    assert state(tmp_path) == before


def test_a_second_report_into_the_same_folder_is_refused_and_disturbs_nothing(tmp_path: Path) -> None:
    with alone(str(tmp_path / "new")):
        intervals = Path(aside(str(tmp_path / "new")))
        intervals.mkdir()
        with pytest.raises(InUse, match=r"new: wait for its end, or name another folder by --into"):
            made(tmp_path / "new")
        assert intervals.exists()
        made(tmp_path / "other")
    made(tmp_path / "new")
    assert not intervals.exists(), "what the first one left is removed once that has ended"
