"""Runs the admin endpoint as a child of ``regent run``: restarts it when it ends, ends it with the daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.process.commands import OF_SYSTEMD

log = logging.getLogger("regent.admin")

PARENT: Final = "REGENT_PARENT"
"""Variable with the pid of the process that the child must not outlive."""
PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 30.0
SETTLED_S: Final = 60.0
"""Life after which the pauses begin anew: the end of such a child has a new cause."""
STOP_S_MAX: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1


async def keep_endpoint(config: Path | None) -> None:
    """Runs ``regent admin-endpoint`` with the same settings until cancelled, then stops it."""
    command = [sys.executable, "-P", "-m", "cli.main", "admin-endpoint"]
    if config is not None:
        command += ["--config", str(config)]
    env = {name: value for name, value in os.environ.items() if name not in OF_SYSTEMD} | {PARENT: str(os.getpid())}
    pause_s = PAUSE_S
    while True:
        began_s = time.monotonic()
        code = await _one_life(command, env)
        lived_s = time.monotonic() - began_s
        if lived_s > SETTLED_S:
            pause_s = PAUSE_S
        log.error("the admin endpoint ended with %d; it is started again in %.0f s", code, pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


async def _one_life(command: list[str], env: dict[str, str]) -> int:
    """Runs the child from start to end, with the daemon's standard output and error; returns its exit code."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, env=env, start_new_session=True
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            await asyncio.shield(_stop(process))


async def _stop(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), STOP_S_MAX)
        return
    with suppress(ProcessLookupError):
        process.kill()


def die_with_parent() -> None:
    """Makes the kernel stop this child when the daemon dies; does nothing in a process without such a parent."""
    parent = os.environ.pop(PARENT, None)
    if parent is None:
        return
    import ctypes  # not in the daemon, which needs none of it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGTERM)
