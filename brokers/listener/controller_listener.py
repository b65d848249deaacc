"""Serves brokers' calls to their controller: ApiVersions, ControlledShutdown, AlterPartition, producer ids.

Admin endpoints send their clients' calls in sealed envelopes (:mod:`brokers.listener.envelopes`), which are not among
the versions that the listener offers to brokers. Each call gets a response: a ControlledShutdown without one costs a
broker 3 x 30 s. While the daemon does not hold the role, ControlledShutdown gets STALE_CONTROLLER_EPOCH and every other
call NOT_CONTROLLER, on which brokers look the controller up again. The peer is Kafka's
``NodeToControllerChannelManager``; brokers' own handlers are in ``KafkaApis``.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from msgspec import Struct

from brokers.listener.bound_listener import InboundListener
from brokers.listener.envelopes import CarriedCall, Envelopes, NotController
from brokers.listener.inbound import InboundConnection, ListenerLimits
from brokers.security.access import Callers
from brokers.security.authentication import FRAME_BYTES_MAX as UNKNOWN_FRAME_BYTES_MAX
from brokers.security.authentication import OFFERED, Authentication, Authenticator
from brokers.security.tls import Tls
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
from brokers.wire.frames import LARGE_BYTES, run_off_loop
from brokers.wire.primitives import BadMessage, Reader
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
    """Handles calls during a term."""

    async def controlled_shutdown(self, call: ControlledShutdownCall) -> ControlledShutdownReply:
        """Moves the broker's leaderships."""

    async def alter_partition(self, call: AlterPartitionCall) -> AlterPartitionReply:
        """Commits ISR changes."""

    async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> AllocateProducerIdsReply:
        """Allocates a block of producer ids."""

    async def carried(self, call: CarriedCall) -> Struct:
        """Handles the call of an admin endpoint's client."""

    def registered(self, broker: int, epoch: int) -> bool:
        """Returns whether a live broker has this epoch."""

    async def admits(self, principal: str, client_host: str) -> bool:
        """Returns whether a principal is authorized to send brokers' calls (ClusterAction)."""


