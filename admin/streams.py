"""Provides streams for both ends of a relayed connection, with their TLS, and connects a client to its broker."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import sample
from typing import Final

from msgspec import Struct

from admin.ports import CHUNK_BYTES, Address, EndpointLimits
from brokers.security.tls import Tls
from brokers.wire.frames import reason
from configs.settings import Settings


class Stream:
    """Reads and writes one connection; each wait has a limit."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_ms: int) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_ms / 1000
        self._over = False
        self._ending: asyncio.TimerHandle | None = None
        address = writer.get_extra_info("peername")
        self.peer = str(address[0]) if address else "unknown peer"
        sock = writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def wait(self, size: int, timeout_ms: int | None) -> bytes:
        """Waits for ``size`` bytes, at most ``timeout_ms`` (None: without a limit); raises OSError and EOFError."""
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            return await self._reader.readexactly(size)

    async def exactly(self, size: int) -> bytes:
        """Returns ``size`` bytes that are on their way."""
        async with asyncio.timeout(self._timeout_s):
            return await self._reader.readexactly(size)

    async def some(self, size_max: int) -> bytes:
        """Returns the next bytes that are on their way, at least one."""
        async with asyncio.timeout(self._timeout_s):
            data = await self._reader.read(min(size_max, CHUNK_BYTES))
        if not data:
            raise EOFError("closed by the other side")
        return data

    async def send(self, *parts: bytes) -> None:
        """Writes, and waits until the other side has taken all but a little."""
        self._writer.writelines(parts)
        async with asyncio.timeout(self._timeout_s):
            await self._writer.drain()

    def close(self) -> None:
        """Ends the connection once the other side has taken all written bytes, or has not in time."""
        self._writer.close()
        if not self._over and self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(self._timeout_s, self.abort)

    def abort(self) -> None:
        """Ends the connection at once."""
        self.lost()
        self._writer.transport.abort()

    def lost(self) -> None:
        """Cancels the timer, which would keep the buffers of a connection that is gone."""
        self._over = True
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None


class Watched(asyncio.StreamReaderProtocol):
    """A stream protocol that reports its end. A peer that closes one direction has closed both."""

    def __init__(self, connected: Callable[[Stream], None], timeout_ms: int) -> None:
        super().__init__(asyncio.StreamReader(limit=CHUNK_BYTES), self._begin)
        self._connected = connected
        self._timeout_ms = timeout_ms
        self._stream: Stream | None = None
        self.on_lost: Callable[[], None] | None = None

    def eof_received(self) -> bool:
        """Called by asyncio."""
        super().eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        super().connection_lost(exc)
        if self._stream is not None:
            self._stream.lost()
            self._stream = None
        on_lost, self.on_lost = self.on_lost, None  # the callback refers to all bytes of the peer
        if on_lost is not None:
            on_lost()

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._stream = Stream(reader, writer, self._timeout_ms)
        self._connected(self._stream)


async def dial(
    address: Address,
    connect_timeout_ms: int,
    timeout_ms: int,
    on_lost: Callable[[], None],
    tls: ssl.SSLContext | None = None,
) -> Stream:
    """Connects to a broker; raises OSError."""
    made: list[Stream] = []
    loop = asyncio.get_running_loop()

    def factory() -> Watched:
        protocol = Watched(made.append, timeout_ms)
        protocol.on_lost = on_lost
        return protocol

    try:
        async with asyncio.timeout(connect_timeout_ms / 1000):
            await loop.create_connection(factory, *address, ssl=tls)
    except UnicodeError as error:  # raised for labels that are empty or longer than 63 characters
        raise OSError(errno.EINVAL, f"{address.host!r} is not a host name") from error
    return made[0]


_CORRELATION_BYTES: Final = 4


class BrokerLost(OSError):
    """Raised where the broker cannot be reached, hung up, or violates the protocol."""


class Upstream:
    """A connection to one live broker, the same for all requests of a client: authentication is per connection."""

    def __init__(self, stream: Stream, address: Address, limits: EndpointLimits) -> None:
        self._stream = stream
        self._limits = limits
        self.address = address
        self.left = 0
        """Bytes of the current response that were not taken yet."""

    @classmethod
    async def connect(
        cls, brokers: Sequence[Address], limits: EndpointLimits, on_lost: Callable[[], None], tls: Tls | None = None
    ) -> Upstream:
        """Connects to the first reachable one of ``brokers``, in random order; raises :class:`BrokerLost`."""
        why = "no broker is known"
        for address in sample(brokers, len(brokers)):
            try:
                context = tls.client() if tls is not None else None
                stream = await dial(address, limits.connect_timeout_ms, limits.frame_timeout_ms, on_lost, context)
                return cls(stream, address, limits)
            except OSError as error:
                why = f"{address.host}:{address.port}: {reason(error)}"
        raise BrokerLost(why)

    async def request(self, frame: bytes) -> int:
        """Sends a request without its length; returns the size of its response after the correlation id.

        Raises :class:`BrokerLost`. The wait has no limit: see :class:`admin.ports.EndpointLimits`.
        """
        assert not self.left, "one request at a time"
        with self._naming_broker():
            await self._stream.send(len(frame).to_bytes(4, "big"), frame)
            size = int.from_bytes(await self._stream.wait(4, None), "big", signed=True)
            if not _CORRELATION_BYTES <= size <= self._limits.response_bytes_max:
                raise BrokerLost(f"{self._name} responds with a frame of {size} bytes")
            if await self._stream.exactly(_CORRELATION_BYTES) != frame[4:8]:
                raise BrokerLost(f"{self._name} responds to a request that was not sent")
        self.left = size - _CORRELATION_BYTES
        return self.left

    async def take(self) -> bytes:
        """Returns the next piece of the response; raises :class:`BrokerLost`."""
        with self._naming_broker():
            data = await self._stream.some(min(self.left, CHUNK_BYTES))
        self.left -= len(data)
        return data

    async def take_up_to(self, size: int) -> bytes:
        """Returns the next ``size`` bytes of the response, or all remaining ones if these are fewer."""
        with self._naming_broker():
            data = await self._stream.exactly(min(self.left, size))
        self.left -= len(data)
        return data

    def close(self) -> None:
        """Ends the connection at once."""
        self._stream.abort()

    @property
    def _name(self) -> str:
        return f"{self.address.host}:{self.address.port}"

    @contextmanager
    def _naming_broker(self) -> Iterator[None]:
        try:
            yield
        except BrokerLost:
            raise
        except (OSError, EOFError) as error:
            why = reason(error) if isinstance(error, OSError) else "closed by the broker"
            raise BrokerLost(f"{self._name}: {why}") from error


class EndpointTls(Struct, frozen=True):
    """TLS of both sides. ``brokers`` presents no certificate: else all clients would have the endpoint's identity."""

    clients: Tls
    brokers: Tls


def endpoint_tls(settings: Settings) -> EndpointTls | None:
    """Returns the TLS of the settings; raises :class:`brokers.security.authentication.SecurityUnusable`."""
    admin, security = settings.admin, settings.security
    if not admin.tls:
        return None
    key = admin.key_file if admin.certificate_file is not None else security.key_file
    own = Tls(admin.certificate_file or security.certificate_file, key, security.ca_file)
    return EndpointTls(own, Tls(None, None, security.ca_file, check_host=security.check_host))
