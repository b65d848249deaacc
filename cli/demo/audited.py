"""Ends a demo with the pipeline: merges the journal, audits it and makes a report, each by its command."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from cli.demo.process import SESSION_MS
from controller.kafka.snapshots.writer import folder_in, snapshots_in
from pipeline.session import NOT_INSTALLED, CannotStart, need_java

TICK_MS: Final = 1_000
"""Of the demo's ZooKeeper; its brokers' sessions are as long as the daemon's."""
STEP_S_MAX: Final = 180.0


async def audited(console: Console, journal: Path, into: Path) -> bool:
    """Prints what the pipeline finds, and where the report is; returns whether nothing is broken.

    The daemon's snapshots lie beside its ``journal``, and tell the report min ISR. Where Spark cannot start it says
    why, and that breaks nothing.
    """
    try:
        need_java()
        if find_spec("pyspark") is None:
            raise CannotStart(NOT_INSTALLED.format("PySpark"))
    except CannotStart as error:
        console.print(f"No audit and no report: {escape(str(error))}", soft_wrap=True)
        return True
    folder, snapshots = into / "merged", folder_in(journal.parent)
    bounds = ["--session-timeout", str(SESSION_MS), "--zookeeper-tick", str(TICK_MS)]
    if snapshots_in(snapshots):
        bounds += ["--snapshot", str(snapshots)]
    ingest, audit = ("ingest", str(journal), "--into", str(folder)), ("audit", str(folder))
    console.print("Now the pipeline reads the journal on Spark, which takes a minute.", soft_wrap=True)
    for command in (ingest, audit, ("report", str(folder), *bounds)):
        ended, shown, last = await _ran(*command)
        for line in (*shown, last):
            console.print(f"pipeline {command[0]}: {escape(line)}", soft_wrap=True)
        if not ended:
            return False
    return True


async def _ran(*arguments: str) -> tuple[bool, list[str], str]:
    """Runs a command of the pipeline; returns whether it succeeded, the lines of its output, and its last sentence."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "cli.main", "pipeline", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        printed, errors = await asyncio.wait_for(process.communicate(), STEP_S_MAX)
    except TimeoutError:
        await _end(process)
        return False, [], f"it did not end within {STEP_S_MAX:.0f} s; see the load of this machine, and try again"
    except BaseException:
        await _end(process)
        raise
    lines = _lines(errors)
    return process.returncode == 0, _lines(printed), lines[-1] if lines else "it printed nothing"


def _lines(printed: bytes) -> list[str]:
    return [line for line in printed.decode(errors="replace").split("\n") if line.strip()]


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
