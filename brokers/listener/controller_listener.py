"""The listener where brokers find their controller: ApiVersions, ControlledShutdown, AlterPartition, producer ids.

Admin endpoints find it here, too: their clients' calls come in sealed envelopes (:mod:`brokers.listener.envelopes`),
which are not among the versions that brokers are offered. A call is always answered: a ControlledShutdown without an
answer costs a broker 3 x 30 s. While the daemon does not hold the role, ControlledShutdown gets STALE_CONTROLLER_EPOCH
and everything else NOT_CONTROLLER, on which brokers look the controller up again. Kafka ``KafkaApis`` and
``NodeToControllerChannelManager`` are the other side.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from msgspec import Struct

from brokers.listener.binding import unbound
from brokers.listener.connection_slots import ConnectionSlots
from brokers.listener.entrance import Entrance
from brokers.listener.envelopes import CarriedCall, Envelopes, NotController
from brokers.listener.inbound import InboundConnection, ListenerLimits
from brokers.rate_limited_log import RateLimitedLog
from brokers.security.callers import Callers
from brokers.security.gate import FRAME_BYTES_MAX as UNKNOWN_FRAME_BYTES_MAX
from brokers.security.gate import OFFERED, Admission, Gate
from brokers.security.tls import Tls
from brokers.wire.beside import LARGE_BYTES, beside
from brokers.wire.calls import (
    SERVED,
    AllocateProducerIdsCall,
    AlterPartitionCall,
    ApiVersionsCall,
    Call,
    ControlledShutdownCall,
    Header,
    read_call,
    read_caller,
    read_header,
)
from brokers.wire.envelope import Envelope
from brokers.wire.errors import Error
from brokers.wire.primitives import Malformed, Reader
from brokers.wire.replies import (
    AllocateProducerIdsReply,
    AlterPartitionReply,
    ControlledShutdownReply,
    Reply,
    encode_api_versions,
    encode_reply,
    not_controller,
    refusal,
)
from brokers.wire.versions import Api

__all__ = ["CallHandlers", "ControllerListener", "NotController"]

log = logging.getLogger("regent.listener")


class CallHandlers(Protocol):
    """Who answers calls during a term of office."""

    async def controlled_shutdown(self, call: ControlledShutdownCall) -> ControlledShutdownReply:
        """Moves what the broker leads."""

    async def alter_partition(self, call: AlterPartitionCall) -> AlterPartitionReply:
        """Commits ISR changes."""

    async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> AllocateProducerIdsReply:
        """Hands out a block of producer ids."""

    async def carried(self, call: CarriedCall) -> Struct:
        """Does what a client of an admin endpoint asks for."""

    def registered(self, broker: int, epoch: int) -> bool:
        """Whether a live broker has this epoch."""

    async def admits(self, principal: str, client_host: str) -> bool:
        """Whether somebody at an admin endpoint may call as brokers do (ClusterAction)."""


class ControllerListener:
    """Listens all the time; serves from :meth:`serve` to :meth:`resign`.

    ``secret`` is what admin endpoints know, too; without it none of their calls is taken. With ``tls`` everybody must
    speak TLS; with a ``gate`` everybody must pass it first; ``callers`` says who of them is a broker.
    """

    def __init__(
        self,
        host: str,
        port: int,
        limits: ListenerLimits | None = None,
        secret: bytes | None = None,
        *,
        tls: Tls | None = None,
        gate: Gate | None = None,
        callers: Callers | None = None,
    ) -> None:
        self.limits = limits or ListenerLimits()
        self.quiet = RateLimitedLog()
        wanted = self.limits
        self._callers = callers or Callers()
        self.slots = ConnectionSlots(
            wanted.connections_max,
            wanted.connections_per_address_max,
            wanted.buffered_bytes_max,
            self._callers.known,
        )
        self._envelopes: Envelopes | None = None
        if secret is not None:
            self.take_secret(secret)
        self._address = host, port
        self._entrance = Entrance(
            self.slots,
            lambda slot: InboundConnection(self, slot),
            self._full,
            tls=tls,
            timeout_ms=wanted.frame_timeout_ms,
        )
        self._offered = OFFERED if gate is not None else SERVED
        self._gate = gate
        self._handlers: CallHandlers | None = None
        self._connections: set[InboundConnection] = set()
        self._running: set[asyncio.Task[Reply]] = set()

    # -- life

    async def start(self) -> None:
        """Binds; raises OSError naming the address."""
        host, port = self._address
        try:
            await self._entrance.open(host, port)
        except OSError as error:
            raise unbound("the controller listener", "listener.port", host, port, error) from error

    @property
    def port(self) -> int:
        """The port that it is bound to."""
        if (port := self._entrance.port) is None:
            raise RuntimeError("the controller listener is not started")
        return port

    @property
    def connections(self) -> int:
        """Open connections, handshakes under way included."""
        return self.slots.open

    async def stop(self) -> None:
        """Closes the socket and every connection; calls under way are abandoned."""
        self._handlers = None
        await self._entrance.close()
        self.close_connections()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        if self._envelopes is not None:
            await self._envelopes.stop()

    def serve(self, handlers: CallHandlers) -> None:
        """The daemon holds the role: calls go to ``handlers``."""
        self._handlers = handlers

    def take_secret(self, secret: bytes) -> None:
        """What admin endpoints know from now on; none of their calls is taken before :meth:`identify`."""
        if self._envelopes is None:
            self._envelopes = Envelopes(secret, self.quiet, relay=self._relayed)
        else:
            self._envelopes.take_secret(secret)

    def identify(self, cluster_id: str, daemon: int) -> None:
        """Who listens here: admin endpoints seal calls for this daemon of this cluster."""
        if self._envelopes is not None:
            self._envelopes.identify(cluster_id, daemon)

    def resign(self) -> None:
        """The role is lost: brokers must look for another controller now, not after their 30 s."""
        self._handlers = None
        self.close_connections()

    def close_connections(self) -> None:
        """Closes every connection; brokers reconnect to whom they take for the controller."""
        for connection in list(self._connections):
            connection.abort()

    # -- used by connections

    def _full(self, peer: str) -> None:
        limits = self.limits
        self.quiet.warn(
            "",
            "connections",
            f"a connection from {peer} is refused: of {limits.connections_max} in all, or "
            f"{limits.connections_per_address_max} of one address, none is free; raise listener.connections_max or "
            "listener.connections_per_address_max, or find out who holds them",
        )

    def expects(self, head: bytes, connection: InboundConnection) -> bool:
        """See :class:`brokers.listener.inbound.Host`: ISR changes of a registered broker, and what may be sealed."""
        reader = Reader(head)
        header = read_header(reader)
        if header.api == Api.ENVELOPE:
            return self._envelopes is not None and self._envelopes.challenged(connection)
        handlers = self._handlers
        return header.api == Api.ALTER_PARTITION and handlers is not None and handlers.registered(*read_caller(reader))

    def came(self, connection: InboundConnection) -> None:
        """See :class:`brokers.listener.inbound.Host`."""
        self._connections.add(connection)
        if self._gate is not None:
            connection.must_authenticate(Admission(self._gate), UNKNOWN_FRAME_BYTES_MAX)

    def left(self, connection: InboundConnection) -> None:
        """See :class:`brokers.listener.inbound.Host`."""
        self._connections.discard(connection)

    async def answer(self, frame: bytes, connection: InboundConnection | None = None) -> bytes:
        """The framed response to one request; raises :class:`Malformed` where there can be none."""
        reader = Reader(frame)
        header = read_header(reader)
        if connection is not None and connection.admission is not None and not connection.trusted:
            return connection.admission.answer(header, reader)
        if header.api == Api.ENVELOPE and self._envelopes is not None and connection is not None:
            carry = self._handlers.carried if self._handlers is not None else None
            return await self._envelopes.respond(header.correlation, reader, connection, carry)
        if header.api == Api.API_VERSIONS and not header.served:
            return encode_api_versions(header.correlation, header.version, self._offered)
        if not header.served:
            raise Malformed(
                f"API key {header.api} v{header.version}, which is not served here: this is the controller listener, "
                "meant for brokers only"
            )
        call, known = await self._read(header, reader)
        if isinstance(call, ApiVersionsCall):
            return encode_api_versions(header.correlation, call.version, self._offered)
        reply = await self._stranger(call, connection) or known or await self._reply(call)
        if connection is not None and reply.error == Error.NONE:
            connection.slot.prove()
        return await beside(partial(encode_reply, call, header.correlation, reply), len(frame))

    async def _read(self, header: Header, reader: Reader) -> tuple[Call, Reply | None]:
        """A call, and its answer where that is known before the rest is read: a large one is of a registered broker."""
        size, handlers = len(reader.data), self._handlers
        if size <= LARGE_BYTES:
            return read_call(header, reader), None
        if header.api != Api.ALTER_PARTITION:
            raise Malformed(f"API key {header.api} with {size} bytes, more than any real one has")
        head = AlterPartitionCall(header.version, *read_caller(reader), ())
        if handlers is None:
            return head, not_controller(head)
        if not handlers.registered(head.broker_id, head.broker_epoch):
            return head, refusal(head, Error.STALE_BROKER_EPOCH)
        return await beside(partial(read_call, header, reader), size), None

    async def _stranger(self, call: Call, connection: InboundConnection | None) -> Reply | None:
        """The answer to who is no broker; None for brokers, and where nobody is served now."""
        handlers = self._handlers
        if handlers is None or connection is None:
            return None
        try:
            why = await self._callers.refused(connection.transport, handlers.admits)
        except NotController:
            return not_controller(call)
        if why is None:
            return None
        self.quiet.warn(
            connection.peer,
            "caller",
            f"{type(call).__name__} from {connection.peer} is refused: {why}; if it is a broker, name its principal in "
            "security.broker_principals, or allow it ClusterAction on the cluster",
        )
        return refusal(call, Error.CLUSTER_AUTHORIZATION_FAILED)

    async def _relayed(self, envelope: Envelope) -> bytes:
        """The framed response to a broker's call that came to an admin endpoint."""
        reader = Reader(envelope.request)
        header = read_header(reader)
        if not header.served:
            raise Malformed(f"API key {header.api} v{header.version} is not served")
        call, known = await self._read(header, reader)
        handlers = self._handlers
        if handlers is not None and not await handlers.admits(envelope.principal, envelope.client_host):
            known = refusal(call, Error.CLUSTER_AUTHORIZATION_FAILED)
        reply = known or await self._reply(call)
        return await beside(partial(encode_reply, call, header.correlation, reply), len(envelope.request))

    async def _reply(self, call: Call) -> Reply:
        handlers = self._handlers
        if handlers is None:
            return not_controller(call)
        if len(self._running) >= self.limits.calls_max:
            self.quiet.warn("", "calls", f"a call is refused: {self.limits.calls_max} are under way")
            return refusal(call, Error.REQUEST_TIMED_OUT)
        task = asyncio.create_task(_dispatch(handlers, call))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.wait({task}, timeout=self.limits.call_timeout_ms / 1000)
        return self._outcome(call, task)

    def _outcome(self, call: Call, task: asyncio.Task[Reply]) -> Reply:
        """Calls that take too long go on: what they commit is told to brokers like every other change."""
        if not task.done():
            self.quiet.warn("", "slow call", f"{type(call).__name__} is not done in time; its broker will ask again")
            return refusal(call, Error.REQUEST_TIMED_OUT)
        if task.cancelled() or isinstance(task.exception(), NotController):
            return not_controller(call)
        if (error := task.exception()) is not None:
            log.error("%s failed", type(call).__name__, exc_info=error)
            return not_controller(call)
        return task.result()


async def _dispatch(handlers: CallHandlers, call: Call) -> Reply:
    match call:
        case ControlledShutdownCall():
            return await handlers.controlled_shutdown(call)
        case AlterPartitionCall():
            return await handlers.alter_partition(call)
        case AllocateProducerIdsCall():
            return await handlers.allocate_producer_ids(call)
        case ApiVersionsCall():
            raise TypeError("ApiVersions needs no handler")
