"""Sets up daemon and servers of ``regent demo regions`` in a folder, which goes at the end."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from cli.demo.regions_process import KvServer, RegionsProcess
from cli.demo.regions_story import TABLE, RegionsStory
from cli.demo.telling import Stage

SERVERS: Final = 3


@asynccontextmanager
async def on_regions(console: Console) -> AsyncIterator[Stage]:
    """Holds the processes; where the block fails, their folder stays, and the exception names it."""
    logging.getLogger("regent_agent").setLevel(logging.ERROR)  # it warns while the daemon is down
    folder = Path(tempfile.mkdtemp(prefix="regent-"))
    regent = RegionsProcess(folder / "regent")
    servers = {f"kv-{number}": KvServer(f"kv-{number}", folder, regent) for number in range(1, SERVERS + 1)}

    async def stay() -> None:
        _print_addresses(console, folder, regent)
        await asyncio.Event().wait()

    kept = False
    try:
        yield Stage(RegionsStory(console, regent, servers), "all processes", stay)
    except Exception as error:
        error.add_note(f"the logs of all processes are kept in {folder}")
        kept = True
        raise
    finally:
        await asyncio.gather(*(process.kill() for process in (regent, *servers.values())))
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _print_addresses(console: Console, folder: Path, regent: RegionsProcess) -> None:
    console.print("Left up until Ctrl-C, which removes all of it, the logs too:")
    for name, value in (
        ("regent", f".venv/bin/regent --config {regent.config} regions list --table {TABLE}"),
        ("rows", f".venv/bin/python -m examples.kv.client --daemons 127.0.0.1:{regent.port} --table {TABLE} scan"),
        ("logs", str(folder)),
    ):
        console.print(f"  {name:<10} {value}", soft_wrap=True)
