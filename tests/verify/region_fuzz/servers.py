"""Servers of a service without data: agents on real sockets, each behind a link that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from regent_agent.agent import Agent
from regent_agent.connection import Address
from regent_agent.options import AgentOptions
from regent_agent.service import OpenedRegion, RegionService
from tests.verify.region_fuzz.owners import Key, Owners

BROKEN: Final = "broken"
"""An option of a table whose regions no server can open."""
PIECE: Final = 65_536
WORK_S_MAX: Final = 0.05
HANG_S_MAX: Final = 8.0
PARTS: Final = ("a", "b")
NOTHING: Final[Mapping[int, OpenedRegion]] = MappingProxyType({})


class Moods:
    """How often callbacks of the service fail and hang, in all servers together; ``calm`` ends both."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.fails = 0.0
        self.hangs = 0.0
        self.stuck_part = ""
        """A part of logs that no server can split."""

    def stir(self) -> None:
        """Draws how servers behave from now on."""
        self.fails = self.chance.choice([0.0, 0.1, 0.3])
        self.hangs = self.chance.choice([0.0, 0.02, 0.1])
        self.stuck_part = self.chance.choice(["", "", *PARTS])

    def calm(self) -> None:
        """Has every callback succeed."""
        self.fails = self.hangs = 0.0
        self.stuck_part = ""

    async def work(self, what: str) -> None:
        """Takes a moment, or long; raises now and then."""
        await asyncio.sleep(self.chance.random() * WORK_S_MAX)
        if self.chance.random() < self.hangs:
            await asyncio.sleep(self.chance.random() * HANG_S_MAX)
        if self.chance.random() < self.fails:
            raise OSError(f"{what} fails on purpose")


class FuzzService(RegionService):
    """Has regions, and the moods of its process."""

    def __init__(self, key: Key, moods: Moods, owners: Owners) -> None:
        self._key, self._moods, self._owners = key, moods, owners

    async def open(self, region: OpenedRegion) -> int:
        """Opens a region, unless its table is broken."""
        if BROKEN in region.options:
            raise OSError(f"option {BROKEN}: this service cannot open {region.table}")
        await self._moods.work("open")
        self._owners.opened(self._key, region)
        return region.sequence + 1

    async def close(self, region: OpenedRegion) -> None:
        """Closes a region."""
        await self._moods.work("close")

    async def fence(self, server: str, incarnation: int) -> list[str]:
        """Fences the log of a process."""
        await self._moods.work("fence")
        self._owners.fenced.add((server, incarnation))
        return list(PARTS)

    async def split(self, server: str, incarnation: int, part: str) -> None:
        """Splits a part of a log, unless it is stuck."""
        await self._moods.work("split")
        if part == self._moods.stuck_part:
            raise OSError(f"part {part} of the log of {server},{incarnation} is damaged")

    def suspend(self) -> None:
        """Does nothing: the agent knows."""

    def resume(self) -> None:
        """Does nothing: the agent knows."""


class Link:
    """Carries the connections of one server to the daemons; ``cut`` loses all bytes and takes no connection."""

    def __init__(self, daemons: Callable[[], list[Address]]) -> None:
        self._daemons = daemons
        self._servers: list[asyncio.Server] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self.cut = False
        self.addresses: list[Address] = []

    async def start(self) -> None:
        """Listens once for each daemon."""
        for number in range(len(self._daemons())):
            server = await asyncio.start_server(partial(self._carry, number), "127.0.0.1", 0)
            self._servers.append(server)
            self.addresses.append(server.sockets[0].getsockname()[:2])

    async def _carry(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(*self._daemons()[number])
            with contextlib.closing(far_writer):
                pumps = [
                    asyncio.create_task(self._pump(*ends)) for ends in ((reader, far_writer), (far_reader, writer))
                ]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(PIECE):
                while self.cut:  # noqa: ASYNC110  # bytes wait, as in a network that loses packets
                    await asyncio.sleep(0.05)
                writer.write(piece)
                await writer.drain()

    async def stop(self) -> None:
        """Ends all connections at once."""
        for server in self._servers:
            server.close()
        for task in list(self._pumps):
            task.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


class FuzzServer:
    """One process of a server: from its start until it is killed or has left."""

    def __init__(self, name: str, incarnation: int, link: Link, moods: Moods, owners: Owners, secret: str = "") -> None:
        self.key = name, incarnation
        self.link = link
        self.alive = False
        """Whether it runs: one whose start is broken off, as a round ends, never did."""
        self._options = (link, moods, owners, secret)
        self.agent: Agent | None = None
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to register, and does not wait for it."""
        link, moods, owners, secret = self._options
        await link.start()
        name, incarnation = self.key
        options = AgentOptions(
            daemons=tuple(link.addresses),
            server=name,
            address=f"{name}:7000",
            software="fuzz",
            incarnation=incarnation,
            secret=secret,
        )
        self.agent = Agent(FuzzService(self.key, moods, owners), options)
        self._starting = asyncio.create_task(self._start(self.agent))
        self.alive = True

    async def _start(self, agent: Agent) -> None:
        with contextlib.suppress(Exception):  # it may be fenced before it has registered: `died` says so
            await agent.start()

    @property
    def owned(self) -> Mapping[int, OpenedRegion]:
        """Returns the regions that it may serve now."""
        return self.agent.owned if self.alive and self.agent is not None and self.agent.serving else NOTHING

    @property
    def died(self) -> bool:
        """Checks whether the daemon has fenced it."""
        return self.agent is not None and self.agent.died.is_set()

    async def leave(self, timeout_s: float) -> None:
        """Leaves, where that is possible in time, and ends."""
        if self.agent is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.agent.leave(timeout_s), timeout_s + 1)
        await self.kill()

    async def kill(self) -> None:
        """Ends it without a word."""
        self.alive = False
        await self.link.stop()
        if self._starting is not None:
            self._starting.cancel()
        if self.agent is not None:
            await self.agent.stop()


def numbers(first: int) -> Iterator[int]:
    """Yields incarnations."""
    while True:
        yield first
        first += 1
