"""One connection of a broker to the controller: frames in, one call at a time, slow and garbled peers cut off."""

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
from brokers.wire.beside import LARGE_BYTES
from brokers.wire.calls import Header
from brokers.wire.frames import FrameBuffer
from brokers.wire.primitives import Malformed, Reader

log = logging.getLogger("regent.listener")

HEAD_BYTES: Final = 1_024
"""What tells whether the rest of a large request is taken."""


class ListenerLimits(Struct, frozen=True):
    """Bounds of a listener.

    ``buffered_bytes_max``: bytes of all requests together that are received or carried out. ``frame_timeout_ms``: a
    request that has begun must be complete, an answer taken, and a connection must have been served, within it.
    ``calls_max``: calls of all connections under way. ``call_timeout_ms``: a call is answered by then; brokers give up
    after 30 s.
    """

    frame_bytes_max: int = 16_777_216
    connections_max: int = 2_000
    connections_per_address_max: int = 500
    buffered_bytes_max: int = 134_217_728
    frame_timeout_ms: int = 10_000
    idle_timeout_ms: int = 600_000
    calls_max: int = 2_000
    call_timeout_ms: int = 25_000


class Host(Protocol):
    """What a connection needs of its listener."""

    limits: ListenerLimits
    quiet: RateLimitedLog

    async def answer(self, frame: bytes, connection: InboundConnection | None = None) -> bytes:
        """The framed response to one request; raises Malformed where there can be none."""

    def expects(self, head: bytes, connection: InboundConnection) -> bool:
        """Whether the rest of a large request is taken from a connection that has not proven itself."""

    def came(self, connection: InboundConnection) -> None:
        """The connection is there."""

    def left(self, connection: InboundConnection) -> None:
        """The connection ended."""


class Admission(Protocol):
    """How far a connection's authentication is."""

    @property
    def user(self) -> str | None:
        """Who it is; None until it has authenticated."""

    @property
    def over(self) -> bool:
        """Whether it failed: the connection ends with the answer."""

    def answer(self, header: Header, reader: Reader) -> bytes:
        """The framed response to one request of who has not authenticated; raises Malformed where there is none."""


