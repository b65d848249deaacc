"""Binds a listener, and counts its connections: the base of all listeners of the daemon and of the admin endpoint."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Protocol

from brokers.listener.connection_slots import ConnectionSlot, ConnectionSlots
from brokers.listener.entrance import Entrance, ServerTls
from brokers.listener.inbound import InboundConnection, Listener, ListenerLimits
from brokers.rate_limited_log import RateLimitedLog


class Unbound(OSError):
    """Raised for an address that cannot be bound; the text names cause and remedy."""

    def __str__(self) -> str:
        return str(self.strerror)


def unbound(listener: str, key: str, host: str, port: int, error: OSError) -> Unbound:
    """Returns the error to raise for a failed bind of ``listener``, whose port is the setting ``key``."""
    number = error.errno or 0
    if number == errno.EADDRINUSE:
        cause, remedy = "another process listens there", f"stop that process, or set another {key}"
    else:
        cause = error.strerror or str(error)
        remedy = f"correct {key.partition('.')[0]}.host, or set another {key}"
    return Unbound(number, f"{listener} cannot listen on {host}:{port}: {cause}. Remedy: {remedy}")


class Bounds(Protocol):
    """Bounds of a listener's connections."""

    @property
    def connections_max(self) -> int:
        """Returns the most connections."""

    @property
    def connections_per_address_max(self) -> int:
        """Returns the most connections of one address."""

    @property
    def buffered_bytes_max(self) -> int:
        """Returns the most bytes of all requests that are being received or carried out."""

    @property
    def frame_timeout_ms(self) -> int:
        """Returns the longest time of a TLS handshake."""


class BoundListener:
    """Accepts connections from :meth:`start` on. ``name`` and ``section``: its own, and that of its settings."""

    def __init__(
        self,
        name: str,
        section: str,
        address: tuple[str, int],
        bounds: Bounds,
        new: Callable[[ConnectionSlot], asyncio.Protocol],
        *,
        tls: ServerTls | None = None,
        known: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._name = name
        self._section = section
        self._address = address
        self._bounds = bounds
        self.limited_log = RateLimitedLog()
        self.slots = ConnectionSlots(
            bounds.connections_max, bounds.connections_per_address_max, bounds.buffered_bytes_max, known
        )
        self._entrance = Entrance(self.slots, new, self._full, tls=tls, timeout_ms=bounds.frame_timeout_ms)

    async def start(self) -> None:
        """Binds the socket; raises OSError naming the address."""
        try:
            await self._entrance.open(*self._address)
        except OSError as error:
            raise unbound(self._name, f"{self._section}.port", *self._address, error) from error

    @property
    def host(self) -> str:
        """Returns the address that it listens on."""
        return self._address[0]

    @property
    def port(self) -> int:
        """Returns the bound port."""
        if (port := self._entrance.port) is None:
            raise RuntimeError(f"{self._name} is not started")
        return port

    @property
    def connections(self) -> int:
        """Returns the number of open connections, handshakes in progress included."""
        return self.slots.open

    def _full(self, peer: str) -> None:
        bounds, section = self._bounds, self._section
        self.limited_log.warn(
            "",
            "connections",
            f"a connection from {peer} is refused: all {bounds.connections_max} connections, or all "
            f"{bounds.connections_per_address_max} of its address, are in use; raise {section}.connections_max or "
            f"{section}.connections_per_address_max, or find the peers that hold them",
        )


class InboundListener(BoundListener, Listener):
    """Holds the connections, of a ``kind``, of a listener that serves one request of each at a time."""

    def __init__(
        self,
        name: str,
        section: str,
        address: tuple[str, int],
        limits: ListenerLimits | None,
        *,
        tls: ServerTls | None = None,
        known: Callable[[str], bool] = lambda _: False,
        kind: type[InboundConnection] = InboundConnection,
    ) -> None:
        self.limits = limits or ListenerLimits()
        new = partial(kind, self)
        super().__init__(name, section, address, self.limits, new, tls=tls, known=known)
        self._connections: set[InboundConnection] = set()

    def opened(self, connection: InboundConnection) -> None:
        """Registers a new connection."""
        self._connections.add(connection)

    def closed(self, connection: InboundConnection) -> None:
        """Removes an ended connection."""
        self._connections.discard(connection)

    def close_connections(self) -> None:
        """Closes every connection; peers connect again to the daemon that they know."""
        for connection in list(self._connections):
            connection.abort()
