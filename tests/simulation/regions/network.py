"""Connections between servers and daemons: delayed, cut, one-way broken, and late after their end.

Bytes of a direction keep their order, as with TCP; those of two connections do not. What was sent before a connection's
end may arrive after it. A frozen process reads everything once it is thawed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

from brokers.listener.inbound import InboundConnection
from brokers.regions.connection import Greeting
from regent_agent.codec import LENGTH
from tests.kit.simulation.loop import PROCESS, Process, SimLoop

if TYPE_CHECKING:
    from tests.simulation.regions.daemons import DaemonNode

SLOW_S_MAX: Final = 3.0
RETRY_S: Final = 0.2
"""Pause after which bytes that a broken link kept are sent again."""
PORT: Final = 7000
SERVERS_SECRET: Final = "secret-of-servers"
CLIENTS_SECRET: Final = "secret-of-clients"


class Pipe:
    """One direction of a connection: delivers chunks in order, while the link lets them pass."""

    def __init__(self, network: Network, link: tuple[str, str], to: Process, deliver: Callable[[bytes], None]) -> None:
        self._network = network
        self._link = link
        self._to = to
        self._deliver = deliver
        self._chunks: list[bytes] = []
        self._last_s = 0.0
        self.closed = False

    def send(self, data: bytes) -> None:
        """Sends bytes; nothing once the connection is over."""
        if not self.closed:
            loop = self._network.loop
            self._last_s = max(self._last_s, loop.now_s + self._network.delay_s())
            loop.call_at(self._last_s, self._arrive, data, context=loop.root)

    def _arrive(self, data: bytes) -> None:
        if self._link in self._network.broken:
            self._network.counts["held"] += 1
            if not self.closed:  # the sender's machine sends it again until the connection's end
                loop = self._network.loop
                self._last_s = max(self._last_s, loop.now_s + RETRY_S)
                loop.call_at(loop.now_s + RETRY_S, self._arrive, data, context=loop.root)
            return
        if self.closed:
            self._network.counts["late"] += 1
        if self._to.alive:
            self._to.call_soon(self._deliver, data)


class Writer:
    """Stands for the stream writer of the side that connected."""

    def __init__(self, connection: Connection) -> None:
        self.transport = connection

    def write(self, data: bytes) -> None:
        """Sends bytes."""
        self.transport.send(data)

    async def drain(self) -> None:
        """Waits for nothing."""


class Connection:
    """A connection of a server to a daemon. ``epoch``: responses of an earlier process never come."""

    def __init__(self, network: Network, client: Process, server: str, daemon: DaemonNode, process: Process) -> None:
        self._network = network
        self.client = client
        self._daemon = daemon
        self._process = process
        self.reader = asyncio.StreamReader()
        self._to = Pipe(network, (server, daemon.name), process, self._received)
        self._from = Pipe(network, (daemon.name, server), client, self._responded)
        self._buffer = b""
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._serves = False
        self._over = False
        self._inbound = cast("InboundConnection", SimpleNamespace(authentication=Greeting()))
        network.connections[self] = None

    @property
    def daemon(self) -> DaemonNode:
        """Returns the daemon at the other end."""
        return self._daemon

    def send(self, data: bytes) -> None:
        """Sends a request."""
        if self._network.drops():
            self.reset()
            return
        self._to.send(data)

    def abort(self) -> None:
        """Ends the connection at the side that connected: requests on their way may arrive still."""
        self._to.closed = self._from.closed = self._over = True
        self._network.connections.pop(self, None)

    def reset(self) -> None:
        """Ends the connection at both sides."""
        if not self._over:
            self.abort()
            if self.client.alive:
                self.client.call_soon(self._ended)

    def _ended(self) -> None:
        if not self.reader.at_eof():
            self.reader.feed_eof()

    def _received(self, data: bytes) -> None:
        """Takes bytes at the daemon."""
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack(self._buffer[: LENGTH.size])[0]
            if len(self._buffer) < end:
                break
            self._requests.put_nowait(self._buffer[LENGTH.size : end])
            self._buffer = self._buffer[end:]
        if not self._serves:
            self._serves = True
            self._process.start(self._serve())

    async def _serve(self) -> None:
        while True:
            response = await self._daemon.listener.respond(await self._requests.get(), self._inbound)
            if self._network.drops():
                self.reset()
            self._from.send(response)

    def _responded(self, data: bytes) -> None:
        if not self._over:
            self.reader.feed_data(data)


class Network:
    """Makes connections. ``broken``: links that let nothing pass, as (from, to); ``slow``: part of slow chunks."""

    def __init__(self, loop: SimLoop, chance: random.Random, counts: Counter[str], delay_s_max: float) -> None:
        self.loop = loop
        self.counts = counts
        self.broken: set[tuple[str, str]] = set()
        self.connections: dict[Connection, None] = {}
        self.daemons: dict[str, DaemonNode] = {}
        self.delay_s_max = delay_s_max
        self.slow = 0.0
        self.lossy = 0.0
        self._chance = chance

    def delay_s(self) -> float:
        """Returns the time that bytes take."""
        if self.slow and self._chance.random() < self.slow:
            return self._chance.random() * SLOW_S_MAX
        return self._chance.random() * self.delay_s_max

    def drops(self) -> bool:
        """Returns whether a connection ends now."""
        found = bool(self.lossy) and self._chance.random() < self.lossy
        self.counts["lost"] += found
        return found

    async def open_connection(self, host: str, _port: int, ssl: object = None) -> tuple[asyncio.StreamReader, Writer]:
        """Stands for ``asyncio.open_connection``."""
        client = PROCESS.get()
        assert client is not None
        server = client.name.partition(",")[0]
        daemon = self.daemons[host]
        await asyncio.sleep(self.delay_s())
        while not self.broken.isdisjoint({(server, host), (host, server)}):  # noqa: ASYNC110  # as TCP does
            await asyncio.sleep(RETRY_S)
        if daemon.process is None or not daemon.process.alive:
            raise ConnectionRefusedError(f"{host} listens not")
        connection = Connection(self, client, server, daemon, daemon.process)
        return connection.reader, Writer(connection)

    def ended(self, process_of: Callable[[Connection], bool]) -> None:
        """Resets the connections of a process."""
        for connection in [one for one in self.connections if process_of(one)]:
            connection.reset()
