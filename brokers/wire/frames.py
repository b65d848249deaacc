"""Cuts streams into frames, a 4-byte length and as many bytes each, and exchanges frames as a client."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from struct import Struct
from typing import Final, TypeVar, cast

from brokers.wire.primitives import BadMessage

_LENGTH: Final = Struct(">i")
FRAMES_MAX: Final = 100
"""Most frames that may arrive at once: brokers and endpoints send the next request after the response."""


class FrameBuffer:
    """Cuts a byte stream into frames, without I/O. It holds at most one incomplete frame and the last chunk."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.limit = frame_bytes_max
        """Longest frame that is accepted from now on, in bytes."""
        self._buffer = bytearray()
        self._skipped = 0
        """Bytes to come of a frame that is not kept."""

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the frames that ``data`` completes; raises :class:`BadMessage` at a length outside of the limit."""
        buffer = self._buffer
        frames: list[bytes] = []
        if self._skipped:
            passed = min(self._skipped, len(data))
            self._skipped -= passed
            if self._skipped:
                return frames
            frames.append(b"")
            data = data[passed:]
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            end = start + _LENGTH.size + self._length(start)
            if end > len(buffer):
                break
            if len(frames) == FRAMES_MAX:
                raise BadMessage(f"more than {FRAMES_MAX} frames at once")
            with memoryview(buffer) as view:
                frames.append(bytes(view[start + _LENGTH.size : end]))
            start = end
        if start:
            del buffer[:start]
        return frames

    def _length(self, start: int) -> int:
        length: int = _LENGTH.unpack_from(self._buffer, start)[0]
        if not 0 <= length <= self.limit:
            raise BadMessage(f"a frame of {length} bytes where at most {self.limit} are allowed")
        return length

    def skip(self) -> None:
        """Keeps nothing of the incomplete frame, whose length is known: once it has come it is empty."""
        self._skipped = _LENGTH.size + self.announced - len(self._buffer)
        self._buffer.clear()

    @property
    def partial(self) -> bool:
        """Returns whether a frame has begun and is not complete."""
        return bool(self._buffer) or self._skipped > 0

    @property
    def announced(self) -> int:
        """Returns the announced size of the incomplete frame; 0 while its length is unknown."""
        return _LENGTH.unpack_from(self._buffer)[0] if len(self._buffer) >= _LENGTH.size else 0

    def head(self, size: int) -> bytes | None:
        """Returns the first bytes of the incomplete frame, None while it has fewer."""
        end = _LENGTH.size + size
        return bytes(self._buffer[_LENGTH.size : end]) if len(self._buffer) >= end else None

    @property
    def held(self) -> int:
        """Returns the number of received bytes of the incomplete frame."""
        return len(self._buffer)


def reason(error: OSError) -> str:
    """Returns the cause of an error, in the system's words where there are some."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return "no response in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the other side's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


class ConnectionLost(OSError):
    """Raised where the connection ended; whether the last request arrived is unknown."""


class FrameConnection(asyncio.Protocol):
    """Exchanges one request at a time on one TCP connection. It calls ``on_lost`` once, when the connection ends."""

    def __init__(self, frame_bytes_max: int, on_lost: Callable[[], None] | None = None) -> None:
        self._frames = FrameBuffer(frame_bytes_max)
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[bytes] | None = None
        self._lost: str | None = None
        self._retired = False

    @property
    def closed(self) -> bool:
        """Returns whether the connection can send nothing any more."""
        return self._transport is None or self._lost is not None

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        """Writes one framed request and returns the next frame. A cancellation or failure closes the connection."""
        if self._transport is None or self._lost is not None:
            raise ConnectionLost(self._lost or "not connected")
        assert self._response is None, "one request in flight"
        self._response = asyncio.get_running_loop().create_future()
        self._transport.writelines(parts)
        try:
            return await self._response
        except BaseException:
            self.close()
            raise
        finally:
            self._response = None
            if self._retired:
                self.close()

    def retire(self) -> None:
        """Ends the connection once no request is in flight."""
        self._retired = True
        if self._response is None:
            self.close()

    def close(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from it
        self._transport = transport
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        try:
            frames = self._frames.feed(data)
        except BadMessage as error:
            self._fail(str(error))
            return
        for frame in frames:
            if self._response is None or self._response.done():
                self._fail("bytes without a request")
                return
            self._response.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        why = reason(exc) if isinstance(exc, OSError) else str(exc or "closed by the other side")
        self._lost = self._lost or why
        if self._response is not None and not self._response.done():
            self._response.set_exception(ConnectionLost(self._lost))
        if self._on_lost is not None:
            self._on_lost()

    def _fail(self, why: str) -> None:
        self._lost = why
        if self._response is not None and not self._response.done():
            self._response.set_exception(ConnectionLost(why))
        self.close()


T = TypeVar("T")

LARGE_BYTES: Final = 32_768
"""Size up to which the loop decodes a message itself: that takes some tens of milliseconds at most."""

_thread: Final = ThreadPoolExecutor(1, "reader")


async def run_off_loop(work: Callable[[], T], size: int) -> T:
    """Runs ``work`` on a message of ``size`` bytes, on the thread if that is large, and returns the result.

    A cancellation leaves running work to end by itself: the bounds of a message limit it.
    """
    if size <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
