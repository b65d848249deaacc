"""Files of a report, and the snapshots and loads beside a journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.inputs import BadInput
from pipeline.layout import BUCKETS
from pipeline.report.files import read_files
from pipeline.report.outputs import InUse, alone, aside, write
from pipeline.report.terms import NONE as UNKNOWN
from pipeline.snapshot_file import newest_of
from state_machines.journal.snapshot import FORMAT, BrokerLine, Header, Line, PartitionsLine, Trailer
from tests.real.pipeline.report.kit import reported
from tests.real.pipeline.report.test_figures import stopped
from tests.real.pipeline.test_inputs import write as write_inputs

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


def snapshot(folder: Path, name: str, ts_us: int, cluster: str = "c", **topics: int | None) -> Path:
    """Writes a snapshot of one broker with ``min.insync.replicas`` of topics, which have a partition each."""
    header = Header(FORMAT, 1, cluster, 1, 1, 1, ts_us, "election")
    body: list[Line] = [BrokerLine(1, True, 1, session_ms=ts_us % 100_000)]
    body += [PartitionsLine(topic, [0], [[1]], [1], [0], [0], [[1]], min_isr=least) for topic, least in topics.items()]
    return write_inputs(folder / name, [header, *body, Trailer(len(body) + 1, len(topics), 1, 1, ts_us)])


def test_settings_have_a_step_where_a_snapshot_differs_from_the_one_before(tmp_path: Path) -> None:
    """The files are given in any order; a topic that a later snapshot lacks keeps its setting."""
    last = snapshot(tmp_path, "c.jsonl", 30, orders=1, quiet=None)
    given = [
        last,
        snapshot(tmp_path, "b.jsonl", 20, orders=2, quiet=1),
        snapshot(tmp_path, "a.jsonl", 10, orders=2, old=3),
    ]
    found = read_files(given, None)
    assert found.min_isr == {"orders": [(10, 2), (30, 1)], "old": [(10, 3)], "quiet": [(20, 1), (30, UNKNOWN)]}
    assert found.session_ms == {1: 30}
    assert found.snapshot is not None
    assert (found.snapshot.ts_us, found.known().partitions) == (30, {"orders": 1, "quiet": 1})


def test_a_folder_stands_for_its_snapshots(tmp_path: Path) -> None:
    snapshot(tmp_path, "1.jsonl", 10, orders=2)
    snapshot(tmp_path, "2.jsonl", 20, orders=1)
    (tmp_path / ".3.jsonl.gz-17.tmp").write_bytes(b"a draft")
    assert read_files([tmp_path], None).min_isr == {"orders": [(10, 2), (20, 1)]}


def test_of_a_folder_the_newest_snapshot_counts_whatever_its_name(tmp_path: Path) -> None:
    newest = snapshot(tmp_path, "1.jsonl", 20, orders=1)
    snapshot(tmp_path, "2.jsonl", 10, orders=2)
    assert newest_of(tmp_path) == newest_of(newest) == newest
    snapshot(tmp_path, "3.jsonl", 30, "d", orders=2)
    with pytest.raises(BadInput, match=r"3\.jsonl is of another cluster than .*1\.jsonl: name one file"):
        newest_of(tmp_path)
    (tmp_path / "3.jsonl").write_bytes(b"")
    with pytest.raises(BadInput, match=r"3\.jsonl:1 is no JSON object"):
        newest_of(tmp_path)


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    ours, other = snapshot(tmp_path, "1.jsonl", 10, orders=2), snapshot(tmp_path, "2.jsonl", 20, "d", orders=2)
    with pytest.raises(BadInput, match=r"2\.jsonl is of cluster d, another one of c: give those of one"):
        read_files([ours, other], None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="empty has no snapshots"):
        read_files([tmp_path / "empty"], None)
    assert read_files([], None).snapshot is None
