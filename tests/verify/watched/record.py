"""Causes every fault on one stage and keeps the samples of each: ``python -m tests.verify.watched.record``.

Names of faults record these alone, and add to the run that the folder holds: so a run can be made in parts.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.verify.watched.faults import FAULTS, Fault
from tests.verify.watched.file_faults import disk
from tests.verify.watched.mending import restored
from tests.verify.watched.stage import Watched, watched

FOLDER: Final = Path("build", "watched").absolute()
BEFORE_S: Final = 20.0
STEADY_S: Final = 20.0
"""How long a recording goes on after the fault is there, or is over."""
SEEN: Final = '{__name__=~"up|regent_.+|kafka_controller_.+",job="regent"}'


async def main(names: list[str]) -> None:
    """Records the named faults, or all."""
    wanted = [fault for fault in FAULTS if not names or fault.__name__ in names]
    began_s = time.time()
    async with watched(FOLDER) as s:
        with ExitStack() as disks:
            await _small_disks(s, disks)
            await asyncio.sleep(BEFORE_S)
            for fault in wanted:
                try:
                    await _record(s, fault)
                except Exception:
                    traceback.print_exc()
                    await restored(s)
            await asyncio.sleep(STEADY_S)  # the pictures end where all is well
            _write("run.json", {"begin": _begun(began_s, names), "end": time.time()})


def _begun(now_s: float, names: list[str]) -> float:
    """Returns the begin of the run: of the one before where this call adds to it."""
    file = FOLDER / "run.json"
    return float(json.loads(file.read_text(encoding="utf-8"))["begin"]) if names and file.exists() else now_s


async def _record(s: Watched, fault: Fault) -> None:
    """Records one fault; prints an error, so that the next one follows."""
    name = fault.__name__
    begin_s = time.time()
    await asyncio.sleep(BEFORE_S)
    async with fault(s):
        await asyncio.sleep(STEADY_S)
        await _status(s, name)
        end_s = time.time()
        series = await s.prometheus.query(f"{SEEN}[{end_s - begin_s:.0f}s]", time=end_s)
        firing = await s.prometheus.firing()
        _write(f"{name}.json", {"begin": begin_s, "end": end_s, "series": series})
        print(f"{name}: {end_s - begin_s:.0f} s, {len(series)} series, firing: {sorted(firing)}", flush=True)
    print(f"{name}: mended {time.time() - end_s:.0f} s later", flush=True)


async def _status(s: Watched, name: str) -> None:
    """Keeps what ``regent status`` prints on a terminal, where a daemon is active."""
    for daemon in s.daemons.values():
        if daemon.running and await daemon.is_in("active"):
            command = [sys.executable, "-m", "cli.main", "status", "--server", str(daemon.socket)]
            made = await asyncio.create_subprocess_exec(
                *command, env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}, stdout=subprocess.PIPE
            )
            printed, _ = await made.communicate()
            (FOLDER / f"{name}.status").write_bytes(printed)


async def _small_disks(s: Watched, disks: ExitStack) -> None:
    """Gives each journal a disk of its own that can be filled."""
    for daemon in s.daemons.values():
        await daemon.stop()
        disks.enter_context(disk(daemon.journal))
    for daemon, mode in zip(s.daemons.values(), ("active", "standby"), strict=True):
        await daemon.boot(mode)


def _write(name: str, content: dict[str, Any]) -> None:
    (FOLDER / name).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
