"""Frames: a 4-byte length and that many bytes. Cutting is pure; :class:`FrameConnection` is the client's side of it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, cast

from brokers.wire.primitives import Malformed

_LENGTH: Final = Struct(">i")
FRAMES_MAX: Final = 100
"""Frames that may come at once: neither brokers nor endpoints send another before they have the answer."""


class FrameBuffer:
    """Cuts a byte stream into frames. Holds at most one incomplete frame and what came with the last chunk."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.limit = frame_bytes_max
        """Longest frame that is taken from now on, in bytes."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that ``data`` completes; raises :class:`Malformed` at a length outside of the limit."""
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            end = start + _LENGTH.size + self._length(start)
            if end > len(buffer):
                break
            if len(frames) == FRAMES_MAX:
                raise Malformed(f"more than {FRAMES_MAX} frames at once")
            with memoryview(buffer) as view:
                frames.append(bytes(view[start + _LENGTH.size : end]))
            start = end
        if start:
            del buffer[:start]
        return frames

    def _length(self, start: int) -> int:
        length: int = _LENGTH.unpack_from(self._buffer, start)[0]
        if not 0 <= length <= self.limit:
            raise Malformed(f"a frame of {length} bytes where at most {self.limit} are allowed")
        return length

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._buffer)

    @property
    def announced(self) -> int:
        """Bytes that the incomplete frame will have; 0 while its length is unknown."""
        return _LENGTH.unpack_from(self._buffer)[0] if len(self._buffer) >= _LENGTH.size else 0

    def head(self, size: int) -> bytes | None:
        """The first bytes of the incomplete frame, None while fewer are there."""
        end = _LENGTH.size + size
        return bytes(self._buffer[_LENGTH.size : end]) if len(self._buffer) >= end else None

    @property
    def held(self) -> int:
        """Bytes of the incomplete frame that are there."""
        return len(self._buffer)


def reason(error: OSError) -> str:
    """What went wrong, in the system's words where there are some."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the other side's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


class ConnectionLost(OSError):
    """The connection ended; whether the last request arrived is unknown."""


class FrameConnection(asyncio.Protocol):
    """One request in flight on one TCP connection. ``on_lost`` is called once when the connection ends."""

    def __init__(self, frame_bytes_max: int, on_lost: Callable[[], None] | None = None) -> None:
        self._frames = FrameBuffer(frame_bytes_max)
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._lost: str | None = None
        self._retired = False

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._lost is not None

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        """Writes one framed request and returns the next frame. Cancelled or failed, the connection is closed."""
        if self._transport is None or self._lost is not None:
            raise ConnectionLost(self._lost or "not connected")
        assert self._answer is None, "one request in flight"
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines(parts)
        try:
            return await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None
            if self._retired:
                self.close()

    def retire(self) -> None:
        """Ends the connection once no request is in flight."""
        self._retired = True
        if self._answer is None:
            self.close()

    def close(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._transport = transport
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        try:
            frames = self._frames.feed(data)
        except Malformed as error:
            self._fail(str(error))
            return
        for frame in frames:
            if self._answer is None or self._answer.done():
                self._fail("bytes that no request asked for")
                return
            self._answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        why = reason(exc) if isinstance(exc, OSError) else str(exc or "closed by the other side")
        self._lost = self._lost or why
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionLost(self._lost))
        if self._on_lost is not None:
            self._on_lost()

    def _fail(self, why: str) -> None:
        self._lost = why
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionLost(why))
        self.close()
