"""Runs a process as a child of this one: starts it, signals it, waits for it, with its output in a log file.

A child never outlives its parent. The kernel kills it when the thread that started it ends (PR_SET_PDEATHSIG), so
even a ``kill -9`` of the parent leaves nothing running. It has a session of its own, so Ctrl-C reaches the parent only.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

START_S_MAX: Final = 60.0
"""How long a process may take to become ready; a broker takes 1.4 to 8.5 s on two shared cores."""

STOP_S_MAX: Final = 60.0
"""How long SIGTERM may take before the process is killed."""

POLL_S: Final = 0.05
LOG_TAIL_LINES: Final = 30
PORT_LOWEST: Final = 10_240
PORT_TRIES_MAX: Final = 200
_PR_SET_PDEATHSIG: Final = 1


class ProcessFailed(RuntimeError):
    """A process ended or did not become ready; the message ends with the last lines of its log."""


class ChildProcess:
    """One process that can be started again and again with the same command, log file and ports.

    ``name`` is for messages; ``command`` is the whole argument list; output is appended to ``log``.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._env = {**os.environ, **(env or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0

    @property
    def running(self) -> bool:
        """Checks whether the process exists (a paused one does)."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """Returns the last exit code (negative: by that signal); None while it runs and before its first start."""
        return self._process.returncode if self._process is not None else None

    @property
    def pid(self) -> int:
        """Returns the process id; raises :class:`ProcessFailed` where the process does not run."""
        if self._process is None or self._process.returncode is not None:
            raise ProcessFailed(f"{self.name} is not running: start it first")
        return self._process.pid

    async def start(self, ready: Callable[[], Awaitable[bool]], within_s: float = START_S_MAX) -> float:
        """Starts the process and waits until ``ready`` returns True; returns the seconds it took."""
        if self.running:
            raise ProcessFailed(f"{self.name} is already running: stop or kill it first")
        began = time.monotonic()
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        parent = os.getpid()
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )
        try:
            await self._ready(ready, within_s)
        except BaseException:
            await self.kill()
            raise
        return time.monotonic() - began

    async def _ready(self, ready: Callable[[], Awaitable[bool]], within_s: float) -> None:
        async def ended_or_ready() -> bool:
            return not self.running or await ready()

        in_time = await poll(ended_or_ready, within_s)
        if not self.running:
            raise ProcessFailed(f"{self.name} ended while starting, with {self.exit_code}\n{self.log_tail()}")
        if not in_time:
            raise ProcessFailed(f"{self.name} was not ready within {within_s:g} s\n{self.log_tail()}")

    async def stop(self, within_s: float = STOP_S_MAX) -> float:
        """Sends SIGTERM and waits; raises :class:`ProcessFailed` after killing the process where that takes too long.

        Returns the seconds it took. Does nothing where it is not running; a paused process is continued first.
        """
        if not self.running:
            return 0.0
        began = time.monotonic()
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        if not await self.ended(within_s):
            await self.kill()
            raise ProcessFailed(f"{self.name} did not end within {within_s:g} s of SIGTERM\n{self.log_tail()}")
        return time.monotonic() - began

    async def kill(self) -> None:
        """Sends SIGKILL and waits until the process is gone. Does nothing where it is not running."""
        if self._process is not None and self.running:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def pause(self) -> None:
        """Sends SIGSTOP: the process freezes, its sockets stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Sends SIGCONT."""
        self._signal(signal.SIGCONT)

    async def ended(self, within_s: float) -> bool:
        """Waits for the process to end by itself; False where it still runs after ``within_s``."""
        if self._process is None:
            return True
        try:
            await asyncio.wait_for(self._process.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def log_text(self) -> str:
        """Returns the process's output since its last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_has(self, pattern: str) -> bool:
        """Checks whether a line written since the last start matches the regular expression."""
        return re.search(pattern, self.log_text()) is not None

    def log_tail(self) -> str:
        """Returns the last lines of the log, for error messages."""
        lines = self.log_text().splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"last lines of {self.log}:", *lines])

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            with suppress(ProcessLookupError):  # it has ended, and its exit code is not read yet
                os.kill(self.pid, number)


async def poll(check: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    """Calls ``check`` until it returns True; False where it did not within the time."""
    deadline = time.monotonic() + within_s
    while not await check():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True


def free_port(random: Random | None = None) -> int:
    """Returns a free TCP port on 127.0.0.1, below the range of outgoing connections.

    A port inside that range could be taken by any client's connection while its server is down. And a client that
    retries there can even connect to itself.
    """
    highest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    draw = random or Random()
    for _ in range(PORT_TRIES_MAX):
        port = draw.randrange(PORT_LOWEST, highest)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ProcessFailed(f"no free port found between {PORT_LOWEST} and {highest} in {PORT_TRIES_MAX} tries")


async def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Checks whether something accepts connections on the port now."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


_LIBC: Final = ctypes.CDLL(None)  # loaded here: between fork and exec as little as possible may happen


def _die_with(parent: int) -> None:
    """Requests SIGKILL at the parent's death, in the child before exec, and checks that it has not died yet."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
