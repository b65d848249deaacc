"""Runs the simulated brokers of one process: their registrations in ZooKeeper, their incarnations and deaths."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from msgspec import Struct

from brokers.transport import TcpTransport
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import decode_broker, encode_broker
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.nodes.cluster_nodes import ensure_top_level_paths, read_controller
from metadata_store.port import ANY_VERSION, ConnectionState, Create, Delete
from state_machines.model.types import Endpoint
from testing.simulated.bodies import Bodies
from testing.simulated.broker import SimulatedBroker
from testing.simulated.broker_server import UNREGISTERED, BrokerServer
from testing.simulated.calls import ShutdownResponse, controlled_shutdown, shutdown_response
from testing.simulated.replay import known

CONNECT_S_MAX: Final = 60.0
RESPONSE_S_MAX: Final = 600.0


class Impossible(RuntimeError):
    """Reports a command that cannot be done; the message has the reason."""


class Timed(Struct, frozen=True):
    """A response of the controller. Times are nanoseconds of the monotonic clock, connecting not included."""

    sent_ns: int
    received_ns: int
    response: ShutdownResponse


class Fleet:
    """Runs the brokers. ``own_sessions``: each has its own ZooKeeper session; otherwise one registers all.

    ``on_lost`` is called when a session is lost by itself; the brokers of it are not registered any more.
    """

    def __init__(
        self, servers: Sequence[BrokerServer], bodies: Bodies, connect: str, session_ms: int, *, own_sessions: bool
    ) -> None:
        self.servers = {server.id: server for server in servers}
        self.bodies = bodies
        self._connect = connect
        self._session_ms = session_ms
        self._own_sessions = own_sessions
        self.on_lost: Callable[[], None] | None = None
        self.lost = False
        self._shared = self._session()
        self._sessions: dict[int, KazooZooKeeper] = {}

    def _session(self) -> KazooZooKeeper:
        session = KazooZooKeeper(self._connect, session_timeout_ms=self._session_ms, create_chroot=True)
        session.on_state = self._changed
        return session

    def _changed(self, state: ConnectionState) -> None:
        if state is ConnectionState.LOST and not self.lost:
            self.lost = True
            if self.on_lost is not None:
                self.on_lost()

    @property
    def zk(self) -> KazooZooKeeper:
        """Returns the session of the process itself."""
        return self._shared

    async def start(self) -> None:
        """Starts and registers every broker; raises ``ConnectFailed``, ``ZkError``, OSError."""
        await self._shared.connect(CONNECT_S_MAX)
        await ensure_top_level_paths(self._shared)
        await self.register(self.servers)

    async def close(self) -> None:
        """Ends all brokers and their sessions."""
        for server in self.servers.values():
            server.vanish()
        await asyncio.gather(*(session.close() for session in (*self._sessions.values(), self._shared)))
        self._sessions.clear()

    def chosen(self, brokers: Collection[int]) -> list[BrokerServer]:
        """Returns the brokers with these ids; raises :class:`Impossible` for one that is not of this process."""
        missing = sorted(set(brokers) - self.servers.keys())
        if missing:
            raise Impossible(f"there is no broker {missing} here")
        return [self.servers[broker] for broker in brokers]

    # -- registrations

    async def register(self, brokers: Collection[int]) -> int:
        """Listens and registers with a new epoch; returns the moment right before the first was sent."""
        servers = self.chosen(brokers)
        for server in servers:
            if server.epoch != UNREGISTERED:
                raise Impossible(f"broker {server.id} is registered already")
            await server.listen()
            if self._own_sessions:
                session = self._sessions[server.id] = self._session()
                await session.connect(CONNECT_S_MAX)
        at_ns = time.monotonic_ns()
        await asyncio.gather(*map(self._register, servers))
        return at_ns

    async def _register(self, server: BrokerServer) -> None:
        data = encode_broker(server.registration, timestamp_ms=time.time_ns() // 1_000_000)
        zk = self._sessions.get(server.id, self._shared)
        created = await zk.create(paths.broker(server.id), data, ephemeral=True)
        server.enter(created.stat.czxid)

    async def die(self, brokers: Collection[int]) -> int:
        """Ends brokers with their registrations, all at once; returns the moment right before that was sent."""
        servers = self.chosen(brokers)
        for server in servers:
            if server.epoch == UNREGISTERED:
                raise Impossible(f"broker {server.id} is not registered")
            server.vanish()
        at_ns = time.monotonic_ns()
        if self._own_sessions:
            await asyncio.gather(*(self._sessions.pop(server.id).close() for server in servers))
        else:
            await self._shared.multi([Delete(paths.broker(server.id), ANY_VERSION) for server in servers])
        return at_ns

    async def bounce(self, brokers: Collection[int]) -> int:
        """Ends brokers and registers them with new epochs in one instant, if the session is shared."""
        if self._own_sessions:
            await self.die(brokers)
            return await self.register(brokers)
        servers = self.chosen(brokers)
        for server in servers:
            server.vanish()
            await server.listen()
        now_ms, at_ns = time.time_ns() // 1_000_000, time.monotonic_ns()
        ops = [
            op
            for server in servers
            for op in (
                Delete(paths.broker(server.id), ANY_VERSION),
                Create(paths.broker(server.id), encode_broker(server.registration, timestamp_ms=now_ms), True),
            )
        ]
        zxid = await self._shared.apply(ops)
        for server in servers:
            server.enter(zxid)
        return at_ns

    # -- views and calls

    def known(self, brokers: Collection[int] = ()) -> Iterator[tuple[BrokerServer, SimulatedBroker]]:
        """Yields views of the registered ones of ``brokers`` (default: all), one at a time; may take seconds."""
        chosen = self.chosen(brokers) if brokers else list(self.servers.values())
        return known([server for server in chosen if server.epoch != UNREGISTERED])

    async def controller(self, broker: int) -> Endpoint:
        """Returns the controller's endpoint for ``broker``: by its live list, else by the registrations."""
        server = self.servers[broker]
        listener = server.options.listeners[0]
        _, knows = next(self.known([broker]), (server, server.broker))
        found = await read_controller(self._shared)
        if found is None or isinstance(found.value, MalformedNode):
            raise Impossible("there is no controller")
        controller = found.value.broker
        entry = knows.live.get(controller)
        node = await self._shared.get(paths.broker(controller)) if entry is None else None
        if node is not None:
            read = decode_broker(paths.broker(controller), controller, node.data, node.stat.czxid, node.stat.version)
            entry = None if isinstance(read, MalformedNode) else read
        endpoint = entry.endpoint(listener) if entry is not None else None
        if endpoint is None:
            raise Impossible(f"broker {broker} does not know where controller {controller} listens ({listener})")
        return endpoint

    async def shut_down(self, broker: int) -> Timed:
        """Sends ControlledShutdown to the present controller; the broker stays as it is."""
        [server] = self.chosen([broker])
        endpoint = await self.controller(broker)
        connection = await TcpTransport().connect(endpoint.host, endpoint.port, lambda: None)
        try:
            frame = controlled_shutdown(1, broker, server.epoch)
            sent_ns = time.monotonic_ns()
            async with asyncio.timeout(RESPONSE_S_MAX):
                response = await connection.exchange([len(frame).to_bytes(4, "big"), frame])
            received_ns = time.monotonic_ns()
        finally:
            connection.close()
        return Timed(sent_ns, received_ns, shutdown_response(response))
