"""Ends commands that the daemon has started, each in a session of its own, and keeps their last words.

Commands get the daemon's environment without its settings: these have the credentials of ZooKeeper.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from configs.loading import is_setting

KILL_S: Final = 5.0
"""Longest wait for the end of a command that was killed."""
SAID_BYTES_MAX: Final = 500
"""Bytes of a command's output that a cause has: the last ones."""
PIPE_BYTES: Final = 64 * 1024
"""Bytes that a pipe holds on Linux."""
OF_SYSTEMD: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
"""Variables by which a process of its own reports to systemd."""


def environment() -> dict[str, str]:
    """Returns the environment of commands."""
    return {name: value for name, value in os.environ.items() if not is_setting(name) and name not in OF_SYSTEMD}


async def start(*command: str, **streams: Any) -> asyncio.subprocess.Process:
    """Starts a command in a session of its own; where the caller is cancelled meanwhile, its process group is killed.

    asyncio would kill the command alone, and wait as long as children of it hold its output open.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(*command, start_new_session=True, env=environment(), **streams)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            await kill_group(await starting)
        raise


async def kill_group(process: asyncio.subprocess.Process) -> None:
    """Kills a command and the processes that it has started, and waits for its end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_S):
            await process.wait()


class Output:
    """Reads a command's output from a pipe, and keeps its last bytes. ``end``: of the pipe, for the command.

    Children that outlive the command may hold the pipe open, so nothing waits for its end.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ours, self.end = os.pipe()
        self._last = b""

    def __enter__(self) -> Output:
        os.set_blocking(self._ours, False)
        self._loop.add_reader(self._ours, self._read)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._loop.remove_reader(self._ours)
        os.close(self._ours)
        os.close(self.end)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            self._last = (self._last + os.read(self._ours, PIPE_BYTES))[-SAID_BYTES_MAX:]

    def text(self) -> str:
        """Returns the last words as the end of a cause."""
        self._read()
        text = " ".join(self._last.decode(errors="replace").split())
        return f"; it said: {text}" if text else ""
