"""Reads journals: every whole row is found, every gap is named, and deaths of brokers are read from former terms."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.outbound.delivery import Delivered
from brokers.wire.versions import Api
from controller.journal.query import entity, history, sentence
from controller.journal.reader import (
    CUT_SHORT,
    HOLE,
    LINE_BYTES_MAX,
    TORN,
    Damage,
    Gap,
    joined,
    lines,
    parsed,
    read,
    read_file,
)
from controller.journal.segments import SegmentName, segments_in
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.path.remembered import Departed
from controller.operator.brokers import EarlierDeaths, departures
from state_machines.decisions.leader_election import ElectionType
from state_machines.journal.events import Kind, Row
from tests.kit.journals import Book
from tests.kit.kafka.world import KafkaWorld, in_world


def row(seq: int, epoch: int = 1, lost: int | None = None, ctl_id: int = 1) -> Row:
    kind = Kind.TOPIC_CREATE if lost is None else Kind.UNRECORDED
    return Row(1, "c", ctl_id, epoch, seq, 0, 0, kind, topic=f"t{seq}", lost=lost)


def text(*rows: Row) -> bytes:
    return msgspec.json.Encoder().encode_lines(rows)


def split(found: list[Row | Gap]) -> tuple[list[Row], list[Gap]]:
    return [r for r in found if isinstance(r, Row)], [g for g in found if isinstance(g, Gap)]


@given(count=st.integers(1, 8), cut=st.integers(0, 400))
def test_a_file_that_ends_anywhere_has_its_whole_lines_and_a_torn_one(count: int, cut: int) -> None:
    whole = text(*(row(seq) for seq in range(1, count + 1)))
    left = whole[: max(0, len(whole) - cut)]
    with TemporaryDirectory() as name:
        path = Path(name) / str(SegmentName(1, 1, 0))
        path.write_bytes(left)
        rows, gaps = split(list(read_file(path)))
    assert [r.seq for r in rows] == list(range(1, left.count(b"\n") + 1))
    assert gaps == ([] if not left or left.endswith(b"\n") else [Gap(TORN, path.name)])


@given(
    terms=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    missing=st.sets(st.tuples(st.integers(1, 4), st.integers(1, 12)), max_size=8),
    twice=st.booleans(),
)
def test_each_row_is_read_once_and_each_hole_is_named(
    terms: list[int], missing: set[tuple[int, int]], twice: bool
) -> None:
    """Rows and gaps together are all rows of every term, except for its lost end and for expired rows."""
    rows = [row(seq, epoch) for epoch, count in enumerate(terms, 1) for seq in range(1, count + 1)]
    kept = [r for r in rows if (r.ctl_epoch, r.seq) not in missing]
    seen_rows, gaps = split(list(joined([r for r in kept for _ in range(1 + twice)])))
    assert seen_rows == kept
    assert {gap.why for gap in gaps} <= {HOLE, CUT_SHORT}
    seen = sorted({r.ctl_epoch for r in kept})
    assert [gap.ctl_epoch for gap in gaps if gap.why == CUT_SHORT] == seen[:-1], "no term here has an end"
    named = {(gap.ctl_epoch, gap.seq + at) for gap in gaps for at in range(gap.rows)}
    last = {epoch: max((r.seq for r in kept if r.ctl_epoch == epoch), default=0) for epoch in range(1, len(terms) + 1)}
    first = (kept[0].ctl_epoch, kept[0].seq) if kept else (0, 0)
    present = {(r.ctl_epoch, r.seq) for r in rows}
    assert named == {(e, s) for e, s in missing & present if s < last[e] and (e, s) > first and not (e < first[0])}


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=10))
def test_an_unrecorded_row_is_a_gap_of_its_count(runs: list[tuple[int, bool]]) -> None:
    rows, seq, unrecorded = [], 1, []
    for count, lost in runs:
        if lost:
            rows.append(row(seq, lost=count))
            unrecorded.append((seq, count))
        else:
            rows += [row(seq + at) for at in range(count)]
        seq += count
    seen_rows, gaps = split(list(joined(rows)))
    assert seen_rows == rows
    assert [(gap.seq, gap.rows) for gap in gaps] == unrecorded


def test_a_term_without_an_end_is_a_gap() -> None:
    resigned = msgspec.structs.replace(row(2), kind=Kind.CTL_RESIGNED)
    assert list(joined([row(1), resigned, row(1, 2)])) == [row(1), resigned, row(1, 2)]
    [gap] = split(list(joined([row(1), row(2), row(1, 2)])))[1]
    assert gap == Gap(CUT_SHORT, "", 1, 3)
    assert str(gap).startswith("epoch 1: the term has no end")


def test_each_daemon_has_its_own_numbers() -> None:
    rows = [row(1, ctl_id=1), row(1, epoch=2, ctl_id=2), row(2, ctl_id=1), row(2, epoch=2, ctl_id=2)]
    assert list(joined(rows)) == rows


@given(st.binary(max_size=200))
def test_a_line_is_a_row_or_damage(line: bytes) -> None:
    assert isinstance(parsed(line), Row | Damage)


def test_a_line_beyond_the_bound_is_not_decoded() -> None:
    assert isinstance(parsed(b" " * (LINE_BYTES_MAX + 1)), Damage)


def test_damage_loses_its_own_line_alone(tmp_path: Path) -> None:
    path = tmp_path / str(SegmentName(1, 1, 0))
    path.write_bytes(text(row(1)) + b'{"v":1,"clu\x00\x00\xff\n' + text(row(3)))
    rows, gaps = split(list(read(tmp_path)))
    assert [r.seq for r in rows] == [1, 3]
    assert [gap.file for gap in gaps] == [path.name, ""]
    assert (gaps[1].seq, gaps[1].rows, gaps[1].why) == (2, 1, HOLE)
    assert str(gaps[1]) == "rows 2 to 2 of epoch 1: rows are missing"


def test_fields_of_a_later_version_are_ignored() -> None:
    line = msgspec.json.encode({**msgspec.to_builtins(row(1)), "later": [1, {"deep": 2}]})
    assert parsed(line) == row(1)


def test_only_the_journals_own_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / "1-1.jsonl").write_text("not ours either")
    (tmp_path / str(SegmentName(2, 1, 0))).write_bytes(text(row(1, 2)))
    (tmp_path / str(SegmentName(1, 9, 0))).write_bytes(text(row(9)))
    (tmp_path / str(SegmentName(1, 9, 1))).write_bytes(text(row(10)))
    assert [(r.ctl_epoch, r.seq) for r in split(list(read(tmp_path)))[0]] == [(1, 9), (1, 10), (2, 1)]
    assert segments_in(tmp_path / "nowhere") == []


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "endless"])
def test_a_line_of_any_length_takes_bounded_memory(tmp_path: Path, ended: bool) -> None:
    """The file is sparse: 256 MiB of zeros without an end of line."""
    path = tmp_path / str(SegmentName(1, 1, 0))
    size = 256 << 20
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(b"\n{}\n" if ended else b"")
    tracemalloc.start()
    found = list(lines(path))
    history(tmp_path, "t", 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
    begin = b"\0" * (LINE_BYTES_MAX + 1)
    assert found == ([(size + 1, begin, True), (size + 4, b"{}", True)] if ended else [(size, begin, False)])


DOWN, UP = Kind.BROKER_DOWN, Kind.BROKER_UP


def write(folder: Path, epoch: int, *events: tuple[Kind, int, int], cluster: str = "c", again: int = 0) -> None:
    """Writes a term's file: kind, broker and time in milliseconds of each row."""
    folder.mkdir(parents=True, exist_ok=True)
    begin = Row(1, cluster, 7, epoch, 1, 0, 0, Kind.CTL_ELECTED)
    rows = [
        Row(1, cluster, 7, epoch, seq, at_ms * 1_000, 0, kind, broker=broker)
        for seq, (kind, broker, at_ms) in enumerate(events, 2)
    ]
    name = str(SegmentName(epoch, 1, again))
    (folder / name).write_bytes(msgspec.json.Encoder().encode_lines([begin, *rows]))


