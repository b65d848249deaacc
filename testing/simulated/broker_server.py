"""Puts a simulated broker on a socket.

*Lean*, the default: requests are timed, kept as bytes and responded to at once, and decoded only for a query of the
broker's view, so that a benchmark does not measure the broker. Epochs are checked as they come, partitions are not. A
response lists none, or (``full_answers``) gives each the error 0, or 11 where this incarnation was sent the very same
before. *Exact*: every request is decoded, and the response comes from the broker's state.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Final

from msgspec import Struct

from brokers.wire.errors import Error
from brokers.wire.primitives import Reader
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Broker, Endpoint
from testing.embedded.process import free_port
from testing.simulated.bodies import Bodies, Body
from testing.simulated.broker import SimulatedBroker, refused
from testing.simulated.connection import Incoming, Respond, Room
from testing.simulated.queries import IBP_SETTING, respond_to_query
from testing.simulated.replies import bare_response
from testing.simulated.requests import read_body
from testing.simulated.values import Head

HOST: Final = "127.0.0.1"
PORT_TRIES_MAX: Final = 20
"""Tries to choose a port: among a hundred brokers with random ports two are likely to choose the same."""
UNREGISTERED: Final = 0


class Count(Struct):
    """Requests of one kind since the last mark. Times are nanoseconds of the monotonic clock, 0 for none."""

    requests: int = 0
    bytes: int = 0
    refused: int = 0
    first_ns: int = 0
    last_ns: int = 0


class Faults(Struct):
    """The faults of a broker. ``top`` and ``each`` are error codes by kind of request, all partitions alike.

    ``full``: kinds of request of which a lean broker's responses list every partition.
    """

    delay_s: float = 0.0
    mute: bool = False
    top: dict[Api, int] = {}
    each: dict[Api, int] = {}
    full: frozenset[Api] = frozenset()


class Options(Struct, frozen=True):
    """Options that all brokers of a process share."""

    ibp: Ibp
    listeners: tuple[str, ...] = ("INTERNAL",)
    exact: bool = False
    full_answers: bool = False


class BrokerServer:
    """Serves one broker: its port, its counters, and the requests it was sent (lean) or its view (exact)."""

    def __init__(self, broker_id: int, options: Options, bodies: Bodies, room: Room) -> None:
        self.id = broker_id
        self.port = 0
        self.options = options
        self.faults = Faults()
        self.counts: dict[Api, Count] = {}
        self.broker = SimulatedBroker(broker_id, UNREGISTERED, ibp=options.ibp)
        self.log: list[tuple[Head, Body]] = []
        self._bodies = bodies
        self._room = room
        self._settings = {IBP_SETTING: str(options.ibp)}
        self._connections: set[Incoming] = set()
        self._server: asyncio.Server | None = None
        self._taken: set[Body] = set()
        self._former_epoch = UNREGISTERED

    @property
    def epoch(self) -> int:
        """Returns the broker epoch, 0 while the broker is not registered."""
        return self.broker.epoch

    @property
    def registration(self) -> Broker:
        """Returns the registration."""
        endpoints = tuple(Endpoint(name, HOST, self.port) for name in self.options.listeners)
        return Broker(self.id, self.epoch, endpoints)

    # -- life

    async def listen(self) -> None:
        """Accepts connections, always on the same port, which is chosen the first time; raises OSError."""
        loop = asyncio.get_running_loop()
        for last in range(PORT_TRIES_MAX - 1, -1, -1) if self._server is None else ():
            port = self.port or free_port()
            try:
                self._server = await loop.create_server(self._incoming, HOST, port)
            except OSError as error:
                if self.port or not last or error.errno != errno.EADDRINUSE:
                    raise
            else:
                self.port = port
                return

    def _incoming(self) -> Incoming:
        return Incoming(self, self._room)

    def vanish(self) -> None:
        """Closes the port and all connections, and forgets everything but its logs."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.abort()
        self._former_epoch = max(self._former_epoch, self.epoch)
        self.begin(UNREGISTERED)

    def begin(self, epoch: int) -> None:
        """Begins a new incarnation, or none."""
        self.broker.restart(epoch)
        self.log.clear()
        self._taken.clear()

    def enter(self, epoch: int) -> None:
        """Enters the registration; requests that came meanwhile count, but for those to its earlier incarnation."""
        self.broker.registered(epoch)

    def forget(self) -> None:
        """Empties its view, logs included, and forgets the controller epoch; the registration stays."""
        epoch = self.epoch
        self.broker = SimulatedBroker(self.id, epoch, ibp=self.options.ibp)
        self.begin(epoch)

    # -- called by connections

    def joined(self, connection: Incoming) -> None:
        """Implements :class:`testing.simulated.connection.Listener`."""
        self._connections.add(connection)

    def left(self, connection: Incoming) -> None:
        """Implements :class:`testing.simulated.connection.Listener`."""
        self._connections.discard(connection)

    def query(self, frame: bytes, respond: Respond) -> None:
        """Implements :class:`testing.simulated.connection.Listener`."""
        found = respond_to_query(frame, self._settings)
        self._deliver(respond, found)

    def request(self, head: Head, body: bytes | bytearray, size: int, at_ns: int, respond: Respond) -> None:
        """Implements :class:`testing.simulated.connection.Listener`."""
        count = self.counts.setdefault(head.api, Count())
        count.requests += 1
        count.bytes += size
        count.first_ns = count.first_ns or at_ns
        count.last_ns = at_ns
        newest = self.epoch or self._former_epoch + 1
        error = self.faults.top.get(head.api) or refused(head, newest, self.broker.controller_epoch)
        if error:
            count.refused += 1
            self._deliver(respond, bare_response(head, error))
        elif self.options.exact and head.api not in self.faults.each:
            request = read_body(head, Reader(bytes(body), items_max=len(body)))
            self._deliver(respond, self.broker.take(request, size))
        else:
            self._deliver(respond, self._keep(head, self._bodies.intern(head, body)))

    def _keep(self, head: Head, body: Body) -> bytes:
        """Puts a request aside; returns its response. A request with an injected error has no effect."""
        error = self.faults.each.get(head.api)
        if error is not None:
            return head.correlation.to_bytes(4, "big") + body.response(error)
        self.broker.controller_epoch = head.controller_epoch
        self.log.append((head, body))
        full = self.options.full_answers or head.api in self.faults.full
        if head.api is Api.UPDATE_METADATA or not full:
            return bare_response(head, Error.NONE)
        known = head.api is Api.LEADER_AND_ISR and body in self._taken
        self._taken.add(body)
        return head.correlation.to_bytes(4, "big") + body.response(
            Error.STALE_CONTROLLER_EPOCH if known else Error.NONE
        )

    def _deliver(self, respond: Respond, found: bytes) -> None:
        if self.faults.mute:
            return
        if self.faults.delay_s:
            asyncio.get_running_loop().call_later(self.faults.delay_s, respond, found)
        else:
            respond(found)
