"""Who is at the other end of the unix socket: the kernel says so (SO_PEERCRED), no request can pretend."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

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
    """uvicorn's HTTP/1.1 with the peer's uid and pid where TCP has host and port.

    A peer that does not send a whole request in the time of an idle connection is cut off: uvicorn itself would let it
    hold one of the places for ever.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection: note who it is."""
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("socket"))
        self.client = (f"{_PREFIX}{peer.uid}", peer.pid)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes: maybe the end of a request."""
        super().data_received(data)
        if self._answering:
            self._unwatch()

    def on_response_complete(self) -> None:
        """Answered: the next request has its time."""
        super().on_response_complete()
        if not self._answering:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._unwatch()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _watch(self) -> None:
        self._unwatch()
        self._deadline = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