def test_a_broker_that_died_in_an_earlier_term_and_has_not_come_back_has_its_time(tmp_path: Path) -> None:
    write(tmp_path, 3, (DOWN, 1, 10), (DOWN, 2, 20), (DOWN, 3, 30), (UP, 3, 40))
    write(tmp_path, 4, (UP, 2, 50), (DOWN, 2, 60))
    write(tmp_path, 5, (DOWN, 9, 70))
    assert departures(tmp_path, "c", 5) == {1: 10, 2: 60}, "the present term knows its own deaths"


def test_a_term_of_another_controller_hides_what_was_before_it(tmp_path: Path) -> None:
    """Broker 1 may have come back and gone in epoch 4, which this daemon did not have."""
    write(tmp_path, 3, (DOWN, 1, 10))
    write(tmp_path, 5, (DOWN, 2, 20))
    assert departures(tmp_path, "c", 6) == {2: 20}
    assert departures(tmp_path, "c", 7) == {}


def test_terms_of_another_cluster_and_files_that_cannot_be_read_count_for_nothing(tmp_path: Path) -> None:
    write(tmp_path, 3, (DOWN, 1, 10))
    write(tmp_path, 4, (DOWN, 2, 20), cluster="other")
    assert departures(tmp_path, "c", 5) == {}
    write(tmp_path, 4, (DOWN, 3, 30), again=1)
    assert departures(tmp_path, "c", 5) == {1: 10, 3: 30}
    (tmp_path / str(SegmentName(4, 1, 1))).write_bytes(b"\xff\n")
    assert departures(tmp_path, "c", 5) == {}
    assert departures(tmp_path / "none", "c", 5) == {}


