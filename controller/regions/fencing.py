"""Runs the operator's command that fences crashed processes: beside the engine, for a bounded time, without a shell.

A daemon that dies meanwhile leaves its command running, and the next daemon runs it again: it must be idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from controller.process.commands import Output, environment, kill_group
from state_machines.regions.model import Server

log = logging.getLogger("regent.regions")

RUNS_MAX: Final = 16
"""Commands that run at a time."""


class NotFenced(Exception):
    """The command did not fence a process; the text has the cause."""


async def run_command(command: Sequence[str], timeout_s: float) -> None:
    """Runs a command; raises :class:`NotFenced` unless it exits with 0 in time, OSError where it cannot be run.

    Where it does not, or the caller is cancelled, its whole process group is killed.
    """
    with Output() as said:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=said.end, stderr=said.end, start_new_session=True,
            env=environment(),
        )  # fmt: skip
        try:
            async with asyncio.timeout(timeout_s):
                code = await process.wait()
        except TimeoutError:
            raise NotFenced(f"it ran for longer than {timeout_s:g} s, and was killed{said.text()}") from None
        finally:
            if process.returncode is None:
                await kill_group(process)
        if code:
            raise NotFenced(f"it ended with {code}{said.text()}")


class Fencing:
    """Runs the command once at a time for each process. ``wake``: runs the procedure that waits for its end."""

    def __init__(self, command: tuple[str, ...], timeout_ms: int, wake: Callable[[int], None]) -> None:
        self._command, self._timeout_s = command, timeout_ms / 1000
        self._wake = wake
        self._free = asyncio.Semaphore(RUNS_MAX)
        self._runs: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._waiting: dict[tuple[str, int], int] = {}
        """The procedures that waited last: an operator may have ended the one that began a run."""

    def has_fenced(self, server: Server, pid: int) -> bool:
        """Returns whether the command has fenced a process; begins a run where there is none.

        Raises :class:`NotFenced` once for each run that failed: the next call begins another one.
        """
        run = self._runs.get(server.key)
        if run is None:
            run = self._runs[server.key] = asyncio.create_task(self._run(server), name=f"fence of {server}")
            run.add_done_callback(lambda _: self._ended(server.key))
        if not run.done():
            self._waiting[server.key] = pid
            return False
        if run.exception() is not None:
            del self._runs[server.key]
        run.result()
        return True

    def forget(self, key: tuple[str, int]) -> None:
        """Forgets that a process is fenced, once that is durable."""
        self._runs.pop(key, None)

    def _ended(self, key: tuple[str, int]) -> None:
        if (pid := self._waiting.pop(key, None)) is not None:
            self._wake(pid)

    async def stop(self) -> None:
        """Kills the commands that run."""
        for run in self._runs.values():
            run.cancel()
        await asyncio.gather(*self._runs.values(), return_exceptions=True)

    async def _run(self, server: Server) -> None:
        async with self._free:
            try:
                if not self._command:
                    raise NotFenced("this daemon has no regions.fence_command")
                words = (*self._command, server.name, str(server.incarnation), server.address)
                log.info("server %s: the fence command begins, for %g s at most", server, self._timeout_s)
                await run_command(words, self._timeout_s)
            except (NotFenced, OSError) as failed:
                log.warning(
                    "server %s is not fenced by the command, so its regions wait: %s; the command runs again soon: "
                    "have it exit with 0 once this process can write nothing, or correct regions.fence_command",
                    *(server, failed),
                )
                raise NotFenced(str(failed)) from failed
