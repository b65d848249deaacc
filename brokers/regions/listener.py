"""Listens for servers and clients of regions: frames of msgpack on the bounded connections of the other listeners.

A connection begins with Hello; where a secret is set, nothing else is read before it was given. Each request gets a
response, a refusal too, also one of an unknown kind; bytes that are no message end the connection. A large request is
judged by its first fields, before its rest is kept: by its kind, its size and its process. One of each address, and a
few of all, are then decoded on a thread beside the loop at a time. A daemon that is not active refuses every request by
its kind alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from brokers.listener.bound_listener import InboundListener
from brokers.listener.entrance import ServerTls
from brokers.listener.inbound import InboundConnection, ListenerLimits
from brokers.regions.connection import HEAD_BYTES, PROOF_BYTES_MIN, Greeting, Peer, Places, RegionConnection, digest_of
from brokers.regions.secret import NO_SECRETS, Secrets
from brokers.wire.frames import LARGE_BYTES, run_off_loop
from brokers.wire.primitives import BadMessage
from regent_agent import codec, protocol
from regent_agent.codec import Head
from regent_agent.protocol import Follow, Hello, ListRoutes, Refused, Request, Response, Welcome

log = logging.getLogger("regent.regions")

HELLO_BYTES_MAX: Final = 2_048
"""Bytes of a frame before the peer has proven itself."""
HELD_S: Final = 2.5
"""Longest time in which a Hello waits for a term that is about to begin: agents wait 3 s for its response."""
SIZES: Final[dict[type[Request], int]] = {
    protocol.Register: protocol.LIST_BYTES_MAX,
    protocol.Regions: protocol.LIST_BYTES_MAX,
    protocol.Report: protocol.LIST_BYTES_MAX,
    protocol.Poll: protocol.NAMES_BYTES_MAX,
    protocol.Loads: protocol.NAMES_BYTES_MAX,
    protocol.Follow: protocol.NAMES_BYTES_MAX,
}
"""Bytes of the largest request of a kind, where it may be a large one."""
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

    def judge(self, head: Head, peer: Peer) -> Refused | None:
        """Returns why a large request of a server is refused, by its first fields; None where it is wanted."""

    async def handle(self, request: Request, peer: Peer) -> Response:
        """Returns the response to a request that is no Hello, of a connection."""

    def routes(self, request: Follow | ListRoutes) -> Awaitable[bytes]:
        """Returns the framed response to a request for many routes, which is the same for many clients.

        What waits for it keeps no reference to the request.
        """


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
        super().__init__("the listener of regions", "regions", (host, port), limits, tls=tls, kind=RegionConnection)
        self.hellos_refused: Counter[str] = Counter()
        self._secrets = secrets
        self._daemon = daemon
        self._handlers: Handlers | None = None
        self._coming: asyncio.Event | None = None
        """Set once a term that is about to begin has begun, or will not."""
        self._places = Places()
        self.told: Callable[[str], None] = lambda _: None
        """Takes the proof of a process that gets to know the epoch by its registration."""
        self.seen: Callable[[str, int, int], Awaitable[str]] = _unjudged
        """Takes a server's proof, and the epoch and token that it has seen; returns why it is not served, if not."""

    async def stop(self) -> None:
        """Closes the socket and every connection."""
        self._handlers = None
        self.prepare(term=False)
        await self._entrance.close()
        self.close_connections()

    def prepare(self, *, term: bool) -> None:
        """Says whether a term is about to begin: Hellos wait for it then, for a short time.

        A server that is refused pauses up to two seconds, and all regions on their way wait with it.
        """
        if term:
            self._coming = self._coming or asyncio.Event()
        elif self._coming is not None:
            self._coming.set()
            self._coming = None

    def serve(self, handlers: Handlers) -> None:
        """Passes requests to ``handlers`` from now on."""
        self._handlers = handlers
        self.prepare(term=False)

    def resign(self) -> None:
        """Stops serving: peers look for another daemon."""
        self._handlers = None
        self.close_connections()

    # -- used by connections

    def opened(self, connection: InboundConnection) -> None:
        """See :class:`brokers.listener.inbound.Listener`."""
        super().opened(connection)
        connection.must_authenticate(Greeting(), HELLO_BYTES_MAX)

    def expects(self, head: bytes, connection: InboundConnection) -> bool:
        """See :class:`brokers.listener.inbound.Listener`: nothing large comes before the Hello."""
        return connection.trusted

    def judge(self, beginning: bytes, size: int, peer: Peer) -> bytes | None:
        """See :class:`brokers.regions.connection.Judge`."""
        head = codec.head_of(beginning)
        if head is None:
            if (why := codec.unfit(beginning)) is not None:
                return codec.encode(Refused(protocol.INVALID, why))
            raise BadMessage(f"no request: {size} bytes that begin like none")
        if not peer.serves and head.kind in protocol.OF_SERVERS:
            return FORBIDDEN
        refused = _too_large(head, size)
        if refused is None and self._handlers is None:
            return NOT_ACTIVE
        if refused is None and self._handlers is not None and head.kind in protocol.OF_SERVERS:
            refused = self._handlers.judge(head, peer)
        return None if refused is None else codec.encode(refused)

    async def respond(self, frame: bytes, connection: InboundConnection | None = None) -> bytes:
        """Returns the framed response to one request; raises :class:`BadMessage` where there can be none."""
        of_regions = connection if isinstance(connection, RegionConnection) else None
        if of_regions is not None and not frame and (refusal := of_regions.take_refusal()) is not None:
            return refusal  # of a request that was too large to be kept; one before it may wait for its response still
        greeting = None if connection is None else connection.authentication
        peer = greeting.peer if isinstance(greeting, Greeting) else Peer()
        if peer is not None and not peer.serves and codec.kind_of(frame) in protocol.OF_SERVERS:
            return FORBIDDEN  # unread, as it may list thousands of regions
        greeted = peer is not None
        if greeted and self._handlers is None and codec.kind_of(frame) not in (None, Hello):
            return NOT_ACTIVE  # unread: hundreds of servers list thousands of regions each, again and again
        if len(frame) <= LARGE_BYTES:
            return await self._answered(await self._decoded(frame, greeted=greeted), greeting, peer or Peer())
        if (refusal := self.judge(frame[:HEAD_BYTES], len(frame), peer or Peer())) is not None:
            return refusal
        async with AsyncExitStack() as place:
            await self._placed(place, of_regions)
            request = await self._decoded(frame, greeted=greeted)
            del frame
            if not isinstance(request, codec.LISTING):
                await place.aclose()
                if of_regions is not None:
                    of_regions.release()
            answering = self._answered(request, greeting, peer or Peer())
            del request  # a client that waits for news must not keep a thousand names
            return await answering

    async def _placed(self, place: AsyncExitStack, connection: RegionConnection | None) -> None:
        """Waits for a place of a large request; one whose connection has ended waits no longer."""
        if connection is None:
            await place.enter_async_context(self._places.place(""))
            return
        with connection.waiting():
            await place.enter_async_context(self._places.place(connection.slot.address))

    async def _decoded(self, frame: bytes, *, greeted: bool) -> Request | Refused:
        """Decodes a request; raises :class:`BadMessage` for bytes that are none, and for one before Hello."""
        try:
            request = await run_off_loop(partial(codec.decode_in_portions, frame), len(frame))
        except codec.BadFrame as error:
            if greeted and isinstance(error, codec.Unfit):
                return Refused(protocol.INVALID, str(error))
            if not greeted:
                self.hellos_refused[MISSING] += 1
            raise BadMessage(str(error)) from error
        if not greeted and not isinstance(request, Hello):
            self.hellos_refused[MISSING] += 1
            raise BadMessage("a request before Hello")
        return request

    async def _answered(self, request: Request | Refused, greeting: object, peer: Peer) -> bytes:
        if isinstance(request, Refused):
            return codec.encode(request)
        if isinstance(request, Hello):
            return codec.encode(await self._welcomed(request, greeting))
        handlers, kind = self._handlers, type(request).__name__
        if handlers is None:
            return NOT_ACTIVE
        try:
            if isinstance(request, (Follow, ListRoutes)):
                waiting = handlers.routes(request)
                del request
                return await waiting
            response = await handlers.handle(request, peer)
            if isinstance(response, protocol.Registered):
                self.told(peer.proof)
            if (
                isinstance(greeting, Greeting)
                and isinstance(request, protocol.OF_SERVERS)
                and not isinstance(response, Refused)
            ):
                greeting.proven = True
            return codec.encode(response)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.limited_log.error(log, kind, f"a {kind} failed; its peer tries it again", error)
            return codec.encode(Refused(protocol.NOT_ACTIVE, "the daemon failed to handle it: try again"))

    async def _welcomed(self, hello: Hello, greeting: object) -> Response:
        """Accepts a connection, unless it is refused, or its server has seen more than the store has."""
        response = self._greeted(hello, greeting)
        if isinstance(response, Welcome) and self._coming is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(HELD_S):
                    await self._coming.wait()
            response = replace(response, epoch=0 if self._handlers is None else self._handlers.epoch)
        if isinstance(response, Refused) or not self._secrets.serves(hello.secret):
            return response
        if not (why := await self.seen(digest_of(hello.proof), hello.seen_epoch, hello.seen_token)):
            return response
        return _ended(greeting, Refused(protocol.RESTORED, why))

    def _greeted(self, hello: Hello, greeting: object) -> Response:
        """Accepts a connection, or refuses it, which ends it."""
        if hello.version < 1:
            why = f"version: {hello.version}, at least 1 is wanted"
            return self._refused(greeting, VERSION, Refused(protocol.INVALID, why))
        serves = self._secrets.serves(hello.secret)
        if serves is None:
            found = "it is not that of" if hello.secret else "none was given; give that of"
            clients = ", or of regions.clients_secret_file for a client" if self._secrets.clients else ""
            why = f"secret: {found} regions.secret_file{clients or ', which clients give, too'}"
            return self._refused(greeting, SECRET, Refused(protocol.UNAUTHENTICATED, why))
        if 0 < len(hello.proof) < PROOF_BYTES_MIN:
            why = f"proof: {len(hello.proof)} bytes, at least {PROOF_BYTES_MIN} random ones are wanted"
            return self._refused(greeting, PROOF, Refused(protocol.INVALID, why))
        if isinstance(greeting, Greeting):
            greeting.peer = Peer(serves, digest_of(hello.proof))
            greeting.proven = greeting.proven or bool(self._secrets.servers)
        epoch = 0 if self._handlers is None else self._handlers.epoch
        return Welcome(min(hello.version, protocol.VERSION), epoch, self._daemon)

    def _refused(self, greeting: object, cause: str, response: Refused) -> Refused:
        self.hellos_refused[cause] += 1
        return _ended(greeting, response)


def _ended(greeting: object, response: Refused) -> Refused:
    """Has a connection end after the response to its Hello."""
    if isinstance(greeting, Greeting):
        greeting.over, greeting.refused = True, response.text
    return response


async def _unjudged(_proof: str, _epoch: int, _token: int) -> str:
    """Serves each server, and judges nothing that it has seen."""
    return ""


def _too_large(head: Head, size: int) -> Refused | None:
    """Returns why a large request is not read, by its kind and its first fields."""
    kind = head.kind.__name__
    most = SIZES.get(head.kind, protocol.SMALL_BYTES_MAX)
    if size > most:
        return Refused(protocol.INVALID, f"a {kind} of {size} bytes, at most {most} are read: send less in it")
    if not head.whole:
        why = f"a {kind} whose names and addresses take more than {HEAD_BYTES} bytes: give it shorter ones"
        return Refused(protocol.INVALID, why)
    return None
