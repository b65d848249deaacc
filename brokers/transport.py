"""How a channel reaches its broker: TCP here; simulated brokers plug in behind the same two Protocols."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from brokers.wire.frames import FrameConnection

ANSWER_BYTES_MAX: Final = 104_857_600
"""Largest answer that is accepted, in bytes (Kafka's default for requests)."""


PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Numbers of the security protocols in registrations and UpdateMetadata (Kafka ``SecurityProtocol``)."""
PROTOCOL_NAMES: Final = {number: name for name, number in PROTOCOLS.items()}


OnMet = Callable[[asyncio.BaseTransport], None]
"""Called with each connection that is up."""


class Connection(Protocol):
    """One request in flight at a time."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        """Sends the bytes of one framed request, returns the answer without its length; raises OSError."""

    def close(self) -> None:
        """Ends it at once; idempotent."""


class Transport(Protocol):
    """Opens connections."""

    async def connect(self, host: str, port: int, on_lost: Callable[[], None]) -> Connection:
        """A new connection; raises OSError. ``on_lost`` is called on the event loop when it ends."""


class TcpTransport:
    """Plaintext TCP on the running event loop."""

    def __init__(self, answer_bytes_max: int = ANSWER_BYTES_MAX, met: OnMet = lambda _: None) -> None:
        self._max = answer_bytes_max
        self._met = met

    async def connect(self, host: str, port: int, on_lost: Callable[[], None]) -> Connection:
        """See :class:`Transport`."""
        loop = asyncio.get_running_loop()
        try:
            made, connection = await loop.create_connection(lambda: FrameConnection(self._max, on_lost), host, port)
        except UnicodeError as error:  # raised for labels that are empty or longer than 63 characters
            raise OSError(errno.EINVAL, f"{host!r} is not a host name") from error
        self._met(made)
        return connection
