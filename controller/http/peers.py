"""Who is at the other end of the unix socket: the kernel says so (SO_PEERCRED), no request can pretend."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol

_UCRED: Final = struct.Struct("3i")
_PREFIX: Final = "uid:"


class Peer(NamedTuple):
    """The process that connected, as it was at that moment."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    """Credentials of the process at the other end of a connected unix socket."""
    return Peer(*_UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def uid_of(client: tuple[str, int] | None) -> int | None:
    """The uid that :class:`PeerProtocol` put into an ASGI scope's ``client``; None if there is none."""
    host = client[0] if client else ""
    return int(host.removeprefix(_PREFIX)) if host.startswith(_PREFIX) else None


class PeerProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with the peer's uid and pid where TCP has host and port."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection: note who it is."""
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("socket"))
        self.client = (f"{_PREFIX}{peer.uid}", peer.pid)
        # As if it had been answered once: a peer that sends no whole request in time must not hold a place for ever.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
