"""The journal on real files: its rows are read back although the disk fails and the process dies."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.journal_section import JournalSettings
from controller.journal.journal import DEFECT, FULL, Journal
from controller.journal.query import history
from controller.journal.reader import CUT_SHORT, HOLE, TORN, Gap
from controller.journal.segments import SegmentName, segments_in
from controller.kafka.journal.report import Report
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.metrics.values import Counters
from state_machines.journal.audit import judge
from state_machines.journal.events import Kind
from state_machines.model.decision import Change
from tests.kit.deadlines import in_virtual_time
from tests.kit.journals import DAEMON, Desk, Disk, OnDisk, found, record
from tests.kit.kafka.model import P, make_cluster
from tests.kit.kafka.world import world

ROOT = Path(__file__).parents[4]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.journal.journal.QUIET_S", 0.001)


@in_virtual_time
async def test_the_decisions_of_a_term_are_read_from_its_files(tmp_path: Path) -> None:
    """A death, a shutdown and a new topic pass the queue, the thread and the disk, and the audit."""
    counters = Counters()
    journal = Journal(tmp_path / "state" / "events", JournalSettings(), counters)
    journal.start()
    async with world() as w:
        w.book = OnDisk(journal)
        await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
        await w.begin_term()
        w.die(1)
        await w.propagated()
        await w.controlled_shutdown(2)
        await w.topic("new", (3,))
        await w.settle()
        w.term.gate.end("the test is over")
        await w.active.ended()
        journal.close()
        rows = w.book.read()
        assert list(judge(rows)) == []
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert [(row.kind, row.topic, row.leader1, row.reason) for row in rows if row.kind == Kind.LEADER] == [
        (Kind.LEADER, "t", 2, "broker_failure"),
        (Kind.LEADER, "t", 3, "controlled_shutdown"),
        (Kind.LEADER, "t", 3, "controlled_shutdown"),
        (Kind.LEADER, "new", 3, "new_topic"),
    ]
    assert rows[0].kind == Kind.CTL_ELECTED
    assert (rows[-1].kind, rows[-1].why) == (Kind.CTL_RESIGNED, "the test is over")
    assert counters.journal_rows == len(rows)
    assert counters.journal_rows_lost == 0
    [file] = segments_in(journal.folder)
    assert counters.journal_bytes == file.stat().st_size
    assert file.stat().st_mode & 0o027 == 0, "other users must not read it"


@in_virtual_time
async def test_the_history_of_a_partition_covers_several_terms(tmp_path: Path) -> None:
    """Two daemons run one after the other on the same machine."""
    journal = Journal(tmp_path, JournalSettings(), Counters())
    journal.start()
    async with world() as w:
        w.book = OnDisk(journal)
        await w.topic("t", (1, 2, 3), (1, 2, 3), leaders=True)
        await w.begin_term()
        w.die(1)
        await w.propagated()
        await w.active.crash()
        w.die(2)
        await w.begin_term()
        await w.propagated()
        journal.close()
    rows = history(tmp_path, "t", 0)
    assert [(row.ctl_epoch, row.leader0, row.leader1, row.reason) for row in rows] == [
        (1, 1, 2, "broker_failure"),
        (2, 2, 3, "failover"),
    ]
    assert {row.partition for row in rows} == {0}
    assert [row.ctl_epoch for row in history(tmp_path, "t", 0, 1)] == [2], "the newest ones"
    assert history(tmp_path, "t", 7) == []


def test_terms_have_files_of_their_own(tmp_path: Path, disk: Disk) -> None:
    desk = Desk(tmp_path, disk)
    first, second = desk.term(1), desk.term(2)
    record(first, "a", "b")
    record(second, "c")
    desk.write()
    assert desk.found() == (["a", "b", "c"], [Gap(CUT_SHORT, "", 1, 3)]), "the first term has no end"
    assert [SegmentName.of(path) for path in segments_in(tmp_path)] == [(1, 1, 0), (2, 1, 0)]


def test_a_full_disk_is_logged_once_counted_and_marked(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """The gap has the number of the missing rows, and the reason."""
    desk = Desk(tmp_path, disk)
    term = desk.term()
    record(term, "a", "b")
    desk.write()
    disk.room = 100
    for name in ("c", "d", "e"):
        record(term, name)
        desk.write()
    assert desk.counters.journal_failing == os.strerror(errno.ENOSPC)
    assert desk.found() == (["a", "b"], []), "a part of a row is truncated"
    disk.room = None
    record(term, "f")
    desk.write()
    rows, [gap] = desk.found()
    assert rows == ["a", "b", Kind.UNRECORDED, "f"]
    assert (gap.seq, gap.rows) == (3, 3)
    assert os.strerror(errno.ENOSPC) in gap.why
    assert desk.counters.journal_rows_lost == 3
    assert desk.counters.journal_failing == ""
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]


def test_a_term_that_begins_on_a_full_disk_is_a_gap(tmp_path: Path, disk: Disk) -> None:
    desk = Desk(tmp_path, disk)
    disk.room = 0
    record(desk.term(1), "a")
    desk.write()
    record(desk.term(2), "b", "c")
    desk.write()
    assert segments_in(tmp_path) == [], "no empty files are left"
    disk.room = None
    desk.write()
    rows, gaps = desk.found()
    assert rows == [Kind.UNRECORDED, Kind.UNRECORDED]
    assert [(gap.ctl_epoch, gap.seq, gap.rows) for gap in gaps] == [(1, 1, 1), (1, 2, 0), (2, 1, 2)]


def test_during_the_pause_after_an_error_rows_are_dropped_and_counted(tmp_path: Path, disk: Disk) -> None:
    desk = Desk(tmp_path, disk)
    term = desk.term()
    disk.room = 0
    record(term, "a")
    desk.write()
    disk.room = None
    for name in ("b", "c"):
        record(term, name)
        desk.write(after_the_pause=False)
    assert segments_in(tmp_path) == [], "the disk is left alone"
    assert desk.counters.journal_rows_lost == 3
    record(term, "d")
    desk.write()
    rows, [gap] = desk.found()
    assert (rows, gap.seq, gap.rows) == ([Kind.UNRECORDED, "d"], 1, 3)


def test_a_file_whose_flush_failed_is_not_used_again(tmp_path: Path, disk: Disk) -> None:
    desk = Desk(tmp_path, disk)
    term = desk.term()
    record(term, "a")
    desk.write()
    disk.sync_fails = True
    record(term, "b")
    desk.write()
    disk.sync_fails = False
    record(term, "c")
    desk.write()
    rows, [gap] = desk.found()
    assert rows == ["a", Kind.UNRECORDED, "c"]
    assert (gap.seq, gap.rows) == (2, 1)
    assert len(segments_in(tmp_path)) == 2, "a file that failed is not flushed again"


def test_a_folder_that_cannot_be_made_loses_rows_and_is_reported(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "state").write_text("a file")
    desk = Desk(tmp_path / "state" / "events", disk)
    record(desk.term(), "a")
    desk.write()
    assert desk.counters.journal_rows_lost == 1
    assert desk.counters.journal_failing


@pytest.mark.parametrize(("policy", "flushed"), [("group", True), ("never", False)])
def test_a_group_is_flushed_once_or_never(tmp_path: Path, disk: Disk, policy: str, flushed: bool) -> None:
    desk = Desk(tmp_path, disk, fsync=policy)
    record(desk.term(), "a", "b", "c")
    desk.write()
    assert disk.syncs == (1 if flushed else 0), "once for the group"
    assert desk.found() == (["a", "b", "c"], [])


def test_rows_beyond_the_queue_are_a_gap(tmp_path: Path, disk: Disk) -> None:
    desk = Desk(tmp_path, disk)
    term = desk.term()
    record(term, *(str(i) for i in range(1_100)))
    desk.write()
    record(term, "after")
    desk.write()
    rows, [gap] = desk.found()
    assert rows == [*(str(i) for i in range(1_000)), Kind.UNRECORDED, "after"]
    assert (gap.seq, gap.rows, gap.why) == (1_001, 100, FULL)
    assert desk.counters.journal_rows_lost == 100


def test_an_entry_beyond_the_queue_counts_with_all_its_rows(tmp_path: Path, disk: Disk) -> None:
    """A broker's death is one entry with thousands of rows."""
    desk = Desk(tmp_path, disk)
    term = desk.term()
    cluster = make_cluster(*[P((1, 2), leader=1)] * 30)
    changes = [Change(i, row, row, "a change") for i, row in enumerate(cluster.rows)]
    record(term, *(str(i) for i in range(990)))
    term.decided(cluster, changes, [], [], Report("a death", "broker_failure"))
    record(term, "after")
    assert desk.counters.journal_rows_lost == 30
    desk.write()
    rows, [gap] = desk.found()
    assert (len(rows), gap.seq, gap.rows) == (992, 991, 30)
    assert desk.counters.journal_rows == 992
    assert desk.counters.journal_rows_lost == 30


