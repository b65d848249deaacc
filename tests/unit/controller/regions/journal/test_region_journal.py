"""The log of an assignment, a move and a crash: each line has the pid, and ``grep`` finds the history in order."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

from controller.journal.query import entity, sentence
from controller.journal.reader import read
from controller.journal.term_journal import TermJournal
from controller.regions.environment import Options
from controller.regions.journal.lines import TOGETHER_MAX
from controller.regions.procedures import servers
from regent_agent import protocol
from state_machines.journal.audit import judge
from state_machines.journal.events import Kind, Row
from state_machines.regions.marks import MarkKind
from tests.kit.journals import Book, Desk
from tests.kit.regions.term import Log, Stage, stage

WORKER = "regions-1"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


def without_times(lines: list[str]) -> list[str]:
    return [re.sub(r" in \d+\.\d+ s.*", "", line) for line in lines]


def opened(pid: int, ppid: int, at: str, before: str, location: str) -> list[str]:
    """Lists the lines of an assignment that was planned together with others."""
    me = f"pid={pid} ppid={ppid} assign:"
    return [
        f"{me} RUNNABLE, begun by pid={ppid}",
        f"{me} starts; rit={before}, location={location}, target={at.partition(',')[0]}, retain=false",
        f"{me} OFFLINE -> OPENING at {at} is stored, the open is sent next",
        f"{me} sent to {at} with batch 1 of 1 operation",
        f"{me} {at} reported opened, sequence=10",
        f"{me} OPENING -> OPEN at {at} is stored",
        f"{me} SUCCESS, finished with SUCCESS",
    ]


@pytest.mark.seed("S1-25", "S1-53", "S3-11", "S3-22", "S3-23", "S3-24", "S3-25", "S3-27", "S3-28", "S3-29", "S3-34")
async def test_the_pid_of_an_assignment_finds_its_whole_history_in_order(tmp_path: Path, log: Log) -> None:
    async with stage(tmp_path) as s:
        await s.join("kv-1", 1795)
        await s.create("kv", 1)
    assert without_times(log.grep("pid=3")) == opened(3, 2, "kv-1,1795", "OFFLINE", "none")
    [begun] = log.whole("pid=2 ppid=1 assign_many: WAITING, step assign done, children begun: pid=3")
    assert begun.endswith("; table=kv, step count")
    [child] = log.whole("pid=3 ppid=2 assign: RUNNABLE")
    [region] = s.term.env.model.regions
    assert child.endswith(f"; table=kv region=kv#{region} server=kv-1,1795, step dispatch")
    [opening] = log.whole("OFFLINE -> OPENING")
    assert opening.endswith(f"; table=kv region=kv#{region}, token=3, because of create_table")
    [is_open] = log.whole("OPENING -> OPEN")
    assert is_open.endswith(f"; table=kv region=kv#{region}, token=3, sequence=10, because of create_table")
    assert log.workers() == {WORKER}


@pytest.mark.seed("S1-32", "S1-52", "S2-53", "S3-11", "S3-12", "S3-21", "S3-22", "S3-30", "S3-34")
async def test_a_move_is_a_close_whose_lines_mirror_those_of_the_open_and_then_an_open(
    tmp_path: Path, log: Log
) -> None:
    async with stage(tmp_path) as s:
        await s.join("kv-1", 1795)
        await s.create("kv", 1)
        await s.join("kv-2", 1796)
        [region] = s.term.env.model.regions
        await s.move("kv", region, "kv-2")
    move, close, assign = "pid=4", "pid=5 ppid=4 close:", "pid=6 ppid=4 assign:"
    assert without_times(log.grep("pid=5")) == [
        f"{close} RUNNABLE, begun by pid=4",
        f"{close} starts; rit=OPEN, location=kv-1,1795, target=kv-1, retain=false",
        f"{close} OPEN -> CLOSING at kv-1,1795 is stored, the close is sent next",
        f"{close} sent to kv-1,1795 with batch 2 of 1 operation",
        f"{close} kv-1,1795 reported closed",
        f"{close} CLOSING -> CLOSED from kv-1,1795 is stored",
        f"{close} CLOSED -> OFFLINE is stored",
        f"{close} SUCCESS, finished with SUCCESS",
    ]
    assert without_times(log.grep("pid=6")) == [
        f"{assign} RUNNABLE, begun by pid=4",
        f"{assign} starts; rit=OFFLINE, location=none, target=kv-2, retain=false",
        f"{assign} RUNNABLE, step queue done, next is dispatch",
        f"{assign} OFFLINE -> OPENING at kv-2,1796 is stored, the open is sent next",
        f"{assign} sent to kv-2,1796 with batch 1 of 1 operation",
        f"{assign} kv-2,1796 reported opened, sequence=20",
        f"{assign} OPENING -> OPEN at kv-2,1796 is stored",
        f"{assign} SUCCESS, finished with SUCCESS",
    ]
    assert without_times(log.grep(move)) == [
        "pid=4 move: RUNNABLE, submitted by User:ops",
        "pid=4 move: WAITING, step close done, children begun: pid=5",
        "pid=4 move: WAITING, step open done, children begun: pid=6",
        "pid=4 move: SUCCESS, finished with SUCCESS",
    ]
    assert len(log.whole("ppid=4 ")) == 16, "the search for the move finds its children, too"


async def test_a_mark_names_its_kind_and_its_server_or_region(tmp_path: Path, log: Log) -> None:
    async with stage(tmp_path) as s:
        await s.join("kv-1", 1795)
        await s.run(servers.MARK, servers.MARK_TASK.encode(servers.MarkTask(MarkKind.HOLD, "kv-1", until_ms=1)))
        await s.run(servers.MARK, servers.MARK_TASK.encode(servers.MarkTask(MarkKind.PIN, "17", "kv-1")))
        await s.run(servers.UNMARK, servers.MARK_TASK.encode(servers.MarkTask(MarkKind.PIN, "17")))
    assert without_times(log.whole("mark:")) == [
        "pid=1 mark: RUNNABLE, hold submitted by User:ops; server=kv-1, step store",
        "pid=1 mark: SUCCESS, finished with SUCCESS",
        "pid=2 mark: RUNNABLE, pin submitted by User:ops; region=17 server=kv-1, step store",
        "pid=2 mark: SUCCESS, finished with SUCCESS",
        "pid=3 unmark: RUNNABLE, pin submitted by User:ops; region=17, step remove",
        "pid=3 unmark: SUCCESS, finished with SUCCESS",
    ]


@pytest.mark.seed("S0-12", "S1-12", "S1-90", "S3-6", "S3-13", "S3-22", "S3-34")
@pytest.mark.parametrize(("fence", "after"), [("lease", "it is fenced by lease"), ("log", "its log is split")])
async def test_a_crash_is_frozen_fenced_split_released_and_reassigned_in_this_order(
    tmp_path: Path, log: Log, fence: str, after: str
) -> None:
    options = Options(lease_ms=500, startup_wait_ms=0, fence=fence)
    async with stage(tmp_path, options=options) as s:
        dies = await s.join("kv-1", 1795)
        await s.create("kv", 1)
        await s.join("kv-2", 1796)
        dies.kill()
        await s.until(lambda: len(s.term.env.model.servers) == 1)
    lines = log.whole("kv-1,1795")
    order = [
        "server kv-1,1795 is CRASHED with 1 region: no poll for 500 ms",
        "crash: RUNNABLE, submitted by regent",
        "crash: server kv-1,1795 is FENCED with 1 region",
        f"crash: server kv-1,1795 is RELEASED with 1 region: as {after}, they may go elsewhere",
        "assign: starts; rit=OPEN, location=kv-1,1795, target=kv-2, retain=false",
        "assign: OPEN -> ABNORMALLY_CLOSED from kv-1,1795 because its server crashed, and is fenced",
        "assign: ABNORMALLY_CLOSED -> OPENING at kv-2,1796 is stored, the open is sent next",
        "crash: server kv-1,1795 is GONE with 0 regions",
    ]
    found = [next(n for n, line in enumerate(lines) if part in line) for part in order]
    assert found == sorted(found)
    [crash] = {line.split()[0] for line in lines if " is FENCED " in line}
    [batch] = {line.split()[0] for line in log.whole(f"p{crash} assign_many: RUNNABLE")}
    [child] = {line.split()[0] for line in log.whole(f"p{batch} assign: RUNNABLE")}
    assert without_times(log.grep(child))[-1] == f"{child} p{batch} assign: SUCCESS, finished with SUCCESS"
    assert len(log.grep(child)) == 8


async def test_an_open_that_failed_is_a_warning_with_its_cause(tmp_path: Path, log: Log) -> None:
    async with stage(tmp_path) as s:
        member = await s.join("kv-1", 1795)
        member.fails = [protocol.FAILED_OPEN]
        await s.create("kv", 1)
    [line] = log.whole("reported failed_open")
    assert line.startswith("pid=3 ppid=2 assign: kv-1,1795 reported failed_open: the disk is full; table=kv region=kv#")


# -- rows


async def played(folder: Path, book: Book) -> Stage:
    """Plays a creation of two regions, a move and a crash."""
    async with stage(
        folder, lambda epoch: book.term(1, epoch, TermJournal), Options(lease_ms=500, startup_wait_ms=0)
    ) as s:
        dies = await s.join("kv-1", 1795)
        await s.create("kv", 2)
        await s.join("kv-2", 1796)
        region = min(s.term.env.model.regions)
        await s.move("kv", region, "kv-2")
        dies.kill()
        await s.until(lambda: len(s.term.env.model.servers) == 1)
    return s


async def test_each_event_is_a_row_and_no_row_breaks_an_invariant(tmp_path: Path) -> None:
    book = Book()
    s = await played(tmp_path, book)
    rows = book.read()
    assert list(judge(rows)) == []
    assert {row.cluster for row in rows} == {"regions"}
    assert (rows[0].kind, rows[-1].kind) == (Kind.CTL_ELECTED, Kind.CTL_RESIGNED)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    servers = [(row.server, row.from_state, row.to_state) for row in rows if row.kind == Kind.SERVER_STATE]
    assert servers == [
        ("kv-1", None, "ONLINE"),
        ("kv-2", None, "ONLINE"),
        ("kv-1", "ONLINE", "CRASHED"),
        ("kv-1", "CRASHED", "FENCED"),
        ("kv-1", "FENCED", "RELEASED"),
        ("kv-1", "RELEASED", "GONE"),
    ]
    tables = [(row.from_state, row.to_state, row.regions) for row in rows if row.kind == Kind.TABLE_STATE]
    assert tables == [(None, "CREATING", 0), ("CREATING", "ENABLED", 2)]
    new = [(row.region, row.start, row.end) for row in rows if row.start is not None]
    first, second = sorted(s.term.env.model.regions)
    assert new == [(first, "", "80000000"), (second, "80000000", "")]


async def test_the_rows_of_an_open_have_the_region_the_process_the_token_and_the_sequence(tmp_path: Path) -> None:
    book = Book()
    s = await played(tmp_path, book)
    region = max(s.term.env.model.regions)
    rows = [row for row in book.read() if row.region == region and row.kind == Kind.REGION_STATE]
    ends = [(row.to_state, row.server0, row.server, row.incarnation, row.token, row.sequence) for row in rows[-3:]]
    pid = rows[-1].pid
    assert ends == [
        ("ABNORMALLY_CLOSED", "kv-1", None, None, 4, 10),
        ("OPENING", None, "kv-2", 1796, pid, 10),
        ("OPEN", "kv-2", "kv-2", 1796, pid, 20),
    ]
    assert {row.why for row in rows[-3:]} == {"crash of kv-1,1795"}
    family = [row.kind for row in book.read() if pid is not None and row.of_family(pid)]
    assert Counter(family) == {
        Kind.PROC_STATE: 2,
        Kind.REGION_STATE: 4,
        Kind.REGION_DISPATCH: 1,
        Kind.REGION_REPORT: 1,
    }


async def test_each_row_has_a_sentence_for_operators(tmp_path: Path) -> None:
    book = Book()
    await played(tmp_path, book)
    sentences = [f"{entity(row)}: {sentence(row)}" for row in book.read()]
    first, second = 1001, 1002
    for wanted in (
        "server kv-1,1795: ONLINE: registered at kv-1:7000 (1.0)",
        "pid 1: table kv, CREATING -> ENABLED",
        f"pid 3 assign of pid 2: kv#{first} at kv-1,1795, OFFLINE -> OPENING: create_table",
        "server kv-1,1795: batch 1 of 2 operations",
        f"pid 4 assign of pid 2: kv#{second} at kv-1,1795, OPENING -> OPEN: create_table",
        "pid 3 assign of pid 2: kv-1,1795 reported opened",
        "server kv-1,1795: ONLINE -> CRASHED: no poll for 500 ms; it gets nothing any more until it is fenced",
    ):
        assert wanted in sentences


async def test_regions_in_bulk_have_rows_and_one_line_counts_them(tmp_path: Path, log: Log) -> None:
    book, many = Book(), TOGETHER_MAX + 20
    async with stage(tmp_path, lambda epoch: book.term(1, epoch, TermJournal)) as s:
        await s.join("kv-1", 1795)
        await s.create("kv", many)
    desk = Desk(tmp_path / "events", queue_rows_max=100_000)
    desk.journal.start()
    for entry in book.entries:
        desk.journal.put(entry)
    desk.journal.close()
    rows = [row for row in read(desk.folder) if isinstance(row, Row)]
    assert sum(row.kind == Kind.REGION_STATE and row.to_state == "OPEN" for row in rows) == many
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assigns = [row for row in rows if row.kind == Kind.PROC_STATE and row.procedure == "assign"]
    begun = [pid for row in assigns if row.from_state is None for pid in row.pids or ()]
    ended = [pid for row in assigns if row.to_state == "SUCCESS" for pid in row.pids or ()]
    reports = [row for row in rows if row.kind == Kind.REGION_REPORT]
    reported = [pid for row in reports for pid in row.pids or ()]
    assert len(begun) == many
    assert sorted(begun) == sorted(ended) == sorted(reported)
    assert len(assigns) + len(reports) < 12
    assert f"{many} assign of pid 2" in [entity(row) for row in assigns]
    assert f"RUNNABLE: {many} procedures begun by pid=2" in [sentence(row) for row in assigns]
    assert [row for row in rows if row.of_family(begun[0]) and row.kind == Kind.REGION_STATE and row.to_state == "OPEN"]
    assert list(judge(rows)) == []
    assert log.whole(" assign: ") == []
    told = log.whole("regions in bulk")
    assert len(told) == 1
    assert f"{many} x OPENING" in told[0]
    assert f"{many} x OPEN" in told[0]
    assert log.whole("pid=1 create_table: SUCCESS"), "the parts that are few have lines"


async def test_a_row_of_many_procedures_is_of_one_batch(tmp_path: Path) -> None:
    book = Book()
    async with stage(tmp_path, lambda epoch: book.term(1, epoch, TermJournal)) as s:
        await s.join("kv-1", 1795)
        await asyncio.gather(s.create("a", TOGETHER_MAX + 20), s.create("b", TOGETHER_MAX + 20))
    rows = book.read()
    tables = {row.pid: row.table for row in rows if row.kind == Kind.REGION_STATE and row.to_state == "OPEN"}
    many = [row for row in rows if row.pids and row.procedure == "assign"]
    assert {row.table for row in many} == {"a", "b"}
    for row in many:
        assert {tables[pid] for pid in row.pids or ()} == {row.table}


async def test_another_term_goes_on_with_the_journal(tmp_path: Path) -> None:
    book = Book()
    async with stage(tmp_path, lambda epoch: book.term(1, epoch, TermJournal)) as s:
        await s.join("kv-1", 1795)
        await s.create("kv", 1)
    async with stage(tmp_path, lambda epoch: book.term(2, epoch, TermJournal)) as s:
        await s.join("kv-1", 1795)
        await s.close("kv", min(s.term.env.model.regions))
    rows = book.read()
    assert [(row.ctl_id, row.ctl_epoch) for row in rows if row.kind == Kind.CTL_ELECTED] == [(1, 1), (2, 2)]
    assert list(judge(rows)) == []