class InboundConnection(asyncio.Protocol):
    """Reads no further while a call is under way, so a peer occupies one call and one buffer at most."""

    def __init__(self, host: Host, slot: ConnectionSlot) -> None:
        self._host = host
        self.slot = slot
        self._frames = FrameBuffer(host.limits.frame_bytes_max)
        self._waiting: deque[bytes] = deque()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._served_bytes = 0
        self._expected = 0
        """Bytes of the incomplete request whose rest is taken, as its beginning was judged."""
        self.peer = "unknown peer"
        self._due: asyncio.TimerHandle | None = None
        self.admission: Admission | None = None
        """What it has shown of itself, where it must authenticate."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """None once the connection has ended."""
        return self._transport

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer connected."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._transport = transport
        address = self._transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else self.peer
        self.slot.give_way = self.abort
        if not self.slot.open:
            self._transport.abort()
            return
        self._host.came(self)
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limits = self._host.limits
        self._watch_idle(limits.idle_timeout_ms)
        self._due = asyncio.get_running_loop().call_later(limits.frame_timeout_ms / 1000, self._unless_served)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        began = self._frames.partial
        try:
            if frames := self._frames.feed(data):
                self._waiting.extend(frames)
                self._expected = 0
            self._hold()
            self._judge_large()
        except Malformed as error:
            self.refuse("frame", str(error))
            return
        if self._waiting and self._task is None:
            self._unwatch()
            assert self._transport is not None
            self._transport.pause_reading()
            self._task = asyncio.create_task(self._serve())
        elif self._task is None and not began:
            self._watch(self._host.limits.frame_timeout_ms, "a request does not arrive whole in time")

    def pause_writing(self) -> None:
        """The peer does not take its answer."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The peer took it."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended; a call under way goes on, its answer is dropped."""
        self._unwatch()
        if self._due is not None:
            self._due.cancel()
        self._transport = None
        self._writable.set()
        self.slot.leave()
        self._host.left(self)

    # -- serving

    async def _serve(self) -> None:
        try:
            while self._waiting and self._transport is not None:
                frame = self._waiting.popleft()
                self._served_bytes = len(frame)
                reply = await self._host.answer(frame, self)
                self._served_bytes = 0
                if self._transport is not None:
                    self._transport.write(reply)
                    await self._taken()
                if self.admission is not None and self._judged(self.admission):
                    return
                self._hold()
                await asyncio.sleep(0)  # others are served in between, however many requests came at once
        except Malformed as error:
            self.refuse("call", str(error))
        except Exception:
            log.exception("a call of %s failed; its connection is closed", self.peer)
            self.abort()
        finally:
            self._task = None
        self._read_on()

    def _judged(self, admission: Admission) -> bool:
        """Whether the connection ends here: what was written is still sent."""
        if admission.over and self._transport is not None:
            self._host.quiet.warn(self.peer, "sasl", f"a connection from {self.peer} fails to authenticate")
            self._transport.close()
        elif admission.user is not None:
            self.slot.prove()
            self._frames.limit = self._host.limits.frame_bytes_max
        return admission.over

    def must_authenticate(self, admission: Admission, frame_bytes_max: int) -> None:
        """Until it has, its requests must be small."""
        self.admission = admission
        self._frames.limit = frame_bytes_max

    def _unless_served(self, *, late: bool = False) -> None:
        """Whoever only connects, or asks what anybody may, must not hold a place that brokers need."""
        if self.slot.proven:
            return
        if late or self._task is None:
            self.abort()
            return
        limit_s = self._host.limits.call_timeout_ms / 1000  # its first call may be under way
        self._due = asyncio.get_running_loop().call_later(limit_s, partial(self._unless_served, late=True))

    @property
    def trusted(self) -> bool:
        """Whether it need not authenticate, or has."""
        return self.admission is None or self.admission.user is not None

    async def _taken(self) -> None:
        if not self._writable.is_set():
            self._watch(self._host.limits.frame_timeout_ms, "it does not take its answer in time")
            await self._writable.wait()
            self._unwatch()

    def _read_on(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._frames.partial:
            self._watch(self._host.limits.frame_timeout_ms, "a request does not arrive whole in time")
        else:
            self._watch_idle(self._host.limits.idle_timeout_ms)
        self._transport.resume_reading()

    def _hold(self) -> None:
        """Counts what came, not what was announced: else a few who send nothing could keep all others out."""
        if not self.slot.hold(self._frames.held + sum(map(len, self._waiting)) + self._served_bytes):
            raise Malformed("too many bytes are being sent by all peers together")

    def _judge_large(self) -> None:
        """By its beginning, before its rest comes: from strangers nothing large is taken."""
        announced = self._frames.announced
        if announced <= LARGE_BYTES or self.slot.proven or self._expected == announced:
            return
        head = self._frames.head(HEAD_BYTES)
        if head is not None and not self._host.expects(head, self):
            raise Malformed(f"a request of {announced} bytes from a connection that has shown no right to it")
        self._expected = announced if head is not None else 0

    # -- ending

    def refuse(self, kind: str, why: str) -> None:
        """Closes this connection and says why."""
        self._host.quiet.warn(self.peer, kind, f"a connection from {self.peer} is closed: {why}")
        self.abort()

    def abort(self) -> None:
        """Closes it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _watch(self, timeout_ms: int, what: str) -> None:
        self._unwatch()
        self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self.refuse, "slow", what)

    def _watch_idle(self, timeout_ms: int) -> None:
        """An idle connection ends without a word: brokers open a new one when they need it."""
        self._unwatch()
        self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self.abort)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
