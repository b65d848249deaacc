"""Starts servers as processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from examples.kv.client import Client
from regent_agent.connection import Address
from tests.examples.daemon_kit import Daemon

ROOT = Path(__file__).parents[2]


class Started:
    """A server process. ``text``: its log."""

    def __init__(self, process: asyncio.subprocess.Process, text: Path) -> None:
        self.process = process
        self.text = text

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within_s: float = 20.0) -> int:
        async with asyncio.timeout(within_s):
            return await self.process.wait()


class Cluster:
    """A daemon's stand-in, servers on one folder, and a client."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self.daemon = daemon
        self.folder = folder
        self.client = Client([daemon.address], timeout_s=20)
        self.servers: dict[str, Started] = {}

    async def start(self, *names: str, arguments: tuple[str, ...] = ()) -> None:
        for name in names:
            self.servers[name] = await self._start(name, arguments)

    async def _start(self, name: str, arguments: tuple[str, ...]) -> Started:
        text = self.folder / f"{name}.txt"
        with text.open("w") as log:
            process = await asyncio.create_subprocess_exec(
                *command("server", self.daemon.address),
                *("--name", name, "--data", str(self.folder / "data"), *arguments),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert process.stdout is not None
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
        assert line.startswith(f"kv server {name} serves"), (line, text.read_text())
        return Started(process, text)


def command(module: str, daemon: Address) -> list[str]:
    return [sys.executable, "-m", f"examples.kv.{module}", "--daemons", f"{daemon[0]}:{daemon[1]}"]


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with Daemon().running() as daemon:
        made = Cluster(daemon, folder)
        try:
            yield made
        finally:
            await made.client.close()
            for server in made.servers.values():
                if server.process.returncode is None:
                    os.kill(server.process.pid, signal.SIGKILL)
                    await server.process.wait()