def test_files_are_rolled_by_size_and_age_and_the_oldest_are_deleted(tmp_path: Path, disk: Disk) -> None:
    desk = Desk(tmp_path, disk, segment_s_max=60)
    term = desk.term()
    record(term, "a")
    desk.write()
    disk.now_s += 61
    record(term, "b")
    desk.write()
    assert len(segments_in(tmp_path)) == 2, "by age"
    for number in range(6):
        record(term, f"large-{number}", size=700_000)
        desk.write()
        total = sum(path.stat().st_size for path in segments_in(tmp_path))
        assert total <= 2_097_152, "with room for one more file"
        assert desk.counters.journal_bytes == total
    rows, gaps = desk.found()
    assert rows[-1] == "large-5"
    assert "a" not in rows
    assert gaps == [], "expired rows are not missing"


def test_old_files_are_deleted_while_no_row_is_written(tmp_path: Path, disk: Disk) -> None:
    before = Desk(tmp_path, disk)
    record(before.term(1), "a")
    before.write()
    [old] = segments_in(tmp_path)
    os.utime(old, (disk.now_s, disk.now_s))
    (tmp_path / "notes.txt").write_text("an operator's")
    os.utime(tmp_path / "notes.txt", (0, 0))
    desk = Desk(tmp_path, disk, age_days_max=1)
    record(desk.term(2), "b")
    desk.write()
    disk.now_s += 86_401
    desk.write()
    assert desk.found()[0] == ["b"]
    assert (tmp_path / "notes.txt").exists(), "only the journal's files are deleted"


