"""Each durable change of a procedure is a row of the journal and a line of the log, in the order of its states."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import pytest

from controller.journal.reader import read
from controller.journal.term_journal import CHILDREN_SHOWN, TEXT_MAX, TermJournal, bounded
from controller.procedures.kinds import Kind, Kinds
from controller.procedures.writes import Decided
from state_machines.journal.events import Kind as RowKind
from state_machines.journal.events import Row
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Members, Transition
from testing.memory.region_store import Disk, MemoryRecords
from tests.kills.harness import Clock, Daemon, Notes, arrives, fails, last, spreads, step, topic, twice
from tests.kit.deadlines import in_exact_time
from tests.kit.journals import Book, Desk
from tests.kit.kafka.reassignments import caught_up
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.operator.test_view_procedures import plans, request, running

OPS = Caller("User:ops", "regent", "rack 3 is full", "one")
CHILD = Kind("child", (step(name="copy"), step(last, "report")), topic)
PARENT = Kind(
    "parent",
    (step(spreads("child", 2), "spread"), step(last, "report")),
    topic,
    holds_locks=True,
    members=lambda record: Members((record.data.decode(),), (1, 2)),
)
FAILING = Kind("failing", (step(name="copy"), step(fails, "report")), topic, holds_locks=True)
UNSTEADY = Kind("unsteady", (step(twice, "copy"), step(last, "report")), topic)
LISTENER = Kind("listener", (step(arrives, "listen"), step(last, "report")), topic, holds_locks=True)
CALL: Kind[Notes] = Kind("CREATE_TOPICS", (), topic)
KINDS = (CHILD, PARENT, FAILING, UNSTEADY, LISTENER, CALL)


class Recorded(NamedTuple):
    """A daemon whose procedures are recorded in a book."""

    daemon: Daemon[Notes]
    book: Book

    @classmethod
    async def begin(cls, *, kept: bool = True) -> Recorded:
        book, names = Book(), Kinds(KINDS)
        journal = book.term(7, 5, TermJournal) if kept else TermJournal(None, 7, 5)
        daemon = Daemon(
            Notes(),
            KINDS,
            MemoryRecords(Disk()),
            Clock(),
            lambda moved: journal.procedures(moved, names, "kafka"),
        )
        await daemon.engine.load()
        return cls(daemon, book)

    async def played(self, kind: str, data: bytes = b"t", caller: Caller = OPS) -> Record:
        pid = await self.daemon.run(self.daemon.engine.submit(kind, data, caller))
        return await self.daemon.run(self.daemon.engine.result(pid))


def told(rows: list[Row], pid: int) -> list[tuple[str | None, str | None, str | None]]:
    return [(row.from_state, row.to_state, row.why) for row in rows if row.pid == pid]


@pytest.mark.seed("S3-28")
@in_exact_time
async def test_a_family_has_a_row_for_each_state_and_step_of_each_member() -> None:
    found = await Recorded.begin()
    record = await found.played("parent")
    rows = found.book.read()
    assert {row.kind for row in rows} == {RowKind.PROC_STATE}
    pid, first, second = record.pid, record.pid + 1, record.pid + 2
    assert told(rows, pid) == [
        (None, "RUNNABLE", "submitted by User:ops (regent): rack 3 is full"),
        ("RUNNABLE", "WAITING", f"step spread done, children begun: pid={first}, pid={second}"),
        ("WAITING", "SUCCESS", told(rows, pid)[-1][2]),
    ]
    assert (told(rows, pid)[-1][2] or "").startswith("finished with SUCCESS in ")
    for child in (first, second):
        begun, copied, ended = told(rows, child)
        assert begun == (None, "RUNNABLE", f"begun by pid={pid}")
        assert copied == ("RUNNABLE", "RUNNABLE", "step copy done, next is report")
        assert ended[:2] == ("RUNNABLE", "SUCCESS"), "a child's record is deleted, and its row has its end"
        assert "finished with SUCCESS in " in (ended[2] or "")
    assert {(row.root, row.ppid) for row in rows if row.pid == first} == {(pid, pid)}
    ends = [row for row in rows if row.to_state == "SUCCESS"]
    assert ends[-1].pid == pid, "the parent ends after its children"


@in_exact_time
async def test_rows_name_the_caller_the_locks_and_what_the_procedure_is_about() -> None:
    found = await Recorded.begin()
    record = await found.played("parent", b"orders")
    first, spread, end = [row for row in found.book.read() if row.pid == record.pid]
    assert (first.principal, first.client, first.reason) == ("User:ops", "regent", "rack 3 is full")
    assert (first.locks, first.locked, spread.locked) == (["topic orders"], None, True)
    assert [(row.topics, row.brokers) for row in (first, spread, end)] == [
        (["orders"], [1, 2]),
        (None, None),
        (["orders"], [1, 2]),
    ]
    assert (first.procedure, first.step, spread.step, end.result) == ("parent", "spread", "report", "made orders")
    assert end.took_ms == record.updated_ms - record.submitted_ms
    assert [end.concerns(broker) for broker in (1, 2, 3)] == [True, True, False]


@pytest.mark.seed("S3-34")
@in_exact_time
async def test_a_failed_procedure_tells_why_and_each_step_that_is_undone() -> None:
    found = await Recorded.begin()
    record = await found.played("failing")
    sentences = [why for _, _, why in told(found.book.read(), record.pid)]
    assert sentences[:4] == [
        "submitted by User:ops (regent): rack 3 is full",
        "step copy done, next is report",
        "failed: no room for t; its steps are undone",
        "step report undone",
    ]
    [end] = sentences[4:]
    assert (end or "").startswith("rolled back in ")
    assert (end or "").endswith(": no room for t")


@in_exact_time
async def test_an_attempt_in_vain_names_its_number_its_cause_and_the_next_one() -> None:
    found = await Recorded.begin()
    record = await found.played("unsteady")
    again = told(found.book.read(), record.pid)[1]
    assert again == (
        "RUNNABLE",
        "WAITING_TIMEOUT",
        "step copy failed, attempt 1: a broker is away; it is tried again in 1 s",
    )


@in_exact_time
async def test_a_wait_is_told_once_however_often_the_step_looks_again() -> None:
    found = await Recorded.begin()
    engine = found.daemon.engine
    pid = await found.daemon.run(engine.submit("listener", b"t", OPS))
    await found.daemon.until(lambda: engine.records[pid].state is State.WAITING_TIMEOUT)
    for _ in range(20):
        engine.wake(pid)
        await engine.turn()
    assert [why for _, _, why in told(found.book.read(), pid)][1:] == ["step listen waits"]


@in_exact_time
async def test_a_recorded_call_which_is_born_ended_has_its_row_from_the_same_place() -> None:
    found = await Recorded.begin()
    call = Record(9, "CREATE_TOPICS", State.SUCCESS, 0, 5, 5, result=b"orders: created", caller=OPS)
    found.daemon.engine._running.enter([Decided(Change(puts=(call,)))])
    [row] = found.book.read()
    assert (row.pid, row.from_state, row.to_state, row.result) == (9, None, "SUCCESS", "orders: created")
    assert row.why == "requested by User:ops (regent): rack 3 is full, and done: orders: created"
    assert (row.step, row.locks) == (None, None)


def test_text_of_others_is_one_line_of_bounded_length() -> None:
    assert bounded("") is None
    assert bounded("a\nb\tc  d") == "a b c d"
    assert bounded("x" * 10_000) == "x" * (TEXT_MAX - 3) + "..."


@in_exact_time
async def test_a_parent_of_many_names_the_first_children_alone() -> None:
    found = await Recorded.begin()
    family = tuple(
        Record(20 + n, "child", State.RUNNABLE, 0, 1, 1, parent=1, ancestors=(1,), data=b"%d" % n) for n in range(15)
    )
    parent = Record(1, "parent", State.RUNNABLE, 0, 1, 1, data=b"t")
    engine = found.daemon.engine
    engine._running.enter([Decided(Change(puts=(parent,)))])
    waiting = Record(1, "parent", State.WAITING, 1, 1, 1, data=b"t", done=(0,), born=tuple(range(20, 35)))
    engine._running.enter([Decided(Change(puts=(waiting, *family)))])
    assert (
        told(found.book.read(), 1)[1][2]
        == "step spread done, children begun: "
        + ", ".join(f"pid={20 + n}" for n in range(CHILDREN_SHOWN))
        + " and 5 more"
    )


# -- lines


@pytest.mark.seed("S3-28", "S3-29", "S3-34")
@in_exact_time
async def test_without_a_journal_lines_are_logged_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent.procedures")
    found = await Recorded.begin(kept=False)
    record = await found.played("parent")
    pid, child = record.pid, record.pid + 1
    lines = [line.getMessage() for line in caplog.records]
    assert lines[0] == f"pid={pid} parent: RUNNABLE, submitted by User:ops (regent): rack 3 is full"
    sub = [
        line for line in lines if line.startswith(f"pid={child} ppid={pid} child: SUCCESS, finished with SUCCESS in")
    ]
    assert len(sub) == 1, "the end of a sub-procedure names its parent"
    assert len([line for line in lines if f"pid={pid}" in line]) == 9, "its own three, and three of each child"
    assert {getattr(line, "worker", None) for line in caplog.records} == {"kafka-5"}


@pytest.mark.seed("S3-34")
@in_exact_time
async def test_the_journals_thread_logs_lines_with_the_time_of_the_change_also_on_a_broken_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regent.procedures")
    found = await Recorded.begin()
    await found.played("failing")
    (tmp_path / "events").write_text("not a folder")
    kit = Desk(tmp_path / "events")
    kit.journal.start()
    for entry in found.book.entries:
        kit.journal.put(entry)
    kit.journal.close()
    lines = [line for line in caplog.records if line.name == "regent.procedures"]
    assert [line.levelname for line in lines] == ["INFO", "INFO", "WARNING", "WARNING", "WARNING"]
    assert [line.created for line in lines] == [row.ts_us / 1e6 for row in found.book.rows()]
    assert {line.threadName for line in lines} == {"journal-writer"}


@in_world(1, 2, 3)
async def test_a_plan_of_the_daemon_is_in_its_journal_with_topics_and_brokers(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(reason="rack 3 is full"), "uid 0")
    await w.settle()
    for _ in range(4):
        await caught_up(w)
        await w.settle()
    rows = [row for row in w.book.read() if row.pid == begun.pid]
    assert [(row.from_state, row.to_state) for row in rows] == [
        (None, "RUNNABLE"),
        ("RUNNABLE", "WAITING_TIMEOUT"),
        ("WAITING_TIMEOUT", "SUCCESS"),
    ], "waves change the message alone"
    assert (rows[0].topics, rows[0].brokers, rows[1].locks) == (["t"], [1, 2, 3], ["server reassignments"])
    assert rows[-1].result == "2 done"


def test_rows_of_procedures_are_read_back_from_files(tmp_path: Path) -> None:
    kit = Desk(tmp_path)
    moved = [Transition(None, Record(1, "child", State.RUNNABLE, 0, 1, 1, data=b"t"))]
    term = kit.term()
    term.procedures(moved, Kinds(KINDS), "kafka")
    kit.write()
    [row] = [row for row in read(tmp_path) if isinstance(row, Row)]
    assert (row.pid, row.procedure, row.to_state, row.locks) == (1, "child", "RUNNABLE", ["topic t"])
