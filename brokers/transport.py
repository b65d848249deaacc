"""Connects to brokers over TCP, behind two Protocols that simulated brokers implement, too."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from brokers.wire.frames import FrameConnection

RESPONSE_BYTES_MAX: Final = 104_857_600
"""Largest accepted response, in bytes (Kafka's default for requests)."""

PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Numbers of the security protocols in registrations and UpdateMetadata (Kafka ``SecurityProtocol``)."""
PROTOCOL_NAMES: Final = {number: name for name, number in PROTOCOLS.items()}

OnConnected = Callable[[asyncio.BaseTransport], None]
"""Called with each new connection."""


class Connection(Protocol):
    """A connection with one request in flight at a time."""

    @property
    def closed(self) -> bool:
        """Returns whether the connection can send nothing any more."""

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        """Sends the bytes of one framed request, returns the response without its length; raises OSError."""

    def close(self) -> None:
        """Ends the connection at once; idempotent."""


class Transport(Protocol):
    """Opens connections."""

    async def connect(self, host: str, port: int, on_lost: Callable[[], None]) -> Connection:
        """Returns a new connection; raises OSError. The event loop calls ``on_lost`` when it ends."""


class TcpTransport:
    """Plaintext TCP on the running event loop."""

    def __init__(
        self, response_bytes_max: int = RESPONSE_BYTES_MAX, on_connected: OnConnected = lambda _: None
    ) -> None:
        self._max = response_bytes_max
        self._on_connected = on_connected

    async def connect(self, host: str, port: int, on_lost: Callable[[], None]) -> Connection:
        """See :class:`Transport`."""
        loop = asyncio.get_running_loop()
        try:
            made, connection = await loop.create_connection(lambda: FrameConnection(self._max, on_lost), host, port)
        except UnicodeError as error:  # raised for labels that are empty or longer than 63 characters
            raise OSError(errno.EINVAL, f"{host!r} is not a host name") from error
        self._on_connected(made)
        return connection
