"""Snapshots of the model: whole files at the right moments, and none that is torn, whatever ends in the middle."""

from __future__ import annotations

import io
import logging
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controller.journal.entries import Entry
from controller.journal.journal import encoded
from controller.journal.query import sentence
from controller.journal.reader import parsed
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.snapshots.taking import COMMAND, broker_lines, parts_of
from controller.kafka.snapshots.writer import (
    DRAFT,
    NAME,
    Begin,
    CutShort,
    End,
    framed,
    remove_oldest,
    snapshots_in,
    write_snapshot,
)
from state_machines.journal.audit import judge
from state_machines.journal.events import Kind, Row
from state_machines.journal.snapshot import FORMAT, BrokerLine, Header
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import UNKNOWN, MinIsr
from state_machines.model.types import Assignment, TopicAssignment
from tests.kit.deadlines import eventually
from tests.kit.journals import DAEMON
from tests.kit.kafka.model import topic_gone
from tests.kit.kafka.snapshots import SESSION_MS, Desk, TermDouble, add_topic, lines_of, model, whole

HEADER = Header(FORMAT, 1, "c", 1_000, 5, 17, 1, "command")


def messages(folder: Path, cluster: Cluster, rows_max: int = 5) -> list[bytes]:
    """Returns the messages of a snapshot."""
    begin = Begin(str(folder), 9, 1 << 30, HEADER, broker_lines(cluster, lambda _: None))
    parts = parts_of(cluster, MinIsr(1, {}), rows_max)
    return [framed(begin), *map(framed, parts), framed(End(19, 2))]


def written(folder: Path, cluster: Cluster, rows_max: int = 5) -> Path:
    answer = write_snapshot(io.BytesIO(b"".join(messages(folder, cluster, rows_max))))
    assert answer.err == ""
    return folder / answer.name


def every(folder: Path) -> list[Path]:
    return list(folder.iterdir())


# -- the content


def test_a_snapshot_has_all_that_the_model_has(tmp_path: Path) -> None:
    cluster = model(topics=2, partitions=2)
    moving = Assignment((1, 2, 9), (9,), (1,))
    cluster.observe_topic(TopicAssignment("new", None, {0: moving}, 0, 99))
    cluster.observe_deletions(["t000001"])
    cluster.observe_shutting_down(2)
    header, parts, trailer = whole(written(tmp_path, cluster))
    assert (header, trailer.seq, trailer.ts_us) == (HEADER, 19, 2)
    assert [line for line in lines_of(snapshots_in(tmp_path)[0]) if isinstance(line, BrokerLine)] == [
        BrokerLine(1, True, 101, "rack1"),
        BrokerLine(2, True, 102, "rack0", shutting_down=True),
        BrokerLine(3, True, 103, "rack1"),
        BrokerLine(9, False),
    ]
    first, gone, new = parts
    assert (first.topic, first.topic_id, first.min_isr) == ("t000000", "AAAAAAAAAAAAAAAAAAAAAQ", 1)
    assert (first.partition, first.replicas, first.isr) == ([0, 1], [[1, 2, 3], [2, 3, 1]], [[1, 2, 3], [2, 3, 1]])
    assert (first.leader, first.leader_epoch, first.partition_epoch) == ([1, 2], [2, 2], [7, 7])
    assert (first.adding, first.removing, first.deleting, gone.deleting) == (None, None, False, True)
    assert (new.topic, new.topic_id, new.replicas, new.adding, new.removing) == ("new", None, [[1, 2, 9]], [[9]], [[1]])
    assert (new.leader, new.leader_epoch, new.partition_epoch, new.isr) == ([-1], [-1], [-1], [[]])


def test_topics_come_and_go_while_the_model_is_read() -> None:
    cluster = model(topics=4, partitions=3)
    parts = parts_of(cluster, UNKNOWN, rows_max=2)
    read = Counter({topic.name: len(topic.rows) for topic in next(parts).topics})
    topic_gone(cluster, "t000000")
    topic_gone(cluster, "t000002")
    add_topic(cluster, "t000003", 5)
    add_topic(cluster, "t000002", 1)
    for part in parts:
        read.update({topic.name: len(topic.rows) for topic in part.topics})
    assert read == {"t000000": 2, "t000001": 3, "t000003": 5, "t000002": 1}