async def test_a_term_learns_once_of_the_deaths_before_it(tmp_path: Path) -> None:
    own: Any = SimpleNamespace(journal=SimpleNamespace(enabled=True), state=SimpleNamespace(directory=tmp_path))
    folder = tmp_path / "events"
    write(folder, 4, (DOWN, 1, 10), (DOWN, 2, 20))
    departed, earlier = Departed(), EarlierDeaths(own)
    controller = SimpleNamespace(departed=departed)
    cluster = SimpleNamespace(brokers={2: None})
    term: Any = SimpleNamespace(claim=SimpleNamespace(epoch=5), controller=controller, cluster=cluster)
    await earlier.refresh(term, None)
    assert departed.since_ms(1) is None, "the cluster's id is not known yet"
    await earlier.refresh(term, "c")
    assert (departed.since_ms(1), departed.since_ms(2)) == (10, None), "broker 2 has come back"
    write(folder, 4, (DOWN, 1, 11))
    await earlier.refresh(term, "c")
    assert departed.since_ms(1) == 10


async def running(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), leaders=True)
    await w.begin_term()
    await w.propagated()


def requests(w: KafkaWorld) -> list[Row]:
    return [row for row in w.book.read() if row.kind == Kind.RPC_BATCH]


@in_world(before=running)
async def test_each_acknowledged_request_has_its_broker_epoch_its_size_and_its_times(w: KafkaWorld) -> None:
    found = requests(w)
    assert {row.api for row in found} >= {"LEADER_AND_ISR", "UPDATE_METADATA"}
    assert {(row.broker, row.broker_epoch) for row in found} == {
        (broker.id, broker.epoch) for broker in w.term.cluster.brokers.values()
    }
    assert {row.partitions for row in found if row.api == "LEADER_AND_ISR"} == {3}, "one row for all partitions"
    assert all((row.t_sent or 0) <= (row.t_acknowledged or 0) for row in found)
    assert {row.err for row in found} == {None}


@in_world(before=running)
async def test_a_request_that_its_broker_never_acknowledged_is_given_up_with_it(w: KafkaWorld) -> None:
    before = len(requests(w))
    w.term.channels._shared.on_request(Delivered(2, 12, Api.STOP_REPLICA, 5, 1.5, False, 0, "connection refused"))
    [row] = requests(w)[before:]
    assert (row.api, row.partitions, row.t_acknowledged) == ("STOP_REPLICA", 5, None)
    assert row.err == "given up: connection refused"
    assert row.mono_us - (row.t_sent or 0) == 1_500_000


@in_world(before=running)
async def test_a_clients_election_is_one_row_with_its_counts(w: KafkaWorld) -> None:
    await w.elect(ElectionType.PREFERRED, ("t", 0), ("t", 1), ("nowhere", 7))
    [row] = [row for row in w.book.read() if row.kind == Kind.CALL]
    assert (row.api, row.partitions, row.elected, row.refused) == ("ELECT_LEADERS", 3, 0, 3)
    assert sentence(row) == "ELECT_LEADERS of 3 partitions by a client: 0 elected, 3 refused"


def test_a_request_is_a_sentence() -> None:
    book = Book()
    book.term(7, 5, KafkaJournal).request(Delivered(2, 12, Api.LEADER_AND_ISR, 40, 0.25, error=11))
    [row] = book.read()
    assert entity(row) == "broker 2"
    text = sentence(row)
    assert text.startswith("LEADER_AND_ISR of 40 partitions to epoch 12 acknowledged in 250.0 ms: ")
    assert text.endswith("STALE_CONTROLLER_EPOCH (11)")
