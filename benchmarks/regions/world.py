"""A daemon's regions in this process, and simulated servers beside it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from brokers.listener.inbound import ListenerLimits
from brokers.regions.listener import RegionListener
from configs.journal_section import JournalSettings
from controller.journal.journal import Journal
from controller.kafka.metrics.values import Counters
from controller.main import tune
from controller.process.clock import wall_ms
from controller.regions.claim import Opened, Opening
from controller.regions.dispatcher import DispatchLimits
from controller.regions.domain import RegionsDomain
from controller.regions.environment import Options
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.sqlite_store import SqliteOpened
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State

LEASE_MS: Final = 4_000
NODE_TIMEOUT_MS: Final = Options().node_timeout_ms
TABLE: Final = "t"
LINE_BYTES_MAX: Final = 2**24
"""Of a line that a program prints."""


class Lag:
    """Measures the longest time for which the loop did nothing else."""

    EVERY_S: Final = 0.005

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        """Measures until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            before_s = loop.time()
            await asyncio.sleep(self.EVERY_S)
            self.longest_s = max(self.longest_s, loop.time() - before_s - self.EVERY_S)

    async def settle(self) -> None:
        """Forgets the lag so far, with that of the caller itself, which shows at the next look only."""
        await asyncio.sleep(2 * self.EVERY_S)
        self.take_ms()

    def take_ms(self) -> float:
        """Returns the longest lag since the last call, in milliseconds."""
        found, self.longest_s = self.longest_s, 0.0
        return found * 1000


async def until(holds: Callable[[], object], every_s: float = 0.002) -> None:
    """Waits until something holds."""
    for _ in count():
        if holds():
            return
        await asyncio.sleep(every_s)


class MeasuredRegions:
    """A domain that runs. ``lag``: of its loop."""

    def __init__(self, domain: RegionsDomain, lag: Lag) -> None:
        self.domain = domain
        self.lag = lag

    @property
    def term(self) -> RegionsTerm:
        """Returns the term."""
        assert self.domain.term is not None
        return self.domain.term

    @property
    def port(self) -> int:
        """Returns the port of the listener."""
        return self.domain.listener.port

    async def until(self, servers: int) -> None:
        """Waits until so many servers are online."""
        await until(lambda: self.domain.term and len(list(self.term.env.model.online())) == servers)

    async def create(self, regions: int) -> None:
        """Creates the table, and waits until all its regions are open."""
        await self.change("create_table", TableTask(TABLE, uniform=regions))

    async def change(self, kind: str, task: TableTask) -> None:
        """Changes the table, and waits for the end."""
        pid = await self.term.engine.submit(kind, TABLE_TASK.encode(task), Caller("benchmark"))
        record = await self.term.engine.result(pid)
        if record.result not in (b"", b"0") or record.state is not State.SUCCESS:
            raise RuntimeError(f"{kind} did not succeed: {record}")


@asynccontextmanager
async def world(
    folder: Path,
    *,
    servers_min: int = 1,
    port: int = 0,
    placement: str = "round_robin",
    fence: str = "lease",
    limits: DispatchLimits | None = None,
    lease_ms: int = LEASE_MS,
    balances: bool = False,
    opening: Callable[[Opening], Awaitable[Opened]] | None = None,
    node_timeout_ms: int = NODE_TIMEOUT_MS,
) -> AsyncIterator[MeasuredRegions]:
    """Runs a domain on a SQLite file in ``folder``, with the threads of a daemon.

    ``balances``: it balances regions by itself, as often as daemons do by default. ``opening``: opens another store.
    """
    tune()
    options = Options(lease_ms=lease_ms, servers_min=servers_min, transit_max=20_000, fence=fence)
    options = replace(options, node_timeout_ms=node_timeout_ms)
    options = options if balances else replace(options, balancer_period_ms=0)
    journal = Journal(folder / "journal", JournalSettings(), Counters())
    journal.start()
    domain = RegionsDomain(
        opening or partial(SqliteOpened.open, folder / "regions.db", lease_ms=lease_ms),
        RegionListener("127.0.0.1", port, ListenerLimits(connections_max=5_000)),
        options,
        wall_ms=wall_ms,
        limits=limits or DispatchLimits(),
        placement=placement,
        journal=journal,
    )
    lag = Lag()
    tasks = [asyncio.ensure_future(domain.run()), asyncio.ensure_future(lag.watch())]
    try:
        await until(lambda: domain.term or tasks[0].done())
        if tasks[0].done():
            tasks[0].result()
        yield MeasuredRegions(domain, lag)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        journal.close()


class Child:
    """A program of this folder in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def said(self) -> str:
        """Returns the next line that it prints."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    def tell(self, number: int) -> None:
        """Writes a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n".encode())

    def kill(self) -> None:
        """Kills it, if it runs."""
        if self._process.returncode is None:
            self._process.kill()


@asynccontextmanager
async def module(name: str, *numbers: int) -> AsyncIterator[Child]:
    """Runs a program of this folder; it has printed a line where the block begins.

    The loop goes on meanwhile: after a gap the daemon would refuse servers that it has already.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"benchmarks.regions.{name}", *map(str, numbers)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
    )
    child = Child(process)
    try:
        await child.said()
        yield child
    finally:
        child.kill()
        await process.wait()


def followers(port: int, count: int) -> AbstractAsyncContextManager[Child]:
    """Runs clients that follow routes; they are there once it has printed a second line."""
    return module("followers", port, count)


def servers(port: int, count: int, first: int = 0, stored: int = 0) -> AbstractAsyncContextManager[Child]:
    """Runs simulated servers. ``stored``: regions of a catalog that names them."""
    return module("servers", port, count, first, stored)