class ControllerListener(InboundListener):
    """Listens all the time; serves from :meth:`serve` to :meth:`resign`.

    ``secret`` is shared with admin endpoints; without it the listener refuses their calls. With ``tls`` every peer must
    use TLS; with an ``authenticator`` every peer must authenticate first; ``callers`` decides which peers are brokers.
    """

    def __init__(
        self,
        host: str,
        port: int,
        limits: ListenerLimits | None = None,
        secret: bytes | None = None,
        *,
        tls: Tls | None = None,
        authenticator: Authenticator | None = None,
        callers: Callers | None = None,
    ) -> None:
        self._callers = callers or Callers()
        known = self._callers.known
        super().__init__("the controller listener", "listener", (host, port), limits, tls=tls, known=known)
        self._envelopes: Envelopes | None = None
        if secret is not None:
            self.take_secret(secret)
        self._offered = OFFERED if authenticator is not None else SERVED
        self._authenticator = authenticator
        self._handlers: CallHandlers | None = None
        self._running: set[asyncio.Task[Reply]] = set()

    # -- start and stop

    async def stop(self) -> None:
        """Closes the socket and every connection; abandons the calls in progress."""
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
        """Passes calls to ``handlers`` from now on, while the daemon holds the role."""
        self._handlers = handlers

    def take_secret(self, secret: bytes) -> None:
        """Takes another secret of admin endpoints; refuses their calls until :meth:`identify`."""
        if self._envelopes is None:
            self._envelopes = Envelopes(secret, self.limited_log, relay=self._relayed)
        else:
            self._envelopes.take_secret(secret)

    def identify(self, cluster_id: str, daemon: int) -> None:
        """Sets the daemon and the cluster for which admin endpoints seal their calls."""
        if self._envelopes is not None:
            self._envelopes.identify(cluster_id, daemon)

    def resign(self) -> None:
        """Stops serving after the role is lost: brokers look for another controller now, not after their 30 s."""
        self._handlers = None
        self.close_connections()

    # -- used by connections

    def expects(self, head: bytes, connection: InboundConnection) -> bool:
        """See :class:`brokers.listener.inbound.Listener`: expects ISR changes of registered brokers, and envelopes."""
        reader = Reader(head)
        header = read_header(reader)
        if header.api == Api.ENVELOPE:
            return self._envelopes is not None and self._envelopes.may_send_large(connection)
        handlers = self._handlers
        return header.api == Api.ALTER_PARTITION and handlers is not None and handlers.registered(*read_caller(reader))

    def opened(self, connection: InboundConnection) -> None:
        """See :class:`brokers.listener.inbound.Listener`."""
        super().opened(connection)
        if self._authenticator is not None:
            connection.must_authenticate(Authentication(self._authenticator), UNKNOWN_FRAME_BYTES_MAX)

    async def respond(self, frame: bytes, connection: InboundConnection | None = None) -> bytes:
        """Returns the framed response to one request; raises :class:`BadMessage` where there can be none."""
        reader = Reader(frame)
        header = read_header(reader)
        if connection is not None and connection.authentication is not None and not connection.trusted:
            return connection.authentication.respond(header, reader)
        if header.api == Api.ENVELOPE and self._envelopes is not None and connection is not None:
            carry = self._handlers.carried if self._handlers is not None else None
            return await self._envelopes.respond(header.correlation, reader, connection, carry)
        if header.api == Api.API_VERSIONS and not header.served:
            return encode_api_versions(header.correlation, header.version, self._offered)
        if not header.served:
            raise BadMessage(
                f"API key {header.api} v{header.version}, which the controller listener does not serve: it is for "
                "brokers only"
            )
        call, known = await self._read(header, reader)
        if isinstance(call, ApiVersionsCall):
            return encode_api_versions(header.correlation, call.version, self._offered)
        reply = await self._unauthorized(call, connection) or known or await self._reply(call)
        if connection is not None and reply.error == Error.NONE:
            connection.slot.prove()
        return await run_off_loop(partial(encode_reply, call, header.correlation, reply), len(frame))

    async def _read(self, header: Header, reader: Reader) -> tuple[Call, Reply | None]:
        """Reads a call, or finds its reply before: large calls are read for registered brokers alone."""
        size, handlers = len(reader.data), self._handlers
        if size <= LARGE_BYTES:
            return read_call(header, reader), None
        if header.api != Api.ALTER_PARTITION:
            raise BadMessage(f"API key {header.api} with {size} bytes, more than any real one has")
        head = AlterPartitionCall(header.version, *read_caller(reader), ())
        if handlers is None:
            return head, not_controller(head)
        if not handlers.registered(head.broker_id, head.broker_epoch):
            return head, refusal(head, Error.STALE_BROKER_EPOCH)
        return await run_off_loop(partial(read_call, header, reader), size), None

    async def _unauthorized(self, call: Call, connection: InboundConnection | None) -> Reply | None:
        """Returns the refusal of a caller that is no broker; None for brokers, and while no term serves calls."""
        handlers = self._handlers
        if handlers is None or connection is None:
            return None
        try:
            why = await self._callers.refused(connection.transport, handlers.admits)
        except NotController:
            return not_controller(call)
        if why is None:
            return None
        self.limited_log.warn(
            connection.peer,
            "caller",
            f"{type(call).__name__} from {connection.peer} is refused: {why}; if it is a broker, name its principal in "
            "security.broker_principals, or allow it ClusterAction on the cluster",
        )
        return refusal(call, Error.CLUSTER_AUTHORIZATION_FAILED)

    async def _relayed(self, envelope: Envelope) -> bytes:
        """Returns the framed response to a broker's call that an admin endpoint received."""
        reader = Reader(envelope.request)
        header = read_header(reader)
        if not header.served:
            raise BadMessage(f"API key {header.api} v{header.version} is not served")
        call, known = await self._read(header, reader)
        handlers = self._handlers
        if handlers is not None and not await handlers.admits(envelope.principal, envelope.client_host):
            known = refusal(call, Error.CLUSTER_AUTHORIZATION_FAILED)
        reply = known or await self._reply(call)
        return await run_off_loop(partial(encode_reply, call, header.correlation, reply), len(envelope.request))

    async def _reply(self, call: Call) -> Reply:
        handlers = self._handlers
        if handlers is None:
            return not_controller(call)
        if len(self._running) >= self.limits.calls_max:
            self.limited_log.warn("", "calls", f"a call is refused: {self.limits.calls_max} are in progress")
            return refusal(call, Error.REQUEST_TIMED_OUT)
        task = asyncio.create_task(_dispatch(handlers, call))
        self._running.add(task)
        task.add_done_callback(partial(self._ended, type(call).__name__))
        await asyncio.wait({task}, timeout=self.limits.call_timeout_ms / 1000)
        return self._outcome(call, task)

    def _outcome(self, call: Call, task: asyncio.Task[Reply]) -> Reply:
        """Returns a task's reply; slow calls go on, and their changes are propagated like all others."""
        if not task.done():
            self.limited_log.warn("", "slow call", f"{type(call).__name__} is not done in time; its broker will retry")
            return refusal(call, Error.REQUEST_TIMED_OUT)
        return not_controller(call) if task.cancelled() or task.exception() is not None else task.result()

    def _ended(self, kind: str, task: asyncio.Task[Reply]) -> None:
        """Logs the fault of a call, also where its broker waits for the response no more."""
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, NotController):
            self.limited_log.error(log, kind, f"{kind} failed", error)


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
