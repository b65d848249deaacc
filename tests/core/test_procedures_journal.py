"""Procedures and requests in the journal and in the log: each durable change once, off the event loop."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.http.drain_models import DrainRequest
from controller.journal.batches import Step
from controller.journal.query import Wanted, entity, last
from controller.journal.query import sentence as told
from controller.journal.term_journal import TermJournal
from state_machines.decisions.leader_election import ElectionType
from state_machines.journal.audit import judge, procedure_states
from state_machines.journal.events import Kind, Row
from state_machines.procedures.progress import TEXT_MAX, Progress, sentence
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import VALID_PREVIOUS, State
from tests.core.controller_world import World, in_world
from tests.core.journal_kit import Desk
from tests.core.test_drain import drained, ended, running, views
from tests.core.test_view_procedures import view_of

CALLER = Caller("uid 0", "regent", "rack 3 is full", "n")
ROOT = Record(12, "drain", State.RUNNABLE, 0, 1_000, 1_000, caller=CALLER)
CHILD = Record(13, "reassign", State.RUNNABLE, 0, 1_000, 1_000, parent=12, ancestors=(12,))


def changed(before: Record | None, **fields: object) -> Progress:
    """Returns a change of a record, 2.5 s after its begin."""
    after = replace(before or ROOT, updated_ms=3_500, **fields)
    return Progress(before, after, "move leaders")


@pytest.mark.seed("S3-28", "S3-34")
@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (
            Progress(None, ROOT, "mark brokers"),
            "pid=12 state=RUNNABLE:mark brokers drain: submitted by uid 0 through regent, because: rack 3 is full",
        ),
        (
            Progress(None, replace(ROOT, caller=Caller()), "mark brokers"),
            "pid=12 state=RUNNABLE:mark brokers drain: submitted by the daemon",
        ),
        (
            Progress(None, CHILD, "move replicas"),
            "pid=13 ppid=12 state=RUNNABLE:move replicas reassign: begins as a part of pid 12",
        ),
        (
            Progress(None, replace(ROOT, kind="create-topics", state=State.SUCCESS, result=b"1 created: t")),
            "pid=12 state=SUCCESS create-topics: requested by uid 0 through regent: 1 created: t",
        ),
        (changed(ROOT, step=1, done=(0,)), "pid=12 state=RUNNABLE:move leaders drain: goes on with step move leaders"),
        (
            changed(ROOT, state=State.WAITING_TIMEOUT),
            "pid=12 state=WAITING_TIMEOUT:move leaders drain: waits in step move leaders",
        ),
        (
            changed(ROOT, state=State.WAITING),
            "pid=12 state=WAITING:move leaders drain: waits for its children, step move leaders follows",
        ),
        (
            changed(ROOT, state=State.WAITING_TIMEOUT, attempts=2, error="it"),
            (
                "pid=12 state=WAITING_TIMEOUT:move leaders drain: step move leaders failed for now, attempt 2: it; "
                "it is tried again"
            ),
        ),
        (
            changed(ROOT, state=State.FAILED, error="aborted"),
            "pid=12 state=FAILED:move leaders drain: failed: aborted; executed steps are undone, the latest first",
        ),
        (
            changed(replace(ROOT, state=State.FAILED, done=(0, 1)), done=(0,)),
            "pid=12 state=FAILED:move leaders drain: a step is undone, step move leaders follows",
        ),
        (
            changed(replace(ROOT, state=State.FAILED, done=(0,)), attempts=1, error="no reply"),
            (
                "pid=12 state=FAILED:move leaders drain: step move leaders cannot be undone now, attempt 1: no reply; "
                "it is tried again"
            ),
        ),
        (
            changed(ROOT, aborted=True),
            "pid=12 state=RUNNABLE:move leaders drain: its abort was requested: executed steps are undone",
        ),
        (
            changed(ROOT, bypassed=True),
            "pid=12 state=RUNNABLE:move leaders drain: it was bypassed: it ends as it is, and nothing is undone",
        ),
        (
            changed(CHILD, state=State.SUCCESS, result=b"3 done"),
            "pid=13 ppid=12 state=SUCCESS:move leaders reassign: finished with SUCCESS in 2.500 s: 3 done",
        ),
        (
            changed(ROOT, state=State.ROLLEDBACK, error="aborted"),
            "pid=12 state=ROLLEDBACK:move leaders drain: finished with ROLLEDBACK in 2.500 s: aborted",
        ),
    ],
    ids=lambda value: "" if isinstance(value, Progress) else value.split(" ", 1)[1][:40],
)
def test_a_line_has_the_pid_the_parents_and_what_happened(progress: Progress, line: str) -> None:
    assert sentence(progress) == line
    assert progress.is_shown


def test_another_message_alone_is_no_line_and_long_texts_are_cut() -> None:
    assert not changed(ROOT, data=b"x").is_shown
    assert len(sentence(changed(ROOT, state=State.SUCCESS, result=b"x" * 5_000))) < TEXT_MAX + 100


@pytest.mark.parametrize("before", [None, *State])
@pytest.mark.parametrize("after", State)
@pytest.mark.parametrize("committed", [None, True])
def test_a_row_is_judged_by_the_table_of_states(before: State | None, after: State, committed: bool | None) -> None:
    row = Row(1, "c", 1, 1, 1, 0, 0, Kind.PROC_STATE, to_state=after.name, committed=committed)
    row.from_state = before.name if before is not None else None
    if before is None:
        legal = after in (State.RUNNABLE, State.SUCCESS)
    else:
        legal = before in VALID_PREVIOUS[after] and not (committed and after in (State.FAILED, State.ROLLEDBACK))
    assert (procedure_states(row) is None) == legal
    assert ["A14"] * (not legal) == [violation.invariant for violation in judge([row])]


def lines(w: World) -> list[str]:
    """Returns the lines of all changes of procedures."""
    return [sentence(entry.progress) for entry in w.book.entries if isinstance(entry, Step)]


@pytest.mark.seed("S3-28", "S3-34")
@in_world(1, 2, 3, 4)
async def test_a_search_for_the_pid_finds_the_whole_history(w: World) -> None:
    await running(w)
    done = await drained(w, 1, replicas=True, reason="disks")
    assert done.state == "success"
    assert [re.sub(r" in [\d.]+ s", "", line) for line in lines(w)] == [
        "pid=1 state=RUNNABLE:mark brokers drain: submitted by uid 0 through regent, because: disks",
        "pid=1 state=RUNNABLE:move leaders drain: goes on with step move leaders",
        "pid=1 state=WAITING_TIMEOUT:move leaders drain: waits in step move leaders",
        "pid=1 state=WAITING:move replicas drain: waits for its children, step move replicas follows",
        "pid=2 ppid=1 state=RUNNABLE:move replicas reassign: begins as a part of pid 1",
        "pid=2 ppid=1 state=WAITING_TIMEOUT:move replicas reassign: waits in step move replicas",
        "pid=2 ppid=1 state=SUCCESS:move replicas reassign: finished with SUCCESS: 5 done",
        f"pid=1 state=SUCCESS:move replicas drain: finished with SUCCESS: {done.result}",
    ]
    rows = [row for row in w.book.read() if row.kind == Kind.PROC_STATE]
    assert {(row.proc, row.parent_proc, row.root_proc) for row in rows} == {(1, None, 1), (2, 1, 1)}
    assert {lock for row in rows for lock in row.locks or ()} == {"X server broker 1", "X server reassignments"}
    assert (rows[0].principal, rows[0].client, rows[0].why) == ("uid 0", "regent", "disks")


@in_world(1, 2, 3, 4)
async def test_an_abort_is_recorded_step_by_step(w: World) -> None:
    await running(w)
    found = await views(w)[0].drain(DrainRequest(brokers=[1], replicas=True), "uid 0")
    await w.settle()
    await view_of(w).abort(found.pid)
    assert (await ended(w, found.pid)).state == "rolledback"
    states = [(row.proc, row.to_state) for row in w.book.read() if row.kind == Kind.PROC_STATE]
    ends = [(pid, state) for pid, state in states if state in ("FAILED", "ROLLEDBACK")]
    assert ends[-1] == (1, "ROLLEDBACK")
    assert ends.index((2, "ROLLEDBACK")) < len(ends) - 1, "the child ends before its parent"
    assert not w.book.violations()


@in_world(1, 2)
async def test_each_acknowledged_request_has_one_row(w: World) -> None:
    await w.topic("t", (1, 2), (2, 1), leaders=True)
    await w.begin_term()
    await w.propagated()
    rows = [row for row in w.book.read() if row.kind == Kind.RPC_BATCH]
    found = {(row.broker, row.api, row.partitions) for row in rows}
    assert found == {(b, "LEADER_AND_ISR", 2) for b in (1, 2)} | {(b, "UPDATE_METADATA", None) for b in (1, 2)}
    epochs = {row.broker: row.broker_epoch for row in w.book.read() if row.kind == Kind.BROKER_UP}
    assert all(row.broker_epoch == epochs[row.broker] for row in rows)
    assert all((row.t_sent or 0) <= (row.t_acked or 0) <= row.mono_us for row in rows)
    assert {told(row).partition(" acknowledged in ")[0] for row in rows} == {
        "LEADER_AND_ISR of 2 partitions",
        "UPDATE_METADATA",
    }


@in_world(1, 2)
async def test_an_election_by_request_has_a_row_with_the_client_and_the_outcomes(w: World) -> None:
    await w.topic("t", (1, 2), (2, 1), leaders=True)
    await w.begin_term()
    await w.propagated()
    await w.elect(ElectionType.PREFERRED, ("t", 0), ("gone", 0))
    [row] = [row for row in w.book.read() if row.kind == Kind.CALL]
    assert (row.operation, row.principal, entity(row)) == ("elect-leaders", "an admin client", "an admin client")
    assert row.result == "preferred election of 2 partitions: 1 election_not_needed, 1 unknown"


def test_the_journal_is_searched_for_a_procedure_and_its_children(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    term = desk.term()
    for record in (ROOT, CHILD, replace(ROOT, pid=14)):
        term.procedure(Progress(None, record))
    desk.write()
    rows, _, _ = last(tmp_path, Wanted(proc=12), 10)
    assert [(row.proc, entity(row)) for row in rows] == [(12, "pid 12"), (13, "pid 13 of 12")]
    assert [row.proc for row in last(tmp_path, Wanted(proc=13), 10)[0]] == [13]


@pytest.mark.seed("S3-29")
def test_lines_are_logged_by_the_journals_thread_with_worker_and_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regent.procedures")
    desk = Desk(tmp_path)
    desk.journal.start()
    term = desk.term(epoch=7)
    term.procedure(Progress(None, ROOT, "mark brokers"))
    term.procedure(changed(ROOT, state=State.FAILED, error="aborted"))
    assert not caplog.records, "nothing is rendered where the change is entered"
    desk.journal.close()
    first, second = caplog.records
    assert (first.levelname, second.levelname) == ("INFO", "WARNING")
    assert first.__dict__["worker"] == "kafka-7"
    assert first.getMessage() == sentence(Progress(None, ROOT, "mark brokers"))
    [row, _] = last(tmp_path, Wanted(), 10)[0]
    assert abs(first.created - row.ts_us / 1e6) < 0.001, "the time of the change, and not of the line"


def test_without_a_journal_lines_are_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent.procedures")
    TermJournal(epoch=3).procedure(Progress(None, ROOT, "mark brokers"))
    [line] = caplog.records
    assert line.getMessage().startswith("pid=12 state=RUNNABLE:mark brokers drain")
