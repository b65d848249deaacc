"""Reads a controller's connection to a simulated broker without copying large bodies.

The first bytes of a request are read into a small buffer. Behind its head the rest of a big request is received into a
buffer of its own, of exactly its size.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from brokers.wire.primitives import BadMessage, Reader
from testing.simulated.requests import VERSIONS, read_head
from testing.simulated.values import Head

FRAME_BYTES_MAX: Final = 104_857_600
"""Kafka's default of ``socket.request.max.bytes``."""
HEAD_BYTES_MAX: Final = 512
"""Bytes within which the head of a request ends; client ids are short."""
FIRST_BYTES: Final = 4096
ARRIVING_BYTES_MAX: Final = 1 << 30
"""Kafka's controller sends the metadata of a million partitions to all brokers at once: 48 MB to each."""
_LENGTH_BYTES: Final = 4

Respond = Callable[[bytes], None]
"""Sends a response without its length, unless the connection has ended."""


class Listener(Protocol):
    """The broker that a connection leads to. Times are nanoseconds of the monotonic clock."""

    def joined(self, connection: Incoming) -> None:
        """Notes a new connection."""

    def left(self, connection: Incoming) -> None:
        """Notes the end of a connection."""

    def request(self, head: Head, body: bytes | bytearray, size: int, at_ns: int, respond: Respond) -> None:
        """Takes a controller's request, complete at ``at_ns``; ``size`` counts its length field. Raises BadMessage."""

    def query(self, frame: bytes, respond: Respond) -> None:
        """Takes any other request, without its length; raises BadMessage."""


class Room:
    """Limits the space that arriving requests may occupy together; without room, reading pauses."""

    def __init__(self, bytes_max: int = ARRIVING_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def take(self, size: int, enter: Callable[[], None]) -> None:
        """Calls ``enter`` once there is room; one request always has it. Each must be given back."""
        self._waiting.append((size, enter))
        self._admit()

    def give_back(self, size: int) -> None:
        """Frees the space of a request that has arrived, or whose connection ended."""
        self._used -= size
        self._admit()

    def _admit(self) -> None:
        while self._waiting and (not self._used or self._used + self._waiting[0][0] <= self._bytes_max):
            size, enter = self._waiting.popleft()
            self._used += size
            enter()


class Incoming(asyncio.BufferedProtocol):
    """Cuts the stream into requests; malformed bytes close the connection."""

    def __init__(self, listener: Listener, room: Room) -> None:
        self._listener = listener
        self._room = room
        self._transport: asyncio.Transport | None = None
        self._first = bytearray(FIRST_BYTES)
        self._filled = 0
        self._body: bytearray | None = None
        self._head: Head | None = None
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the connection; asyncio calls it."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._listener.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the connection; asyncio calls it."""
        self._transport = None
        if self._body is not None:
            self._room.give_back(len(self._body))
            self._body = None
        self._listener.left(self)

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the buffer to fill; asyncio calls it."""
        return memoryview(self._first if self._body is None else self._body)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Takes the bytes in the buffer; asyncio calls it."""
        self._filled += nbytes
        try:
            if self._body is None:
                self._cut()
            elif self._filled == len(self._body):
                self._complete(self._body)
        except BadMessage:
            self.abort()

    def _complete(self, body: bytearray) -> None:
        head = self._head
        assert head is not None
        self._body, self._head, self._filled = None, None, 0
        self._room.give_back(len(body))
        self._listener.request(head, body, self._size, time.monotonic_ns(), self._send)

    def _cut(self) -> None:
        """Takes the requests that are whole in the first buffer, and begins a big one."""
        while self._filled >= _LENGTH_BYTES:
            size = int.from_bytes(self._first[:_LENGTH_BYTES], "big", signed=True)
            if not 8 <= size <= FRAME_BYTES_MAX:
                raise BadMessage(f"a request of {size} bytes")
            end = _LENGTH_BYTES + size
            if self._filled >= end:
                frame, rest = bytes(self._first[_LENGTH_BYTES:end]), self._first[end : self._filled]
                self._first[: len(rest)] = rest
                self._filled = len(rest)
                self._small(frame)
            elif self._filled < min(end, HEAD_BYTES_MAX):
                return
            else:
                self._begin(size)
                return

    def _small(self, frame: bytes) -> None:
        if int.from_bytes(frame[:2], "big") not in VERSIONS:
            self._listener.query(frame, self._send)
            return
        reader = Reader(frame)
        head = read_head(reader)
        size = _LENGTH_BYTES + len(frame)
        self._listener.request(head, frame[reader.position :], size, time.monotonic_ns(), self._send)

    def _begin(self, size: int) -> None:
        """Begins a request whose head is here and whose body is not."""
        reader = Reader(bytes(self._first[_LENGTH_BYTES : self._filled]))
        self._head, self._size = read_head(reader), _LENGTH_BYTES + size
        assert self._transport is not None
        self._transport.pause_reading()
        body_size, here = size - reader.position, reader.data[reader.position :]
        self._room.take(body_size, lambda: self._enter(body_size, here))

    def _enter(self, size: int, here: bytes) -> None:
        """Enters the body, for which there is room now, and of which ``here`` has arrived."""
        if self._transport is None:
            self._room.give_back(size)
            return
        self._body = bytearray(size)
        self._body[: len(here)] = here
        self._filled = len(here)
        self._transport.resume_reading()

    def _send(self, response: bytes) -> None:
        if self._transport is not None:
            self._transport.write(len(response).to_bytes(4, "big") + response)