@pytest.mark.parametrize(("topics", "partitions"), [(1, 2_500), (30, 90), (2_500, 1), (1, 0)])
def test_no_part_and_no_line_is_longer_than_its_bound(topics: int, partitions: int) -> None:
    cluster = model(topics, partitions)
    parts = list(parts_of(cluster, UNKNOWN, 1_500))
    assert max(sum(len(topic.rows) for topic in part.topics) for part in parts) <= 1_500
    assert all(len(topic.rows) <= 1_000 for part in parts for topic in part.topics)
    assert sum(len(topic.rows) for part in parts for topic in part.topics) == topics * partitions


# -- ends in the middle


def test_a_pipe_that_ends_early_leaves_no_file(tmp_path: Path) -> None:
    sent = messages(tmp_path, model())
    for count in range(len(sent)):
        data = b"".join(sent[:count])
        for cut in (data, data[:-3]):
            with pytest.raises(CutShort):
                write_snapshot(io.BytesIO(cut))
        assert list(tmp_path.iterdir()) == []


def started(sent: bytes) -> subprocess.Popen[bytes]:
    """Returns a writer that has got this of its messages."""
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(sent)
    process.stdin.flush()
    return process


async def test_a_killed_writer_leaves_a_draft_that_the_next_one_removes(tmp_path: Path) -> None:
    process = started(b"".join(messages(tmp_path, model())[:3]))
    await eventually(lambda: any(DRAFT.fullmatch(path.name) for path in every(tmp_path)))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert snapshots_in(tmp_path) == []
    path = written(tmp_path, model())
    assert every(tmp_path) == [path]
    assert path.stat().st_mode & 0o027 == 0, "other users must not read it"


