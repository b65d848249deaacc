"""Serves one connection of a broker to the controller: one call at a time; slow and malformed peers are cut off."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from functools import partial
from typing import Final, Protocol, cast

from msgspec import Struct

from brokers.listener.connection_slots import ConnectionSlot
from brokers.rate_limited_log import RateLimitedLog
from brokers.wire.calls import Header
from brokers.wire.frames import LARGE_BYTES, FrameBuffer
from brokers.wire.primitives import BadMessage, Reader

log = logging.getLogger("regent.listener")

HEAD_BYTES: Final = 1_024
"""Bytes of a large request that decide whether its rest is accepted."""


class ListenerLimits(Struct, frozen=True):
    """Bounds of a listener.

    ``buffered_bytes_max`` bounds the bytes of all requests that are being received or carried out.
    ``frame_timeout_ms`` bounds the rest of a partly received request, the sending of a response, and the time until a
    connection is served. ``calls_max`` bounds the calls of all connections in progress. ``call_timeout_ms`` bounds the
    time until a call's response; brokers time out after 30 s.
    """

    frame_bytes_max: int = 16_777_216
    connections_max: int = 2_000
    connections_per_address_max: int = 500
    buffered_bytes_max: int = 134_217_728
    frame_timeout_ms: int = 10_000
    idle_timeout_ms: int = 600_000
    calls_max: int = 2_000
    call_timeout_ms: int = 25_000


class Listener(Protocol):
    """The part of the listener that a connection uses."""

    limits: ListenerLimits
    limited_log: RateLimitedLog

    async def respond(self, frame: bytes, connection: InboundConnection | None = None) -> bytes:
        """Returns the framed response to one request; raises BadMessage where there can be none."""

    def expects(self, head: bytes, connection: InboundConnection) -> bool:
        """Returns whether to accept the rest of a large request from an unproven connection."""

    def opened(self, connection: InboundConnection) -> None:
        """Registers a new connection."""

    def closed(self, connection: InboundConnection) -> None:
        """Removes an ended connection."""


class Authentication(Protocol):
    """The state of a connection's authentication."""

    @property
    def user(self) -> str | None:
        """Returns the authenticated user; None before."""

    @property
    def over(self) -> bool:
        """Returns whether authentication failed: the connection ends after the response."""

    def respond(self, header: Header, reader: Reader) -> bytes:
        """Returns the framed response to a request before authentication; raises BadMessage where there is none."""


