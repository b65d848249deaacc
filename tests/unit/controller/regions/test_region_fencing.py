"""The command that fences a crashed server: its end, its time, its children, and the crash that waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from controller.regions.environment import Options
from controller.regions.fencing import NotFenced, run_command
from controller.regions.kinds import crash
from controller.regions.regime import BOTH, COMMAND, LEASE, LOG, Regime, fences_in
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.kit.polling import eventually
from tests.kit.regions_kit import Log, Stage, stage

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
    async with asyncio.timeout(10):
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
    assert Regime(1_000, former).united(Regime(3_000, present)) == Regime(3_000, united)


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
