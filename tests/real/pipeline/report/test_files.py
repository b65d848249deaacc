"""Snapshots and loads beside a journal: settings by time, and what cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.inputs import BadInput
from pipeline.report.files import read_files
from pipeline.report.terms import NONE as UNKNOWN
from pipeline.snapshot_folder import newest_of
from state_machines.journal.snapshot import FORMAT, BrokerLine, Header, Line, PartitionsLine, Trailer
from tests.real.pipeline.test_inputs import write


def snapshot(folder: Path, name: str, ts_us: int, cluster: str = "c", **topics: int | None) -> Path:
    """Writes a snapshot of one broker with ``min.insync.replicas`` of topics, which have a partition each."""
    header = Header(FORMAT, 1, cluster, 1, 1, 1, ts_us, "election")
    body: list[Line] = [BrokerLine(1, True, 1, session_ms=ts_us % 100_000)]
    body += [PartitionsLine(topic, [0], [[1]], [1], [0], [0], [[1]], min_isr=least) for topic, least in topics.items()]
    return write(folder / name, [header, *body, Trailer(len(body) + 1, len(topics), 1, 1, ts_us)])


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