def test_a_daemon_that_dies_ends_its_writer_without_a_file(tmp_path: Path) -> None:
    sent = messages(tmp_path, model())
    done = subprocess.run(COMMAND, input=b"".join(sent[:-1]), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    assert list(tmp_path.iterdir()) == []


FORBIDDEN = """
import os, sys
def nice(_):
    raise PermissionError(1, "Operation not permitted")
os.nice = nice
from controller.kafka.snapshots.writer import main
sys.exit(main())
"""


def test_a_unit_that_forbids_other_priorities_has_snapshots_too(tmp_path: Path) -> None:
    sent = b"".join(messages(tmp_path, model()))
    done = subprocess.run([sys.executable, "-c", FORBIDDEN], input=sent, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(snapshots_in(tmp_path)) == 1


def test_files_with_one_place_in_the_journal_have_names_of_their_own(tmp_path: Path) -> None:
    names = [written(tmp_path, model()).name for _ in range(3)]
    stem = "0000000005-000000000017"
    assert names == [f"{stem}.jsonl.gz", f"{stem}.1.jsonl.gz", f"{stem}.2.jsonl.gz"]
    assert all(map(NAME.fullmatch, names))


@pytest.mark.parametrize(
    ("files_max", "bytes_max", "left"), [(9, 1_000, 4), (3, 1_000, 3), (9, 25, 2), (9, 1, 1), (1, 1, 1)]
)
def test_the_oldest_files_go_first_and_the_newest_never(
    tmp_path: Path, files_max: int, bytes_max: int, left: int
) -> None:
    paths = [tmp_path / f"000000000{n}-000000000001.jsonl.gz" for n in (4, 1, 3, 2)]
    for at, path in enumerate(paths):
        path.write_bytes(b"x" * 10)
        os.utime(path, (at, at))
    foreign = tmp_path / "notes.jsonl.gz"
    foreign.write_bytes(b"y" * 100)
    remove_oldest(tmp_path, paths[-1], files_max, bytes_max)
    assert snapshots_in(tmp_path) == paths[-left:]
    assert foreign.exists()


def test_an_older_file_that_cannot_be_removed_is_named_and_the_new_one_is_there(tmp_path: Path) -> None:
    """A folder with a snapshot's name stands for such a file."""
    stays = tmp_path / "0000000001-000000000001.jsonl.gz"
    stays.mkdir()
    os.utime(stays, (1, 1))
    begin = Begin(str(tmp_path), 1, 1 << 30, HEADER, [])
    answer = write_snapshot(io.BytesIO(framed(begin) + framed(End(19, 2))))
    assert (answer.err, snapshots_in(tmp_path)) == ("", [stays, tmp_path / answer.name])
    assert answer.left.startswith(f"{stays}: ")


def test_lower_bounds_make_room_before_the_next_file_is_whole(tmp_path: Path) -> None:
    paths = [written(tmp_path, model()) for _ in range(3)]
    for at, path in enumerate(paths):
        os.utime(path, (at, at))
    begin = Begin(str(tmp_path), 1, 1 << 30, HEADER, [])
    with pytest.raises(CutShort):
        write_snapshot(io.BytesIO(framed(begin)))
    assert every(tmp_path) == paths[-1:]


def test_the_writer_loads_nothing_from_the_folder_that_it_is_started_in(tmp_path: Path) -> None:
    (tmp_path / "controller").mkdir()
    (tmp_path / "controller" / "__init__.py").write_text("raise SystemExit(9)")
    sent = b"".join(messages(tmp_path / "s", model()))
    done = subprocess.run(COMMAND, input=sent, capture_output=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


# -- the keeper


async def test_an_election_an_interval_and_a_command_take_snapshots(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "state" / "snapshots", interval_h=2)
    desk.term = term = TermDouble(model())
    await desk.until(lambda: desk.counters.snapshots == 1)
    attempt = desk.keeper.request("before the move", "uid 0")
    assert desk.keeper.request("", "uid 1") is attempt, "a request joins one that waits"
    await desk.ended(attempt)
    desk.later_s += 7_201.0
    await desk.until(lambda: desk.counters.snapshots == 3)
    assert [one.cause for one in desk.keeper.attempts] == ["election", "command", "schedule"]
    rows = [row for row in term.book.read() if row.kind == Kind.SNAPSHOT]
    assert [(row.reason, row.principal, row.why) for row in rows] == [
        ("election", None, None),
        ("command", "uid 0", "before the move"),
        ("schedule", None, None),
    ]
    files = snapshots_in(desk.keeper.folder)
    assert [row.snapshot for row in rows] == [path.name for path in files]
    for row, path in zip(rows, files, strict=True):
        header, _, trailer = whole(path)
        assert (header.cluster, header.ctl_epoch, header.cause) == ("c", 5, row.reason)
        assert (row.seq_first, row.seq_last) == (header.seq, trailer.seq) == (row.seq - 1, row.seq - 1)
        assert (row.partitions, row.broker_count, row.file_bytes) == (12, 3, path.stat().st_size)
        assert row.err is None
        assert {line.session_ms for line in lines_of(path) if isinstance(line, BrokerLine)} == {SESSION_MS}


async def test_a_snapshot_waits_until_the_election_is_over_for_brokers_but_not_for_ever(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.term = TermDouble(model())
    desk.term.channels.quiet = False
    looks = iter(range(20))
    await desk.until(lambda: next(looks, None) is None)
    assert list(desk.keeper.attempts) == []
    desk.later_s += 61.0
    await desk.until(lambda: desk.counters.snapshots == 1)
    desk.term = TermDouble(model(epoch=6))
    await desk.until(lambda: desk.counters.snapshots == 2)
    assert [whole(path)[0].ctl_epoch for path in snapshots_in(tmp_path)] == [5, 6]


async def test_a_command_soon_after_an_election_leaves_the_elections_own_snapshot_due(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.term = TermDouble(model())
    desk.term.channels.quiet = False
    await desk.ended(desk.keeper.request("", "uid 0"))
    desk.term.channels.quiet = True
    await desk.until(lambda: desk.counters.snapshots == 2)
    assert [one.cause for one in desk.keeper.attempts] == ["command", "election"]


async def test_a_queue_that_is_never_empty_holds_a_snapshot_up_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.kafka.snapshots.taking.PATIENCE_S", 600.0)
    monkeypatch.setattr("controller.kafka.snapshots.taking.PATIENCE_S_MAX", 0.1)
    desk = Desk(tmp_path, enabled=False)
    desk.term = TermDouble(model(topics=3_000))
    desk.term.idle.clear()
    assert (await desk.ended(desk.keeper.request("", "uid 0"))).state == "done"


async def test_an_error_of_the_keeper_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(TermDouble):
        @property
        def stands_still(self) -> bool:
            raise RuntimeError("no answer")

        @stands_still.setter
        def stands_still(self, value: bool) -> None:
            pass

    desk = Desk(tmp_path)
    desk.term = Broken(model())
    await desk.until(lambda: caplog.records)
    assert "the keeper of snapshots" in caplog.text
    desk.term = TermDouble(model())
    await desk.until(lambda: desk.counters.snapshots == 1)


async def test_without_automatic_snapshots_a_command_takes_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path, enabled=False)
    desk.term = TermDouble(model())
    await desk.ended(desk.keeper.request("", "uid 0"))
    assert [one.cause for one in desk.keeper.attempts] == ["command"]
    assert len(snapshots_in(tmp_path)) == 1


async def test_changes_while_it_is_taken_lie_between_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.kafka.snapshots.taking.parts_of", partial(parts_of, rows_max=2))
    desk = Desk(tmp_path, enabled=False)
    desk.term = term = TermDouble(model(topics=50))
    term.idle.clear()
    attempt = desk.keeper.request("", "uid 0")

    def go_on() -> bool:
        if attempt.state == "running" and len(term.cluster.topics) < 60:
            add_topic(term.cluster, f"late{len(term.cluster.topics)}", 1)
            term.controller.journal.event(Kind.TOPIC_CREATE, topic="late")
            term.idle.set()
        return attempt.state == "done"

    await desk.until(go_on)
    header, _, trailer = whole(snapshots_in(tmp_path)[0])
    assert header.seq <= trailer.seq
    [row] = [row for row in term.book.read() if row.kind == Kind.SNAPSHOT]
    assert (row.seq_first, row.seq_last) == (header.seq, trailer.seq)


@pytest.mark.parametrize("when", ["before", "within", "on a stalled disk"])
async def test_a_term_that_ends_leaves_no_snapshot(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if when == "on a stalled disk":
        monkeypatch.setattr("controller.kafka.snapshots.taking.COMMAND", ("sleep", "600"))
    desk = Desk(tmp_path, enabled=False)
    desk.term = term = TermDouble(model(topics=3_000))
    attempt = desk.keeper.request("", "uid 0")

    def end() -> bool:
        if when == "before":
            desk.term = None
        if attempt.state == "running":
            term.gate.why_ended = "the session is lost"
        return attempt.state == "failed"

    await desk.until(end)
    assert "the role" in attempt.err or "the session is lost" in attempt.err
    assert snapshots_in(tmp_path) == []
    assert [row for row in term.book.read() if row.kind == Kind.SNAPSHOT] == [], "its term has had its last row"
    assert desk.counters.snapshot_failures == 0, "nothing is wrong"
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


async def test_a_folder_that_cannot_be_written_is_one_log_line_and_a_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    desk = Desk(tmp_path / "file" / "snapshots")
    desk.term = TermDouble(model())
    await desk.until(lambda: desk.counters.snapshot_failures == 1)
    [line] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "Not a directory" in line.message
    assert "Remedy: " in line.message
    [row] = desk.term.book.read()
    assert (row.kind, row.reason, row.err, row.snapshot) == (Kind.SNAPSHOT, "election", "Not a directory", None)
    looks = iter(range(20))
    await desk.until(lambda: next(looks, None) is None)
    assert len(desk.keeper.attempts) == 1, "the next one by itself comes after a pause"
    desk.later_s += 3_601.0
    await desk.until(lambda: desk.counters.snapshot_failures == 2)
    desk.keeper.folder = tmp_path / "snapshots"
    await desk.ended(desk.keeper.request("", "uid 0"))
    assert desk.counters.snapshots == 1


async def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of the file's size stands for the disk: the write of the child fails in the middle."""
    real: Any = subprocess.Popen

    def limited(*arguments: Any, **named: Any) -> Any:
        limit = (1_000, resource.RLIM_INFINITY)
        return real(*arguments, **named, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))

    desk = Desk(tmp_path, enabled=False)
    desk.term = TermDouble(model(topics=3_000))
    monkeypatch.setattr("controller.process.children.subprocess.Popen", limited)
    failed = await desk.ended(desk.keeper.request("", "uid 0"))
    assert (failed.state, failed.err) == ("failed", "File too large")
    assert every(tmp_path) == []


async def test_a_writer_that_dies_is_a_failure_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.kafka.snapshots.taking.COMMAND", ("sh", "-c", "echo no python here >&2; exit 7"))
    desk = Desk(tmp_path, enabled=False)
    desk.term = TermDouble(model(topics=3_000))
    failed = await desk.ended(desk.keeper.request("", "uid 0"))
    assert failed.err == "its writing process ended with 7; it said: no python here"


async def test_a_cancelled_keeper_leaves_no_process_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def noted(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        children.append(real(*arguments, **named))
        return children[-1]

    monkeypatch.setattr("controller.process.children.subprocess.Popen", noted)
    desk = Desk(tmp_path, enabled=False)
    desk.term = TermDouble(model(topics=3_000))
    desk.term.idle.clear()
    desk.keeper.request("", "uid 0")
    await desk.until(lambda: children)
    assert children[0].poll() is not None
    assert snapshots_in(tmp_path) == []


async def test_a_disk_that_stalls_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.kafka.snapshots.taking.COMMAND", ("sleep", "600"))
    monkeypatch.setattr("controller.kafka.snapshots.taking.TAKE_S_MAX", 0.2)
    desk = Desk(tmp_path, enabled=False)
    desk.term = TermDouble(model(topics=3_000))
    failed = await desk.ended(desk.keeper.request("", "uid 0"))
    assert "was not on the disk within" in failed.err


# -- rows of the journal

GOLDEN = [
    (
        b'{"v":1,"cluster":"c","ctl_id":1000001,"ctl_epoch":5,"seq":1,"ts_us":1,"mono_us":2,"kind":"BROKER_DOWN",'
        b'"broker":1,"broker_epoch":101,"rack":"rack1","session_ms":9000}'
    ),
    (
        b'{"v":1,"cluster":"c","ctl_id":1000001,"ctl_epoch":5,"seq":2,"ts_us":1,"mono_us":2,"kind":"SNAPSHOT",'
        b'"reason":"command","why":"a move","principal":"uid 0","took_ms":9,"partitions":12,'
        b'"snapshot":"0000000005-000000000001.jsonl.gz","broker_count":3,"file_bytes":700,"seq_first":1,"seq_last":1}'
    ),
    (
        b'{"v":1,"cluster":"c","ctl_id":1000001,"ctl_epoch":5,"seq":3,"ts_us":1,"mono_us":2,"kind":"SNAPSHOT",'
        b'"reason":"schedule","err":"No space left on device"}'
    ),
]


def test_rows_of_the_journal_are_written_as_they_are_documented() -> None:
    entries: list[Entry] = []
    journal = KafkaJournal(entries.append, DAEMON, 5, lambda: (1, 2))
    journal.of_cluster("c")
    journal.gone([model().brokers[1]], lambda _: SESSION_MS)
    name = {"snapshot": "0000000005-000000000001.jsonl.gz", "partitions": 12, "broker_count": 3, "file_bytes": 700}
    named = {"reason": "command", "principal": "uid 0", "why": "a move"}
    journal.snapshot(**named, **name, took_ms=9, seq_first=1, seq_last=1)
    journal.snapshot(reason="schedule", err="No space left on device")
    lines = b"".join(data for entry in entries for _, data in encoded(entry)).splitlines()
    assert lines == GOLDEN
    rows = [row for row in map(parsed, lines) if isinstance(row, Row)]
    assert list(judge(rows)) == []
    assert [sentence(row) for row in rows[1:]] == [
        "0000000005-000000000001.jsonl.gz has 12 partitions and 3 brokers: a move",
        "No space left on device",
    ]


def test_a_reader_passes_over_kinds_and_fields_that_it_does_not_know() -> None:
    later = GOLDEN[1].replace(b'"SNAPSHOT"', b'"OF_LATER"').replace(b'"took_ms"', b'"of_later":{"a":[1]},"took_ms"')
    row = parsed(later)
    assert isinstance(row, Row)
    assert (row.kind, list(judge([row]))) == ("OF_LATER", [])
