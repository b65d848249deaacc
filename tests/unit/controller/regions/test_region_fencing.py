"""The command that fences a crashed server: its runs, its end, its time, and the crash that waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from controller.regions import fencing
from controller.regions.environment import Options
from controller.regions.fencing import (
    BOTH,
    COMMAND,
    LEASE,
    LOG,
    RUNS_MAX,
    Fencing,
    LeaseAndFence,
    NotFenced,
    fences_in,
    run_command,
)
from controller.regions.procedures import crash
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Server
from state_machines.regions.states import ServerState
from tests.kit.deadlines import eventually
from tests.kit.regions.term import Log, Stage, stage

WAITS = "sleep 600 & cut -d ' ' -f 5 /proc/$$/stat >$0; sleep 600"
"""A shell's command; it begins at once, also on a busy machine, and writes the group of its processes into a file."""
FENCES = """
import pathlib, sys
folder, name, incarnation, address = sys.argv[1:]
with open(f"{folder}/runs", "a") as runs:
    print(name, incarnation, address, file=runs)
if not pathlib.Path(folder, "works").exists():
    sys.exit("the rack does not respond")
"""

LASTS = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "run").touch()
while not (folder / "works").exists():
    time.sleep(0.05)
"""


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


def group_of(file: Path) -> int:
    return int(file.read_text()) if file.exists() and file.read_text() else 0


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_command_that_ends_with_0_has_fenced() -> None:
    await run_command(("/bin/sh", "-c", '[ "$1 $2" = "kv-1 7" ]', "fence", "kv-1", "7"), 60)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/bin/sh", "-c", "echo no power >&2; exit 3"), "it ended with 3; it said: no power"),
        (("/bin/sh", "-c", "kill -9 $$"), "it ended with -9"),
    ],
)
async def test_any_other_end_is_a_cause(command: tuple[str, ...], why: str) -> None:
    with pytest.raises(NotFenced) as found:
        await run_command(command, 60)
    assert str(found.value) == why


async def test_output_without_an_end_is_cut_to_its_last_bytes() -> None:
    with pytest.raises(NotFenced) as found:
        await run_command(("/bin/sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo END; exit 1"), 60)
    assert str(found.value).endswith("xxxEND")
    assert len(str(found.value)) < 600


async def test_output_goes_to_no_file_which_could_grow_without_a_bound() -> None:
    await run_command(("/bin/sh", "-c", "[ -p /dev/fd/1 ] && [ -p /dev/fd/2 ]"), 60)


async def test_a_child_that_keeps_the_output_open_delays_nothing(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    try:
        with pytest.raises(NotFenced, match="it ended with 3; it said: early"):
            await run_command(("/bin/sh", "-c", 'echo early; sleep 600 & echo $! > "$0"; exit 3', str(pid)), 60)
    finally:
        os.kill(group_of(pid), signal.SIGKILL)


async def test_a_command_that_is_late_is_killed_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(NotFenced, match=r"longer than 2 s, and was killed"):
        await run_command(("/bin/sh", "-c", WAITS, str(tmp_path / "group")), 2)
    group = group_of(tmp_path / "group")
    assert group not in (0, os.getpgrp())
    await eventually(lambda: is_gone(group))


@pytest.mark.parametrize("program", ["/nowhere", "/etc/hostname"])
async def test_a_program_that_cannot_be_run_is_an_error(program: str) -> None:
    with pytest.raises(OSError, match=program):
        await run_command((program,), 60)


def options(folder: Path, text: str, **more: object) -> Options:
    command = (sys.executable, script(folder, text), str(folder))
    return Options(lease_ms=500, startup_wait_ms=0, fence=COMMAND, fence_command=command, **more)  # type: ignore[arg-type]


def crash_of(found: Stage) -> Record | None:
    return next((one for one in found.term.engine.records.values() if one.kind == crash.NAME), None)


def waits(record: Record) -> bool:
    return record.kind == crash.NAME and record.state is State.WAITING_TIMEOUT


async def killed(found: Stage) -> None:
    """Kills the only server with regions, and lets another one come."""
    await found.join("kv-1", 1795)
    await found.create("t", 3)
    found.members[0].kill()
    await found.join("kv-2")


async def test_a_crash_waits_until_the_command_has_succeeded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, runs = Log(caplog), tmp_path / "runs"
    async with stage(tmp_path, options=options(tmp_path, FENCES)) as found:
        await killed(found)

        def has_failed_twice() -> bool:
            return (record := crash_of(found)) is not None and record.attempts >= 2

        await found.until(has_failed_twice)
        record = crash_of(found)
        assert record is not None
        assert record.step == crash.FENCE
        assert record.error == "the fence command failed: it ended with 1; it said: the rack does not respond"
        regions = found.term.env.model.regions.values()
        assert {str(one.server) for one in regions} == {"kv-1,1795"}
        (tmp_path / "works").touch()
        await found.until(lambda: {str(one.server) for one in regions} == {"kv-2,1"})
    assert set(runs.read_text().splitlines()) == {"kv-1 1795 kv-1:7000"}
    [line, *_] = log.whole("is not fenced by the command")
    assert "the rack does not respond" in line
    assert "correct regions.fence_command" in line


async def test_a_crash_begun_anew_goes_on_at_the_end_of_the_run_that_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path, options=options(tmp_path, LASTS)) as found:
        changes: list[tuple[str, str]] = []
        monkeypatch.setattr(
            found.term.env.journal, "server", lambda server, change, why, *more, **told: changes.append(change)
        )
        await killed(found)
        await found.until((tmp_path / "run").exists)
        bypassed = crash_of(found)
        assert bypassed is not None
        assert await found.term.engine.bypass(bypassed.pid)
        await found.until(lambda: any(waits(one) for one in found.term.engine.live() if one.pid != bypassed.pid))
        (tmp_path / "works").touch()
        regions = found.term.env.model.regions.values()
        await found.until(lambda: {str(one.server) for one in regions} == {"kv-2,1"})
        assert not found.term.env.fencing._runs, "what is durable is not kept"
        assert [before for before, after in changes if after == "CRASHED"] == ["ONLINE", "CRASHED"]


async def test_without_a_command_a_crash_waits_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log(caplog)
    async with stage(tmp_path, options=Options(lease_ms=500, startup_wait_ms=0, fence=COMMAND)) as found:
        await killed(found)
        await found.until(lambda: bool(log.whole("this daemon has no regions.fence_command")))
        assert {str(one.server) for one in found.term.env.model.regions.values()} == {"kv-1,1795"}


async def test_a_term_that_ends_kills_the_command(tmp_path: Path) -> None:
    command = ("/bin/sh", "-c", WAITS, str(tmp_path / "group"))
    wanted = Options(lease_ms=500, startup_wait_ms=0, fence=COMMAND, fence_command=command)
    async with stage(tmp_path, options=wanted) as found:
        await killed(found)
        await found.until(lambda: bool(group_of(tmp_path / "group")))
    group = group_of(tmp_path / "group")
    async with asyncio.timeout(60):
        await eventually(lambda: is_gone(group))


@pytest.mark.parametrize(
    ("former", "present", "united"),
    [
        (LEASE, LOG, "lease+log"),
        (COMMAND, LEASE, "lease+command"),
        ("lease+log", COMMAND, "lease+log+command"),
        (BOTH, COMMAND, "lease+log+command"),
        (COMMAND, COMMAND, COMMAND),
    ],
)
def test_of_two_settings_each_fence_counts(former: str, present: str, united: str) -> None:
    assert LeaseAndFence(1_000, former).united(LeaseAndFence(3_000, present)) == LeaseAndFence(3_000, united)


async def test_a_fence_that_changes_under_servers_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(caplog)
    async with stage(tmp_path, options=Options(lease_ms=60_000, startup_wait_ms=0, fence=LOG)) as found:
        await found.join("kv-1")
    for fence in (LOG, LEASE):
        assert not log.whole("regions.fence is")
        async with stage(tmp_path, options=Options(lease_ms=60_000, startup_wait_ms=0, fence=fence)):
            pass
    [line] = log.whole("regions.fence is")
    assert line.startswith('regions.fence is "lease" and was "log", under running servers (kv-1,1): one that relies')
    assert line.endswith('set it back to "log", stop all servers, and change it then')


def test_a_fence_that_this_daemon_lacks_lets_no_region_go() -> None:
    with pytest.raises(ValueError, match="start a newer one"):
        fences_in("lease+quorum")


class Commands:
    """Commands that run until a test ends them. ``begun``: their words, in order; ``running``: by server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
        self.begun: list[tuple[Sequence[str], float]] = []
        self.running: dict[str, asyncio.Future[None]] = {}
        self.woken: list[int] = []
        self.fencing = Fencing(command, 7_000, self.woken.append)
        monkeypatch.setattr(fencing, "run_command", self._run)

    async def _run(self, words: Sequence[str], timeout_s: float) -> None:
        self.begun.append((words, timeout_s))
        name = words[-3]
        self.running[name] = asyncio.get_running_loop().create_future()
        try:
            await self.running[name]
        finally:
            del self.running[name]

    async def asked(self, server: Server, pid: int) -> bool:
        """Asks whether a process is fenced; the run that begins, if any, is under way afterwards."""
        found = self.fencing.has_fenced(server, pid)
        await settled()
        return found

    async def ends(self, server: Server, error: Exception | None = None) -> None:
        """Ends the command of a server."""
        future = self.running[server.name]
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def process(name: str, incarnation: int = 3) -> Server:
    return Server(name, incarnation, f"{name}:1", "", ServerState.CRASHED, {})


