"""Accepts clients' connections, and bounds their number and the bytes of all their requests."""

from __future__ import annotations

import asyncio
from functools import partial

from admin.client import Client
from admin.endpoint_tls import EndpointTls
from admin.limits import Limits
from admin.ports import ControllerPort, Directory
from admin.streams import Stream, Watched
from brokers.listener.binding import unbound
from brokers.listener.connection_slots import ConnectionSlot, ConnectionSlots
from brokers.listener.entrance import Entrance
from brokers.rate_limited_log import RateLimitedLog


class AdminListener:
    """Serves from :meth:`start` to :meth:`stop`. ``shared``: brokers use it as their controller's address, too."""

    def __init__(
        self,
        host: str,
        port: int,
        directory: Directory,
        controller: ControllerPort,
        limits: Limits | None = None,
        tls: EndpointTls | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self.shared = shared
        self.limits = limits or Limits()
        self.limited_log = RateLimitedLog()
        self.tls = tls
        self.directory = directory
        self.controller = controller
        self._address = host, port
        wanted = self.limits
        self.slots = ConnectionSlots(
            wanted.connections_max, wanted.connections_per_address_max, wanted.buffered_bytes_max
        )
        self._entrance = Entrance(
            self.slots,
            self._accept,
            self._full,
            tls=tls.clients if tls is not None else None,
            timeout_ms=wanted.frame_timeout_ms,
        )
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Binds the socket; raises OSError naming the address."""
        host, port = self._address
        try:
            await self._entrance.open(host, port)
        except OSError as error:
            raise unbound("the admin endpoint", "admin.port", host, port, error) from error

    @property
    def port(self) -> int:
        """Returns the bound port."""
        if (port := self._entrance.port) is None:
            raise RuntimeError("the admin endpoint is not started")
        return port

    @property
    def connections(self) -> int:
        """Returns the number of open connections of clients, handshakes in progress included."""
        return self.slots.open

    @property
    def buffered_bytes(self) -> int:
        """Returns the bytes of all requests in progress and of their decoded items."""
        return self.slots.held

    async def stop(self) -> None:
        """Closes the socket and every connection; abandons the calls in progress."""
        await self._entrance.close()
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)

    def _accept(self, slot: ConnectionSlot) -> Watched:
        def connected(stream: Stream) -> None:
            if not slot.open:
                stream.abort()
                return
            task = asyncio.create_task(Client(self, stream, slot).serve())
            self._clients.add(task)
            task.add_done_callback(partial(self._served, stream))
            slot.give_way = task.cancel
            protocol.on_lost = lambda: _end(task, slot)

        protocol = Watched(connected, self.limits.frame_timeout_ms)
        return protocol

    def _served(self, stream: Stream, task: asyncio.Task[None]) -> None:
        """Ends the connection also where the task was cancelled before its first step."""
        self._clients.discard(task)
        if task.cancelled():
            stream.abort()

    def _full(self, peer: str) -> None:
        limits = self.limits
        self.limited_log.warn(
            "",
            "connections",
            f"a connection from {peer} is refused: all {limits.connections_max} connections, or all "
            f"{limits.connections_per_address_max} of its address, are in use; raise admin.connections_max or "
            "admin.connections_per_address_max, or find the clients that hold them",
        )


def _end(task: asyncio.Task[None], slot: ConnectionSlot) -> None:
    task.cancel()
    slot.leave()
