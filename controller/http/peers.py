"""Identifies HTTP peers, on the unix socket by the kernel (SO_PEERCRED), over TCP by a certificate.

It also restricts changes to root and the daemon's own user, before a request's body is read.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from brokers.listener.connection_slots import ConnectionSlot
from controller.http.models import ErrorBody
from controller.process.wording import text_problem

_UCRED: Final = struct.Struct("3i")
_PREFIX: Final = "uid:"
CERTIFIED: Final = "certified"
"""Key of a scope's state: whether the client has shown a certificate of a trusted authority."""
SLOT: Final = "slot"
"""Key of a scope's state: the slot of the connection at the TCP surface."""
_SILENT: Final = logging.getLogger("regent.http.remote")
_SILENT.setLevel(logging.CRITICAL)
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_BYTES_MAX: Final = 1_048_576
"""Bytes of a request's body: a reassign plan of some thousand moves."""


class Peer(NamedTuple):
    """The process that connected, as it was at that moment."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    """Returns the credentials of the process at the other end of a connected unix socket."""
    return Peer(*_UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def uid_of(client: tuple[str, int] | None) -> int | None:
    """Returns the uid that :class:`PeerProtocol` put into an ASGI scope's ``client``; None without one."""
    host = client[0] if client else ""
    return int(host.removeprefix(_PREFIX)) if host.startswith(_PREFIX) else None


def principal_of(request: Request) -> str:
    """Returns the caller of a request, as procedures and marks name it."""
    return f"uid {uid_of(request.scope.get('client'))}"


class ChangeGuard:
    """Refuses large bodies, names with control characters, and changes by other peers than root and ``owner``."""

    def __init__(self, app: ASGIApp, owner: int) -> None:
        self._app = app
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves or refuses one request."""
        refusal = self._refusal(scope) if scope["type"] == "http" and scope["method"] not in READING else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        uid = uid_of(scope.get("client"))
        if uid is None or uid not in (0, self._owner):
            user = "an unknown user" if uid is None else f"user {uid}"
            remedy = f"run the command as root, or as user {self._owner} (the daemon's)"
            return _refused(403, f"{user} may read, but not change anything", remedy)
        if (problem := text_problem("path", scope["path"])) is not None:
            return _refused(400, problem, "see /openapi.json")
        length = Headers(scope=scope).get("content-length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > BODY_BYTES_MAX:
            remedy = f"send at most {BODY_BYTES_MAX} bytes, with their length"
            return _refused(413, f"a body of {length or 'unknown'} bytes is not read", remedy)
        return None


def _refused(status: int, message: str, remedy: str) -> Response:
    body = ErrorBody(message=message, remedy=remedy).model_dump_json(by_alias=True)
    return Response(body, status, media_type="application/json")


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with a deadline for requests: a peer must send a whole one within the keep-alive time.

    uvicorn itself would let a slow peer hold a connection for ever. ``answer_s_max``: longest time until a response is
    complete, None without a bound.
    """

    answer_s_max: float | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the deadline of the first request."""
        super().connection_made(transport)
        self._watch(self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        """Reads bytes; at the end of a request starts the deadline of its response."""
        answering = self._answering
        super().data_received(data)
        if self._answering and not answering:
            self._watch(self.answer_s_max)

    def on_response_complete(self) -> None:
        """Starts the deadline for the peer to take the response and to send its next request."""
        super().on_response_complete()
        if not self._answering:
            self._watch(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the deadline."""
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
    """HTTP on a unix socket: the scope's ``client`` has the peer's uid and pid in place of host and port."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Reads the peer's credentials."""
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("socket"))
        self.client = (f"{_PREFIX}{peer.uid}", peer.pid)


class RemoteProtocol(TimedProtocol):
    """HTTP over TCP: records whether the client has shown a certificate, and frees its slot at the end.

    No input of unauthenticated clients becomes a line of the log.
    """

    answer_s_max = 90.0

    def __init__(self, config: Config, server_state: ServerState, slot: ConnectionSlot) -> None:
        super().__init__(config, server_state, {})
        self._slot = slot
        self.logger = _SILENT

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins after the TLS handshake, which has checked the certificate."""
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {CERTIFIED: tls is not None and bool(tls.getpeercert()), SLOT: self._slot}
        super().connection_made(transport)
        self._slot.give_way = transport.abort
        if not self._slot.open:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Frees the slot of the connection."""
        super().connection_lost(exc)
        self._slot.leave()