class InboundConnection(asyncio.Protocol):
    """Reads no further while a call is in progress, so a peer occupies one call and one buffer at most."""

    def __init__(self, listener: Listener, slot: ConnectionSlot) -> None:
        self._listener = listener
        self.slot = slot
        self._frames = FrameBuffer(listener.limits.frame_bytes_max)
        self._waiting: deque[bytes] = deque()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._served_bytes = 0
        self._expected = 0
        """Announced bytes of the incomplete request whose rest is accepted, because its beginning was checked."""
        self.peer = "unknown peer"
        self._due: asyncio.TimerHandle | None = None
        self.authentication: Authentication | None = None
        """The state of its authentication; None where it need not authenticate."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """Returns the transport, None once the connection has ended."""
        return self._transport

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers a new connection."""
        transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from it
        self._transport = transport
        address = self._transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else self.peer
        self.slot.give_way = self.abort
        if not self.slot.open:
            self._transport.abort()
            return
        self._listener.opened(self)
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limits = self._listener.limits
        self._watch_idle(limits.idle_timeout_ms)
        self._due = asyncio.get_running_loop().call_later(limits.frame_timeout_ms / 1000, self._unless_served)

    def data_received(self, data: bytes) -> None:
        """Takes received bytes, and serves a complete request."""
        began = self._frames.partial
        try:
            if frames := self._frames.feed(data):
                self._waiting.extend(frames)
                self._expected = 0
            self._hold()
            self._check_large()
        except BadMessage as error:
            self.refuse("frame", str(error))
            return
        if self._waiting and self._task is None:
            self._unwatch()
            assert self._transport is not None
            self._transport.pause_reading()
            self._task = asyncio.create_task(self._serve())
        elif self._task is None and not began:
            self._watch(self._listener.limits.frame_timeout_ms, "a request does not arrive whole in time")

    def pause_writing(self) -> None:
        """Notes that the peer does not take its response."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Notes that the peer has taken its response."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Releases an ended connection; a call in progress goes on, without a response."""
        self._unwatch()
        if self._due is not None:
            self._due.cancel()
        self._transport = None
        self._writable.set()
        self.slot.leave()
        self._listener.closed(self)

    # -- serving

    async def _serve(self) -> None:
        try:
            while self._waiting and self._transport is not None:
                self._served_bytes = len(self._waiting[0])
                reply = await self._listener.respond(self._waiting.popleft(), self)
                self._served_bytes = 0
                if self._transport is not None:
                    self._transport.write(reply)
                    await self._taken()
                if self.authentication is not None and self._ends(self.authentication):
                    return
                self._hold()
                if self._waiting:
                    await asyncio.sleep(0)  # serves other connections in between, however many arrived at once
        except BadMessage as error:
            self.refuse("call", str(error))
        except Exception as error:
            sentence = f"a call of {self.peer} failed; its connection is closed"
            self._listener.limited_log.error(log, "call", sentence, error)
            self.abort()
        finally:
            self._task = None
        self._read_on()

    def _ends(self, authentication: Authentication) -> bool:
        """Ends the connection after failed authentication, with its response sent; returns whether it ends."""
        if authentication.over and self._transport is not None:
            self._listener.limited_log.warn(self.peer, *self._refusal())
            self._transport.close()
        elif authentication.user is not None:
            self._authenticated()
        return authentication.over

    def _refusal(self) -> tuple[str, str]:
        """Returns the kind and the sentence of the log about a connection that failed to authenticate."""
        return "sasl", f"a connection from {self.peer} failed to authenticate"

    def _authenticated(self) -> None:
        """Lets the connection send large requests, and keep its slot."""
        self.slot.prove()
        self._frames.limit = self._listener.limits.frame_bytes_max

    def must_authenticate(self, authentication: Authentication, frame_bytes_max: int) -> None:
        """Requires authentication, and limits the size of requests until then."""
        self.authentication = authentication
        self._frames.limit = frame_bytes_max

    def _unless_served(self, *, late: bool = False) -> None:
        """Ends a connection that was never served: it must not hold a slot that brokers need.

        A first call may take its time. A handshake may not: a peer that repeats it has one in progress at any moment.
        """
        if self.slot.proven:
            return
        if self._task is None and self._frames.partial:
            self.refuse("slow", "a request does not arrive whole in time")
            return
        if late or self._task is None or not self.trusted:
            self.abort()
            return
        limit_s = self._listener.limits.call_timeout_ms / 1000
        self._due = asyncio.get_running_loop().call_later(limit_s, partial(self._unless_served, late=True))

    def release(self) -> None:
        """Counts the bytes of the request under way no longer: it is decoded."""
        self._served_bytes = 0
        self._hold()

    @property
    def trusted(self) -> bool:
        """Returns whether the connection has authenticated, or need not."""
        return self.authentication is None or self.authentication.user is not None

    async def _taken(self) -> None:
        if not self._writable.is_set():
            self._watch(self._listener.limits.frame_timeout_ms, "it does not take its response in time")
            await self._writable.wait()
            self._unwatch()

    def _read_on(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._frames.partial:
            self._watch(self._listener.limits.frame_timeout_ms, "a request does not arrive whole in time")
        else:
            self._watch_idle(self._listener.limits.idle_timeout_ms)
        self._transport.resume_reading()

    def _hold(self) -> None:
        """Counts received bytes, not announced ones: else a few idle peers could keep all others out."""
        if not self.slot.hold(self._frames.held + sum(map(len, self._waiting)) + self._served_bytes):
            raise BadMessage("all peers together are sending too many bytes")

    def _check_large(self) -> None:
        """Checks a large request by its beginning, before its rest arrives: unknown peers may send nothing large."""
        announced = self._frames.announced
        if announced <= LARGE_BYTES or self.slot.proven or self._expected == announced:
            return
        head = self._frames.head(HEAD_BYTES)
        if head is not None and not self._listener.expects(head, self):
            raise BadMessage(f"a request of {announced} bytes from a connection that may not send large ones")
        self._expected = announced if head is not None else 0

    # -- ending

    def refuse(self, kind: str, why: str) -> None:
        """Closes this connection and logs why."""
        self._listener.limited_log.warn(self.peer, kind, f"a connection from {self.peer} is closed: {why}")
        self.abort()

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _watch(self, timeout_ms: int, why: str) -> None:
        self._unwatch()
        self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self.refuse, "slow", why)

    def _watch_idle(self, timeout_ms: int) -> None:
        """Ends an idle connection without a log line: brokers open a new one when they need it."""
        self._unwatch()
        self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self.abort)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
