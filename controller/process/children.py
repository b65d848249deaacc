"""Runs a Python module as a child of the daemon: bytes to its standard input, one answer from its standard output.

All waits for it are on threads, so that neither a start nor a slow child stops the loop.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio
import anyio.to_thread

from controller.process.commands import environment

SAID_CHARACTERS_MAX: Final = 500
KILL_S: Final = 5.0
"""Longest wait for the end of a child that was killed."""


def command_of(module: str) -> tuple[str, ...]:
    """Returns the command that runs a module."""
    return sys.executable, "-P", "-m", module


class Child:
    """A child that runs. It ends by itself once its input has ended, or is killed by :meth:`end`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str]) -> Child:
        """Starts it; raises ``OSError``."""

        def started() -> subprocess.Popen[bytes]:
            pipe = subprocess.PIPE
            return subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment(), start_new_session=True
            )

        return cls(await anyio.to_thread.run_sync(started))

    async def send(self, message: Callable[[], bytes]) -> None:
        """Sends what ``message`` makes, on a thread as well; raises ``BrokenPipeError`` where the child has ended."""
        pipe = self._process.stdin
        assert pipe is not None

        def written() -> None:
            pipe.write(message())
            pipe.flush()

        await anyio.to_thread.run_sync(written, abandon_on_cancel=True)

    async def answer(self) -> tuple[bytes, str]:
        """Ends its input, and waits for its end; returns its output, and how it ended with its last words."""
        out, said = await anyio.to_thread.run_sync(self._ended, abandon_on_cancel=True)
        words = " ".join(said.decode(errors="replace").split())[-SAID_CHARACTERS_MAX:]
        how = f"ended with {self._process.returncode}"
        return out, f"{how}; it said: {words}" if words else how

    def _ended(self) -> tuple[bytes, bytes]:
        with suppress(BrokenPipeError):
            return self._process.communicate()
        return self._process.communicate()

    async def end(self) -> None:
        """Kills it where it still runs, and closes its pipes."""
        with suppress(ProcessLookupError):
            self._process.kill()
        with anyio.move_on_after(KILL_S):
            await anyio.to_thread.run_sync(self._close, abandon_on_cancel=True)

    def _close(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
