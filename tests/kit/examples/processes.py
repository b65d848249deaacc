"""Makes services on one folder, in this process and as processes of their own."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from examples.kv.client import Client
from examples.kv.service import KeyValueService
from examples.kv.upkeep import FLUSH_BYTES_MAX
from examples.kv.writer import SEGMENT_BYTES_MAX, Log, Segments
from regent_agent.connection import Address
from regent_agent.protocol import Published
from regent_agent.service import OpenedRegion
from tests.kit.examples.daemon import Daemon

ROOT = Path(__file__).parents[3]


class Started:
    """A server process. ``text``: its log."""

    def __init__(self, process: asyncio.subprocess.Process, text: Path) -> None:
        self.process = process
        self.text = text

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within_s: float = 60.0) -> int:
        async with asyncio.timeout(within_s):
            return await self.process.wait()


class Servers:
    """Servers on one folder. ``all``: by name."""

    def __init__(self, daemon: Address, folder: Path) -> None:
        self._daemon, self._folder = daemon, folder
        self.all: dict[str, Started] = {}

    async def start(self, *names: str, arguments: tuple[str, ...] = ()) -> None:
        for name in names:
            self.all[name] = await self.launch(name, arguments)
            await self._serves(name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Servers]:
        """Kills the servers at the end."""
        try:
            yield self
        finally:
            for server in self.all.values():
                if server.process.returncode is None:
                    server.process.kill()
                    await server.process.wait()

    async def launch(self, name: str, arguments: tuple[str, ...] = ()) -> Started:
        """Starts a process, and does not wait until it serves."""
        text = self._folder / f"{name}.txt"
        with text.open("w") as log:
            process = await asyncio.create_subprocess_exec(
                *command("server", self._daemon),
                *("--name", name, "--data", str(self._folder / "data"), *arguments),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        return Started(process, text)

    async def _serves(self, name: str) -> None:
        server = self.all[name]
        assert server.process.stdout is not None
        async with asyncio.timeout(60):
            line = (await server.process.stdout.readline()).decode()
        assert line.startswith(f"kv server {name} serves"), (line, server.text.read_text())


class Cluster(NamedTuple):
    """A daemon's stand-in, servers and a client."""

    daemon: Daemon
    started: Servers
    client: Client

    @property
    def servers(self) -> dict[str, Started]:
        return self.started.all

    async def start(self, *names: str, arguments: tuple[str, ...] = ()) -> None:
        await self.started.start(*names, arguments=arguments)


def command(module: str, daemon: Address) -> list[str]:
    return [sys.executable, "-m", f"examples.kv.{module}", "--daemons", f"{daemon[0]}:{daemon[1]}"]


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with Daemon().running() as daemon, Servers(daemon.address, folder).running() as servers:
        client = Client([daemon.address], timeout_s=60)
        yield Cluster(daemon, servers, client)
        await client.close()


def region(token: int, number: int = 1, start: bytes = b"", end: bytes = b"", sequence: int = 0) -> OpenedRegion:
    return OpenedRegion(number, "t", start, end, token, sequence, {})


@asynccontextmanager
async def service(
    data: Path,
    name: str,
    *,
    segment_bytes: int = SEGMENT_BYTES_MAX,
    flush_bytes: int = FLUSH_BYTES_MAX,
    independent: Callable[[OpenedRegion], None] = lambda _: None,
    published: Callable[[], Mapping[str, Published]] = dict,
) -> AsyncIterator[KeyValueService]:
    log = Log(Segments(data, name, 1, segment_bytes))
    try:
        service = KeyValueService(data, log, flush_bytes, independent, published)
        service.admit(True)
        yield service
    finally:
        await log.close()


async def take_over(successor: KeyValueService, dead: str, opened: OpenedRegion) -> int:
    """Does what the daemon has done once a server is dead: fence, split, open."""
    for part in await successor.fence(dead, 1):
        await successor.split(dead, 1, part)
    return await successor.open(opened)


async def error_of(call: Awaitable[object]) -> Exception | None:
    try:
        await call
    except Exception as error:
        return error
    return None
