"""Connects without sockets: daemons to brokers, and brokers' calls to the daemons' controller listener."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from brokers.listener.controller_listener import ControllerListener
from brokers.wire.frames import ConnectionLost
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.versions import Api
from testing.simulated.requests import read_head, read_request
from testing.simulated.values import Request
from tests.kit.simulation.loop import Process, SimLoop

if TYPE_CHECKING:
    from tests.simulation.kafka.brokers import BrokerNode
    from tests.simulation.kafka.daemons import DaemonNode

LATENCY_S_MAX: Final = 0.002
BODIES_MAX: Final = 500
"""Decoded bodies that are kept: all brokers are sent the same ones."""

Address = tuple[str, int]
Pending = Callable[[str], AbstractContextManager[None]]
"""Returns a context that holds while a call with this name has no reply."""


class Network:
    """Finds listeners by address. ``sent`` and ``connecting`` receive the daemons' requests and dials at once."""

    def __init__(self, loop: SimLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.brokers: dict[Address, BrokerNode] = {}
        self.listeners: dict[Address, SimListener] = {}
        self.sent: Callable[[SimConnection, Request], None] = lambda *_: None
        self.connecting: Callable[[Process, str], None] = lambda *_: None
        self._bodies: dict[tuple[int, int, bytes], Request] = {}

    def latency_s(self) -> float:
        """Draws the latency of one packet."""
        return LATENCY_S_MAX * self.chance.random()

    def later(self, delay_s: float, call: Callable[..., object], *args: object) -> None:
        """Calls back outside of every process."""
        self.loop.call_at(self.loop.now_s + delay_s, call, *args, context=self.loop.root)

    def decoded(self, frame: bytes) -> Request:
        """Decodes a request as the broker does."""
        reader = Reader(frame)
        head = read_head(reader)
        body = head.api, head.version, frame[reader.position :]
        known = self._bodies.get(body)
        if known is not None:
            return replace(known, head=head)
        if len(self._bodies) >= BODIES_MAX:
            self._bodies.clear()
        request = self._bodies[body] = read_request(frame)
        return request

    async def call(self, process: Process, address: Address, frame: bytes) -> bytes:
        """Carries a broker's call to the listener at ``address``; raises OSError, and never returns without a reply."""
        response: asyncio.Future[bytes] = self.loop.create_future()
        self.later(self.latency_s(), self._called, process, address, frame, response)
        return await response

    def _called(self, process: Process, address: Address, frame: bytes, response: asyncio.Future[bytes]) -> None:
        listener = self.listeners.get(address)
        if listener is None:
            process.call_soon(_lose, response, "refused")
        else:
            listener.called(process, frame, response)


class SimListener(ControllerListener):
    """Listens as the controller listener of one daemon process, without a socket."""

    def __init__(self, network: Network, process: Process, address: Address, pending: Pending) -> None:
        super().__init__(*address)
        self._network = network
        self._pending = pending
        self._process = process
        self._at = address
        self._calls: dict[asyncio.Future[bytes], Process] = {}

    async def start(self) -> None:
        """Begins to listen."""
        self._network.listeners[self._at] = self

    @property
    def port(self) -> int:
        """Returns the port."""
        return self._at[1]

    async def stop(self) -> None:
        """Stops to listen, as the real one does."""
        self.vanish()
        await super().stop()

    def vanish(self) -> None:
        """Stops to listen; the connections of waiting callers break."""
        if self._network.listeners.get(self._at) is self:
            del self._network.listeners[self._at]
        self.close_connections()

    def close_connections(self) -> None:
        """Breaks all connections: each waiting caller looks for the controller again."""
        calls, self._calls = self._calls, {}
        for response, process in calls.items():
            process.call_soon(_lose, response, "closed by the controller")

    def called(self, process: Process, frame: bytes, response: asyncio.Future[bytes]) -> None:
        """Receives a broker's call."""
        self._calls[response] = process
        self._process.start(self._serve(process, frame, response))

    async def _serve(self, process: Process, frame: bytes, response: asyncio.Future[bytes]) -> None:
        try:
            with self._pending(Api(int.from_bytes(frame[:2])).name):
                reply = await self.respond(frame)
        except BadMessage as error:
            process.call_soon(_lose, response, str(error))
            return
        if self._calls.pop(response, None) is not None:
            self._network.later(self._network.latency_s(), process.call_soon, _respond, response, reply[4:])


class SimTransport:
    """Connects one daemon process to the brokers."""

    def __init__(self, network: Network, daemon: DaemonNode, process: Process) -> None:
        self._network = network
        self._daemon = daemon
        self._process = process

    async def connect(self, host: str, port: int, on_lost: Callable[[], None]) -> SimConnection:
        """Connects; see :class:`brokers.transport.Transport`."""
        await asyncio.sleep(self._network.latency_s())
        broker = self._network.brokers.get((host, port))
        self._network.connecting(self._process, host)
        if broker is None or broker.wire.refuses:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        if broker.wire.cut:
            await self._network.loop.create_future()
        connection = SimConnection(self._network, self._daemon, self._process, broker, on_lost)
        broker.connections[connection] = None
        return connection


class SimConnection:
    """Connects a daemon to a broker. ``half_open``: no packet passes any more, and neither end knows."""

    def __init__(
        self,
        network: Network,
        daemon: DaemonNode,
        process: Process,
        broker: BrokerNode,
        on_lost: Callable[[], None],
    ) -> None:
        self.daemon = daemon
        self.process = process
        self.broker = broker
        self.closed = False
        self.half_open = False
        self._network = network
        self._on_lost = on_lost
        self._response: asyncio.Future[bytes] | None = None

    @property
    def busy(self) -> bool:
        """Returns whether a request is in flight."""
        return self._response is not None

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        """Sends one request and returns its response."""
        if self.closed:
            raise ConnectionLost("not connected")
        frame = b"".join(parts)[4:]
        request = self._network.decoded(frame)
        self._network.sent(self, request)
        response: asyncio.Future[bytes] = self._network.loop.create_future()
        self._response = response
        self._network.later(self._network.latency_s(), self._arrived, request, len(frame), response)
        try:
            return await response
        except BaseException:
            self.close()
            raise
        finally:
            self._response = None

    def _arrived(self, request: Request, size: int, response: asyncio.Future[bytes]) -> None:
        if not self.half_open and not self.broker.wire.cut and self in self.broker.connections:
            self.broker.arrived(self, request, size, partial(self._reply, response))

    def _reply(self, response: asyncio.Future[bytes], reply: bytes) -> None:
        if not self.half_open and not self.broker.wire.cut:
            self._network.later(self._network.latency_s(), self.process.call_soon, _respond, response, reply)

    def reset(self, why: str) -> None:
        """Closes the connection as the broker."""
        self.broker.connections.pop(self, None)
        if not self.half_open:
            self.process.call_soon(self._lost, why)

    def _lost(self, why: str) -> None:
        if self.closed:
            return
        self.closed = True
        if self._response is not None:
            _lose(self._response, why)
        self._on_lost()

    def close(self) -> None:
        """Closes the connection; packets on the wire arrive all the same."""
        if not self.closed:
            self.closed = True
            if self._response is not None:
                _lose(self._response, "closed")
            self._network.loop.call_soon(self._on_lost)
            self._network.later(2 * LATENCY_S_MAX, self.broker.connections.pop, self, None)


def _respond(response: asyncio.Future[bytes], reply: bytes) -> None:
    if not response.done():
        response.set_result(reply)


def _lose(response: asyncio.Future[bytes], why: str) -> None:
    if not response.done():
        response.set_exception(ConnectionLost(why))
