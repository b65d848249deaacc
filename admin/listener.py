"""Where clients connect: admission, and the bytes of all their requests together."""

from __future__ import annotations

import asyncio
from typing import Final

from admin.client import Client
from admin.endpoint_tls import EndpointTls
from admin.limits import Limits
from admin.ports import Controller, Directory
from admin.streams import Stream, Watched
from brokers.inbound import Quiet
from brokers.wire.primitives import Malformed

_BACKLOG: Final = 512


class AdminListener:
    """Serves from :meth:`start` to :meth:`stop`. ``shared``: brokers find their controller here, too."""

    def __init__(
        self,
        host: str,
        port: int,
        directory: Directory,
        controller: Controller,
        limits: Limits | None = None,
        tls: EndpointTls | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self.shared = shared
        self.limits = limits or Limits()
        self.quiet = Quiet()
        self.tls = tls
        self.directory = directory
        self.controller = controller
        self.buffered_bytes = 0
        self._address = host, port
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Binds; raises OSError naming the address."""
        host, port = self._address
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._accept,
                host,
                port,
                backlog=_BACKLOG,
                ssl=self.tls.clients.server() if self.tls is not None else None,
                ssl_handshake_timeout=self.limits.frame_timeout_ms / 1000 if self.tls is not None else None,
            )
        except OSError as error:
            raise OSError(
                error.errno,
                f"the admin endpoint cannot listen on {host}:{port}: {error}; free it or set another port",
            ) from error

    @property
    def port(self) -> int:
        """The port that it is bound to."""
        if self._server is None or not self._server.sockets:
            raise RuntimeError("the admin endpoint is not started")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """Open connections of clients."""
        return len(self._clients)

    async def stop(self) -> None:
        """Closes the socket and every connection; calls under way are abandoned."""
        if self._server is not None:
            self._server.close()
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def reserve(self, size: int) -> None:
        """See :class:`admin.client.Host`."""
        self.buffered_bytes += size
        if size > 0 and self.buffered_bytes > self.limits.buffered_bytes_max:
            self.buffered_bytes -= size
            raise Malformed("too many bytes are being sent by all clients together")

    def _accept(self) -> Watched:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            stream = Stream(reader, writer, self.limits.frame_timeout_ms)
            if len(self._clients) >= self.limits.connections_max:
                self._full(stream)
                return
            task = asyncio.create_task(Client(self, stream).serve())
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)
            protocol.on_lost = lambda: _end(task)

        protocol = Watched(connected)
        return protocol

    def _full(self, stream: Stream) -> None:
        self.quiet.warn(
            "",
            "connections",
            f"a connection from {stream.peer} is refused: {self.limits.connections_max} are open; "
            "raise admin.connections_max or find out who holds them",
        )
        stream.abort()


def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