def test_a_torn_line_of_a_killed_daemon_is_a_gap(tmp_path: Path, disk: Disk) -> None:
    desk = Desk(tmp_path, disk)
    record(desk.term(1), "a", "b", "c")
    desk.write()
    [path] = segments_in(tmp_path)
    os.truncate(path, path.stat().st_size - 20)
    record(Desk(tmp_path, disk).term(2), "never written")
    after = Desk(tmp_path, disk)
    record(after.term(3), "d")
    after.write()
    assert after.found() == (["a", "b", "d"], [Gap(TORN, path.name), Gap(CUT_SHORT, "", 1, 3)])


def test_a_new_cluster_with_the_same_epochs_has_its_own_files(tmp_path: Path, disk: Disk) -> None:
    for cluster, name in (("old", "a"), ("new", "b")):
        desk = Desk(tmp_path, disk)
        term = desk.term(1)
        term.of_cluster(cluster)
        record(term, name)
        desk.write()
    assert found(tmp_path) == (["a", "b"], [])


def test_a_missing_file_is_a_hole(tmp_path: Path, disk: Disk) -> None:
    desk = Desk(tmp_path, disk, segment_s_max=1)
    term = desk.term()
    for name in ("a", "b", "c"):
        record(term, name)
        desk.write()
        disk.now_s += 2
    segments_in(tmp_path)[1].unlink()
    assert desk.found() == (["a", "c"], [Gap(HOLE, "", 1, 2, 1)])


def test_a_stop_writes_the_queue(tmp_path: Path) -> None:
    journal = Journal(tmp_path, JournalSettings(), Counters())
    journal.start()
    record(journal.term(DAEMON, 1, KafkaJournal), *map(str, range(500)))
    journal.close()
    assert found(tmp_path) == (list(map(str, range(500))), [])


LIMITED = """
import resource, sys
from pathlib import Path
from state_machines.journal.events import Kind
from tests.kit.journals import Desk

desk = Desk(Path(sys.argv[1]))
term = desk.term()

def write(count):
    for _ in range(count):
        term.event(Kind.BROKER_UP, broker=1)
    desk.write()
    print(desk.counters.journal_rows_lost, desk.counters.journal_failing)

write(10)
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, most))
write(500)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
write(10)
"""


def test_a_file_size_limit_is_like_a_full_disk(tmp_path: Path) -> None:
    """The kernel takes a part of a group and then no more bytes."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    assert ended.stdout.splitlines() == ["0 ", f"500 {os.strerror(errno.EFBIG)}", "500 "]
    rows, [gap] = found(tmp_path)
    assert rows == [Kind.BROKER_UP] * 10 + [Kind.UNRECORDED] + [Kind.BROKER_UP] * 10
    assert (gap.seq, gap.rows) == (11, 500)


def test_a_defect_loses_its_group_and_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A row that cannot be made ends neither the thread nor the journal."""
    monkeypatch.setattr("controller.journal.journal.RETRY_S", 0.01)
    journal = Journal(tmp_path, JournalSettings(), Counters())
    term = journal.term(DAEMON, 1, KafkaJournal)
    record(term, "a")
    term.event(Kind.TOPIC_CREATE, topic=object())
    journal.start()
    eventually_true(lambda: bool(caplog.records))
    record(term, "b")
    journal.close()
    rows, [gap] = found(tmp_path)
    assert rows == [Kind.UNRECORDED, "b"]
    assert (gap.seq, gap.rows, gap.why) == (1, 2, DEFECT)


def eventually_true(condition: Callable[[], bool]) -> None:
    """Waits for the journal's thread."""
    until_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until_s
        threading.Event().wait(0.005)