async def test_a_process_is_fenced_by_one_run_until_that_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    found, a = Commands(monkeypatch, "fence", "--now"), process("a")
    for pid in (8, 9):
        assert not await found.asked(a, pid)
    assert found.begun == [(("fence", "--now", "a", "3", "a:1"), 7.0)]
    await found.ends(a)
    assert found.woken == [9], "the procedure that waited last"
    for _ in range(2):
        assert await found.asked(a, 9)
    assert len(found.begun) == 1
    found.fencing.forget(a.key)
    found.fencing.forget(a.key)
    assert not await found.asked(a, 10)
    assert len(found.begun) == 2
    await found.ends(a)
    assert found.woken == [9, 10]


@pytest.mark.parametrize("error", [NotFenced("it ended with 1"), OSError("no such program")])
async def test_a_failed_run_is_told_once_and_begins_anew(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    found, a = Commands(monkeypatch, "fence"), process("a")
    for life in range(3):
        assert not await found.asked(a, 9)
        assert len(found.begun) == life + 1
        await found.ends(a, error)
        assert found.woken == [9] * (life + 1)
        with pytest.raises(NotFenced, match=str(error)):
            found.fencing.has_fenced(a, 9)
    assert not await found.asked(a, 9)
    await found.ends(a)
    assert await found.asked(a, 9)


async def test_each_process_has_a_run_of_its_own_and_wakes_its_own_procedure(monkeypatch: pytest.MonkeyPatch) -> None:
    found, a, later = Commands(monkeypatch, "fence"), process("a"), process("a", 4)
    assert not await found.asked(a, 1)
    await found.ends(a)
    assert not await found.asked(later, 2)
    assert [words[-2] for words, _ in found.begun] == ["3", "4"]
    assert await found.asked(a, 1)
    await found.ends(later, NotFenced("it ended with 1"))
    assert found.woken == [1, 2]
    assert await found.asked(a, 1), "the failure of one run says nothing about another one"


async def test_some_commands_run_at_a_time_and_the_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Commands(monkeypatch, "fence")
    some = [process(f"s{n}") for n in range(RUNS_MAX + 2)]
    for pid, one in enumerate(some):
        assert not await found.asked(one, pid)
    assert len(found.running) == RUNS_MAX
    await found.ends(some[0])
    await found.ends(some[1], NotFenced("it ended with 1"))
    assert len(found.begun) == RUNS_MAX + 2
    assert found.woken == [0, 1]


async def test_without_a_command_no_process_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    found, a = Commands(monkeypatch), process("a")
    assert not await found.asked(a, 1)
    with pytest.raises(NotFenced, match="fence_command"):
        found.fencing.has_fenced(a, 1)
    assert (found.begun, found.woken) == ([], [1])


async def test_the_end_of_a_term_ends_all_commands_before_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Commands(monkeypatch, "fence")
    some = [process(f"s{n}") for n in range(RUNS_MAX + 2)]
    for pid, one in enumerate(some):
        await found.asked(one, pid)
    await asyncio.wait_for(found.fencing.stop(), 60)
    assert found.running == {}
    assert len(found.begun) == RUNS_MAX, "none begins in the place of another one"
    runs: Any = found.fencing._runs.values()
    assert all(one.cancelled() for one in runs)


# -- commands of the machine


async def test_a_command_that_ignores_a_request_to_end_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    stubborn = ("/bin/sh", "-c", 'trap "" TERM; echo $$ > "$0.new"; mv "$0.new" "$0"; sleep 600', str(file))
    run = asyncio.ensure_future(run_command(stubborn, 600))
    await eventually(file.exists)
    group = int(file.read_text())
    try:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert not is_alive(group), "it goes on after its run"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Checks whether a process runs; one that has ended may wait for its parent."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_runs_that_end_in_any_way_leave_no_open_file() -> None:
    async def runs() -> None:
        for command, timeout_s in ((("/bin/true",), 60), (("/bin/false",), 60), (("/bin/sleep", "600"), 0.01)):
            with suppress(NotFenced):
                await run_command(command, timeout_s)
        with pytest.raises(OSError, match="nowhere"):
            await run_command(("/nowhere",), 60)

    await runs()
    before = open_files()
    for _ in range(2):
        await runs()
    assert open_files() <= before
