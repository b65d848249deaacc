"""The process on its machine: a loop that stands still ends it, systemd is notified, and clocks agree."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.process.clock import wall_ms
from controller.process.watchdogs import SESSION_FRACTION, STALLED_EXIT, TICK_S, ServiceManager, StallGuard
from tests.kit.deadlines import WITHIN_S, in_exact_time
from tests.kit.kafka.parts import Clock

STALLS = """
import asyncio, signal, time
from controller.process.watchdogs import StallGuard

async def main():
    guard = StallGuard(0.25)
    guard.start()
    ticking = asyncio.create_task(guard.tick())
    await asyncio.sleep(0)
    {act}
    await asyncio.sleep(20)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["blocked", "stopped"])
def test_a_process_whose_loop_stands_still_ends_with_the_stacks_of_its_threads(how: str) -> None:
    """Otherwise a frozen daemon's session would live on: another thread sends its heartbeats."""
    program = STALLS.format(act="time.sleep(20)" if how == "blocked" else "signal.raise_signal(signal.SIGSTOP)")
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as child:
        if how == "stopped":
            _, state = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(state)
            time.sleep(0.6)
            os.kill(child.pid, signal.SIGCONT)
        _, errors = child.communicate(timeout=100)
    assert child.returncode == STALLED_EXIT
    for text in ("the event loop stood still for", "controller.loop_stall_ms_max", "Thread MainThread:"):
        assert text in errors


class Exited(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records exit codes instead of ending the process."""
    found: list[int] = []

    def leave(code: int) -> None:
        found.append(code)
        raise Exited if threading.current_thread() is threading.main_thread() else SystemExit

    monkeypatch.setattr("controller.process.watchdogs.os._exit", leave)
    return found


@pytest.mark.parametrize(("stood_s", "ends"), [(0.9, False), (1.0, False), (1.01, True)])
def test_the_loop_may_stand_still_up_to_the_limit(stood_s: float, ends: bool, exits: list[int]) -> None:
    @in_exact_time
    async def play() -> None:
        clock, lags, words = Clock(), list[float](), list[str]()
        guard = StallGuard(1.0, clock)
        guard.on_lag, guard.last_words = lags.append, words.append
        clock.now_s += 60.0
        assert guard.stalled_s() == 0.0, "a slow start is no stall"
        ticking = asyncio.create_task(guard.tick())
        await asyncio.sleep(TICK_S / 2)
        clock.now_s += stood_s
        assert guard.stalled_s() == pytest.approx(stood_s)
        await asyncio.sleep(TICK_S)
        assert lags == pytest.approx([0.0, stood_s - TICK_S])
        assert guard.longest_s == pytest.approx(stood_s - TICK_S)
        assert (exits, len(words)) == (([STALLED_EXIT], 1) if ends else ([], 0))
        ticking.cancel()
        await asyncio.wait({ticking})
        assert ends == (not ticking.cancelled() and isinstance(ticking.exception(), Exited))

    play()


@pytest.mark.parametrize(
    ("session_s", "limit_s"),
    [(18.0, 6.0), (12.01, 6.0), (12.0, SESSION_FRACTION * 12.0), (4.0, 1.8), (1.0, 0.45)],
)
def test_the_limit_is_less_than_half_of_the_granted_session_timeout(session_s: float, limit_s: float) -> None:
    guard = StallGuard(6.0)
    for _ in range(2):
        guard.within(session_s)
        assert guard.limit_s == pytest.approx(limit_s)
        assert guard.limit_s < session_s / 2
        guard.within(18.0)
        assert guard.limit_s == 6.0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_loop_and_thread_that_both_find_a_stall_write_one_line(
    exits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.process.watchdogs.LAST_WORDS_S_MAX", 0.01)
    clock, words, thread_ended = Clock(), list[str](), threading.Event()
    guard = StallGuard(0.01, clock)

    def last_words(text: str) -> None:
        words.append(text)
        guard.start()
        before = threading.active_count()
        while threading.active_count() >= before and not exits:
            thread_ended.wait(0.01)

    async def play() -> None:
        guard.last_words = last_words
        ticking = asyncio.create_task(guard.tick())
        await asyncio.sleep(0)
        clock.now_s += 1.0
        with pytest.raises(Exited):
            await ticking

    asyncio.run(play())
    assert len(words) == 1
    assert exits == [STALLED_EXIT] * 2


async def test_a_loop_that_ended_in_order_is_no_longer_watched(exits: list[int]) -> None:
    """Covers the last seconds of a process, such as HTTP's graceful stop."""
    clock = Clock()
    guard = StallGuard(0.02, clock)
    guard.last_words = lambda _: None
    ticking = asyncio.create_task(guard.tick())
    await asyncio.sleep(0)
    guard.start()
    [watcher] = [thread for thread in threading.enumerate() if thread.name == "stall-guard"]
    ticking.cancel()
    await asyncio.wait({ticking})
    clock.now_s += 10.0
    watcher.join(WITHIN_S)
    assert not watcher.is_alive()
    assert exits == []


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Returns systemd's socket, and the value of NOTIFY_SOCKET."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@regent-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1))
        receiver.settimeout(5)
        yield receiver, name


def test_each_notification_has_its_assignments(manager: tuple[socket.socket, str]) -> None:
    receiver, name = manager
    service = ServiceManager({"NOTIFY_SOCKET": name})
    service.ready("standby")
    service.alive()
    service.status("active with epoch 5")
    service.stopping("handing back")
    assert [receiver.recv(200) for _ in range(4)] == [
        b"READY=1\nSTATUS=standby",
        b"WATCHDOG=1",
        b"STATUS=active with epoch 5",
        b"STOPPING=1\nSTATUS=handing back",
    ]
    service.reloading()
    first, second = receiver.recv(200).split(b"\n")
    assert first == b"RELOADING=1"
    assert int(second.removeprefix(b"MONOTONIC_USEC=")) > 0
    service.reloaded()
    assert receiver.recv(200) == b"READY=1"


def test_a_missing_or_full_socket_of_systemd_blocks_no_notification(tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).alive()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        service = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        for _ in range(2_000):
            service.alive()


def test_without_systemd_no_notification_is_sent() -> None:
    service = ServiceManager({})
    service.ready("standby")
    assert service.watchdog_s is None


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "1"}, 1e-6),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_interval_is_that_of_this_process(environ: dict[str, str], seconds: float | None) -> None:
    assert ServiceManager(environ).watchdog_s == seconds


def test_the_wall_clock_counts_milliseconds_since_1970() -> None:
    before_s = time.time()
    assert before_s * 1000 - 1 <= wall_ms() <= time.time() * 1000 + 1
