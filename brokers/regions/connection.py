"""Reads and writes connections of servers and clients of regions, and judges which large requests are read."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, NamedTuple, Protocol, cast

from brokers.listener.connection_slots import ConnectionSlot
from brokers.listener.inbound import InboundConnection, Listener
from brokers.wire.calls import Header
from brokers.wire.frames import LARGE_BYTES
from brokers.wire.primitives import BadMessage, Reader

PROOF_BYTES_MIN = 16
DIGEST_CHARS = 32


class Peer(NamedTuple):
    """A connection that was greeted.

    ``serves``: it gave the secret of servers; otherwise it may only ask for routes. ``proof``: digest of the proof in
    its Hello, empty without one.
    """

    serves: bool = True
    proof: str = ""


def digest_of(proof: bytes) -> str:
    """Returns the hash that is stored in place of a proof: no request can be sent with it."""
    return hashlib.sha256(proof).hexdigest()[:DIGEST_CHARS] if proof else ""


HEAD_BYTES: Final = 4_096
"""Bytes of a large request that decide; names that are accepted fit into them."""


class Greeting:
    """The state of a connection before and after its Hello.

    ``refused``: why its Hello was. ``proven``: it has given the secret, or was served as a server's. Others give way
    where their slots are needed.
    """

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.over = False
        self.refused = ""
        self.proven = False

    @property
    def user(self) -> str | None:
        """Returns the role of the connection, None before its Hello."""
        return None if self.peer is None else "server" if self.peer.serves else "client"

    def respond(self, header: Header, reader: Reader) -> bytes:
        """Is not called: these connections carry no calls of Kafka."""
        raise BadMessage("a call of Kafka at the listener of regions")


class Judge(Listener, Protocol):
    """The listener as its connections use it."""

    def judge(self, beginning: bytes, size: int, peer: Peer) -> bytes | None:
        """Returns the response that refuses a large request of ``size`` bytes; None where its rest is wanted."""


class RegionConnection(InboundConnection):
    """A connection that keeps nothing of a large request which is refused: the refusal follows its last byte."""

    def __init__(self, listener: Listener, slot: ConnectionSlot) -> None:
        super().__init__(listener, slot)
        self._refusals: deque[bytes] = deque()
        self._waits = False

    def take_refusal(self) -> bytes | None:
        """Returns the response to a request that was not kept; None where the present one was."""
        return self._refusals.popleft() if self._refusals else None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Ends the request under way, inside the block, with the connection."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Releases an ended connection, and a request of it that only waits."""
        super().connection_lost(exc)
        if self._waits and self._task is not None:
            self._task.cancel()

    def _refusal(self) -> tuple[str, str]:
        why = self.authentication.refused if isinstance(self.authentication, Greeting) else ""
        return (
            f"hello {why}",
            f"the listener of regions refused the Hello of {self.peer}, and ends the connection: {why}",
        )

    def _authenticated(self) -> None:
        if isinstance(self.authentication, Greeting) and not self.authentication.proven:
            if self._due is not None:
                self._due.cancel()
            self._frames.limit = self._listener.limits.frame_bytes_max
            return
        super()._authenticated()

    def _check_large(self) -> None:
        announced = self._frames.announced
        if announced <= LARGE_BYTES or self._expected == announced:
            return
        head = self._frames.head(HEAD_BYTES)
        if head is None:
            self._expected = 0
            return
        self._expected = announced
        peer = self.authentication.peer if isinstance(self.authentication, Greeting) else None
        refusal = cast("Judge", self._listener).judge(head, announced, peer or Peer())
        if refusal is not None:
            self._frames.skip()
            self._refusals.append(refusal)
            self._expected = 0


PLACES_MAX: Final = 4
"""Large requests that are decoded or carried out at a time."""


class Places:
    """Holds the places. An address with many large requests waits for itself, others wait for one of them at most."""

    def __init__(self, places_max: int = PLACES_MAX) -> None:
        self._all = asyncio.Semaphore(places_max)
        self._addresses: dict[str, tuple[asyncio.Lock, int]] = {}
        self.taken = 0
        """Places that are taken."""

    @asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[None]:
        """Waits for a place, and has it inside the block."""
        async with self._turn(address), self._all:
            self.taken += 1
            try:
                yield
            finally:
                self.taken -= 1

    @asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[None]:
        lock, users = self._addresses.get(address) or (asyncio.Lock(), 0)
        self._addresses[address] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._addresses[address]
            if users > 1:
                self._addresses[address] = lock, users - 1
            else:
                del self._addresses[address]
