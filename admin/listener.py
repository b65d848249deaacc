"""Accepts clients' connections, and bounds their number and the bytes of all their requests."""

from __future__ import annotations

import asyncio
from functools import partial

from admin.client import Client
from admin.endpoint_tls import EndpointTls
from admin.limits import Limits
from admin.ports import ControllerPort, Directory
from admin.streams import Stream, Watched
from brokers.listener.bound_listener import BoundListener
from brokers.listener.connection_slots import ConnectionSlot


class AdminListener(BoundListener):
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
        of_clients = tls.clients if tls is not None else None
        super().__init__("the admin endpoint", "admin", (host, port), self.limits, self._accept, tls=of_clients)
        self.tls = tls
        self.directory = directory
        self.controller = controller
        self._clients: set[asyncio.Task[None]] = set()

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


def _end(task: asyncio.Task[None], slot: ConnectionSlot) -> None:
    task.cancel()
    slot.leave()
