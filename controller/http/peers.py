"""Who is at the other end: on the unix socket the kernel says so (SO_PEERCRED), over TCP a certificate may."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import Final, NamedTuple

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from brokers.listener.connection_slots import ConnectionSlot

_UCRED: Final = struct.Struct("3i")
_PREFIX: Final = "uid:"
CERTIFIED: Final = "certified"
"""Key of a scope's state: whether the client has shown a certificate of an authority that is trusted."""
PLACE: Final = "place"
"""Key of a scope's state: the place that the connection has at the TCP surface."""
_SILENT: Final = logging.getLogger("regent.http.remote")
_SILENT.setLevel(logging.CRITICAL)


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


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 that cuts a peer off which does not send a whole request in the time of an idle connection.

    uvicorn itself would let it hold one of the places for ever. ``answer_s_max``: longest time until an answer is
    complete, where there is one.
    """

    answer_s_max: float | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection."""
        super().connection_made(transport)
        self._watch(self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        """Bytes: maybe the end of a request."""
        answering = self._answering
        super().data_received(data)
        if self._answering and not answering:
            self._watch(self.answer_s_max)

    def on_response_complete(self) -> None:
        """Answered: to take the answer and to send the next request has its time."""
        super().on_response_complete()
        if not self._answering:
            self._watch(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._watch(None)
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _watch(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


class PeerProtocol(TimedProtocol):
    """On a unix socket: the peer's uid and pid stand where TCP has host and port."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection: note who it is."""
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("socket"))
        self.client = (f"{_PREFIX}{peer.uid}", peer.pid)


class RemoteProtocol(TimedProtocol):
    """Over TCP: notes whether the client has shown a certificate, and leaves its place when the connection is over.

    Strangers can send what they like, so nothing of it becomes a line of the log.
    """

    answer_s_max = 90.0

    def __init__(self, config: Config, server_state: ServerState, slot: ConnectionSlot) -> None:
        super().__init__(config, server_state, {})
        self._slot = slot
        self.logger = _SILENT

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The handshake is over, which has checked the certificate."""
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {CERTIFIED: tls is not None and bool(tls.getpeercert()), PLACE: self._slot}
        super().connection_made(transport)
        self._slot.give_way = transport.abort
        if not self._slot.open:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        self._slot.leave()
