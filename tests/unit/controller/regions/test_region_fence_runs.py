"""Runs of the fence command: one for each process, anew after a failure, some at a time, and none after the term."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from controller.regions import fencing
from controller.regions.fencing import RUNS_MAX, Fencing, NotFenced, run_command
from state_machines.regions.model import Server
from state_machines.regions.states import ServerState
from tests.kit.polling import eventually


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
    await asyncio.wait_for(found.fencing.stop(), 10)
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
