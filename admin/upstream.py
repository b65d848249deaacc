"""Connects a client to its broker: sends one request at a time, and reads its response piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import sample
from typing import Final

from admin.ports import CHUNK_BYTES, Address, Limits
from admin.streams import Stream, dial
from brokers.security.tls import Tls
from brokers.wire.frames import reason

_CORRELATION_BYTES: Final = 4


class BrokerLost(OSError):
    """Raised where the broker cannot be reached, hung up, or violates the protocol."""


class Upstream:
    """A connection to one live broker, the same for all requests of a client: authentication is per connection."""

    def __init__(self, stream: Stream, address: Address, limits: Limits) -> None:
        self._stream = stream
        self._limits = limits
        self.address = address
        self.left = 0
        """Bytes of the current response that were not taken yet."""

    @classmethod
    async def connect(
        cls, brokers: Sequence[Address], limits: Limits, on_lost: Callable[[], None], tls: Tls | None = None
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

        Raises :class:`BrokerLost`. The wait has no limit: see :class:`admin.ports.Limits`.
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
