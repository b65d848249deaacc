"""Listens for servers and clients of regions: frames of msgpack on the bounded connections of the other listeners.

A connection begins with Hello; where a secret is set, nothing else is read before it was given. Each request gets a
response, a refusal too; bytes that are no request end the connection. A daemon that is not active refuses a request by
its kind alone; a large one is decoded on a thread beside the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

from brokers.listener.bound_listener import InboundListener
from brokers.listener.entrance import ServerTls
from brokers.listener.inbound import InboundConnection, ListenerLimits
from brokers.regions.peer import PROOF_BYTES_MIN, Peer, digest_of
from brokers.regions.secret import NO_SECRETS, Secrets
from brokers.wire.calls import Header
from brokers.wire.off_loop import run_off_loop
from brokers.wire.primitives import Malformed, Reader
from regent_agent import codec, protocol
from regent_agent.protocol import Hello, Refused, Request, Response, Welcome

log = logging.getLogger("regent.regions")

HELLO_BYTES_MAX: Final = 2_048
"""Bytes of a frame before the peer has proven itself."""
NOT_ACTIVE: Final = codec.encode(Refused(protocol.NOT_ACTIVE, "this daemon is not the active one, or not ready yet"))
FORBIDDEN: Final = codec.encode(
    Refused(
        protocol.UNAUTHENTICATED,
        "secret: this connection gave that of clients, which may only ask for routes; a server gives that of "
        "regions.secret_file",
    )
)
VERSION, SECRET, PROOF, MISSING = "version", "secret", "proof", "missing"
"""Causes of a connection's end at its Hello. MISSING: it began with another request, or with none."""


class Handlers(Protocol):
    """Handles requests while the daemon has the domain."""

    @property
    def epoch(self) -> int:
        """Returns the epoch of the daemon."""

    async def handle(self, request: Request, peer: Peer) -> Response:
        """Returns the response to a request that is no Hello, of a connection."""


class _Greeting:
    """The state of a connection before and after its Hello."""

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.over = False

    @property
    def user(self) -> str | None:
        """Returns the role of the connection, None before its Hello."""
        return None if self.peer is None else "server" if self.peer.serves else "client"

    def respond(self, header: Header, reader: Reader) -> bytes:
        """Is not called: these connections carry no calls of Kafka."""
        raise Malformed("a call of Kafka at the listener of regions")


class RegionListener(InboundListener):
    """Listens all the time; serves from :meth:`serve` to :meth:`resign`.

    ``secrets``: one of them is wanted in each Hello.
    ``hellos_refused`` counts connections that ended at their Hello, by cause.
    """

    def __init__(
        self,
        host: str,
        port: int,
        limits: ListenerLimits | None = None,
        *,
        secrets: Secrets = NO_SECRETS,
        tls: ServerTls | None = None,
        daemon: str = "",
    ) -> None:
        super().__init__("the listener of regions", "regions", (host, port), limits, tls=tls)
        self.hellos_refused: Counter[str] = Counter()
        self._secrets = secrets
        self._daemon = daemon
        self._handlers: Handlers | None = None

    async def stop(self) -> None:
        """Closes the socket and every connection."""
        self._handlers = None
        await self._entrance.close()
        self.close_connections()

    def serve(self, handlers: Handlers) -> None:
        """Passes requests to ``handlers`` from now on."""
        self._handlers = handlers

    def resign(self) -> None:
        """Stops serving: peers look for another daemon."""
        self._handlers = None
        self.close_connections()

    # -- used by connections

    def opened(self, connection: InboundConnection) -> None:
        """See :class:`brokers.listener.inbound.Listener`."""
        super().opened(connection)
        connection.must_authenticate(_Greeting(), HELLO_BYTES_MAX)

    def expects(self, head: bytes, connection: InboundConnection) -> bool:
        """See :class:`brokers.listener.inbound.Listener`: nothing large comes before the Hello."""
        return connection.trusted

    async def respond(self, frame: bytes, connection: InboundConnection | None = None) -> bytes:
        """Returns the framed response to one request; raises :class:`Malformed` where there can be none."""
        greeting = None if connection is None else connection.authentication
        peer = greeting.peer if isinstance(greeting, _Greeting) else Peer()
        greeted = peer is not None
        if peer is not None and not peer.serves and codec.kind_of(frame) in protocol.OF_SERVERS:
            return FORBIDDEN  # unread, as it may list thousands of regions
        if greeted and self._handlers is None and codec.kind_of(frame) not in (None, Hello):
            return NOT_ACTIVE  # unread: hundreds of servers list thousands of regions each, again and again
        try:
            request = await run_off_loop(partial(codec.decode_request, frame), len(frame))
        except codec.Malformed as error:
            if greeted and isinstance(error, codec.TooMany):
                return codec.encode(Refused(protocol.INVALID, str(error)))
            if not greeted:
                self.hellos_refused[MISSING] += 1
            raise Malformed(str(error)) from error
        if isinstance(request, Hello):
            return codec.encode(self._greeted(request, greeting))
        if peer is None:
            self.hellos_refused[MISSING] += 1
            raise Malformed("a request before Hello")
        if not peer.serves and isinstance(request, protocol.OF_SERVERS):
            return FORBIDDEN
        handlers = self._handlers
        if handlers is None:
            return NOT_ACTIVE
        return await _handled(partial(handlers.handle, peer=peer), request)

    def _greeted(self, hello: Hello, greeting: object) -> Response:
        """Accepts a connection, or refuses it, which ends it."""
        if hello.version < 1:
            why = f"version: {hello.version}, at least 1 is wanted"
            return self._refused(greeting, VERSION, Refused(protocol.INVALID, why))
        serves = self._secrets.serves(hello.secret)
        if serves is None:
            why = "secret: it is not that of regions.secret_file, and not that of regions.clients_secret_file"
            return self._refused(greeting, SECRET, Refused(protocol.UNAUTHENTICATED, why))
        if 0 < len(hello.proof) < PROOF_BYTES_MIN:
            why = f"proof: {len(hello.proof)} bytes, at least {PROOF_BYTES_MIN} random ones are wanted"
            return self._refused(greeting, PROOF, Refused(protocol.INVALID, why))
        if isinstance(greeting, _Greeting):
            greeting.peer = Peer(serves, digest_of(hello.proof))
        epoch = 0 if self._handlers is None else self._handlers.epoch
        return Welcome(min(hello.version, protocol.VERSION), epoch, self._daemon)

    def _refused(self, greeting: object, cause: str, response: Refused) -> Refused:
        self.hellos_refused[cause] += 1
        if isinstance(greeting, _Greeting):
            greeting.over = True
        return response


async def _handled(handle: Callable[[Request], Awaitable[Response]], request: Request) -> bytes:
    try:
        return codec.encode(await handle(request))
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("a %s failed; its peer tries it again", type(request).__name__)
        return codec.encode(Refused(protocol.NOT_ACTIVE, "the daemon failed to handle it: try again"))
