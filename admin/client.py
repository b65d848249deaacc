"""Serves one client's connection: responds to its requests one after the other, in order, as a broker does."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Struct

from admin.identity import ANONYMOUS, Identity
from admin.own_node import about_configs, names_own, own_response, with_own, without_own, wrong_node
from admin.ports import (
    CHUNK_BYTES,
    ITEM_BYTES,
    REWRITTEN_BYTES_MAX,
    UNKNOWN_FRAME_BYTES_MAX,
    Call,
    ControllerPort,
    Directory,
    EndpointLimits,
    NotController,
)
from admin.routes import Header, Route, body_of, head, i16, request_frame, rewritten, route
from admin.streams import BrokerLost, EndpointTls, Stream, Upstream
from brokers.listener.connection_slots import ConnectionSlot
from brokers.rate_limited_log import RateLimitedLog
from brokers.wire.errors import Error
from brokers.wire.frames import run_off_loop
from brokers.wire.messages import Request, read_request, request_codec, response_codec
from brokers.wire.primitives import NO_TAGS, BadMessage
from brokers.wire.refusals import refusal
from brokers.wire.versions import Api

log = logging.getLogger("regent.admin")

UNKNOWN: Final = "the admin endpoint does not know the client's principal"
NOT_ACTIVE: Final = (
    "no active daemon responds: its term is about to begin, or another process holds the controller role; try again in "
    "a few seconds, regent status names the holder"
)
BEFORE: Final = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
"""Requests that a client may send before it has authenticated, and that do not prove it a real client."""
_HEADER_BYTES_MIN: Final = 8


class Listener(Protocol):
    """The part of the listener that a connection uses."""

    limits: EndpointLimits
    limited_log: RateLimitedLog
    tls: EndpointTls | None
    directory: Directory
    controller: ControllerPort
    shared: bool


class Client:
    """Lives as long as the connection. The first request that needs a broker chooses one, which never changes."""

    def __init__(self, listener: Listener, stream: Stream, slot: ConnectionSlot) -> None:
        self._listener = listener
        self._stream = stream
        self._slot = slot
        self._upstream: Upstream | None = None
        self._identity = Identity()
        self._busy = False
        self._broker_gone = False
        self._reserved = 0
        self._throttle_ms = 0

    async def serve(self) -> None:
        """Serves requests until either side ends the connection; raises nothing but cancellation."""
        limit_s = self._listener.limits.frame_timeout_ms / 1000
        due = asyncio.get_running_loop().call_later(limit_s, self._unless_proven)
        try:
            first_ms = min(self._listener.limits.idle_timeout_ms, self._listener.limits.frame_timeout_ms)
            while (size := await self._announced(first_ms)) is not None:
                await self._serve_one(size)
                if self._broker_gone:
                    break
                await self._throttle()
                first_ms = self._listener.limits.idle_timeout_ms
        except asyncio.CancelledError:
            self._stream.abort()
            raise
        except BadMessage as error:
            self._refuse("call", str(error))
        except BrokerLost as error:
            self._refuse("broker", f"the broker behind it is lost: {error}")
        except TimeoutError:
            self._refuse("slow", "a request does not arrive, or a response is not taken, in time")
        except (OSError, EOFError):
            self._stream.abort()
        except Exception as error:
            sentence = f"a call of {self._stream.peer} failed; its connection is closed"
            self._listener.limited_log.error(log, "call", sentence, error)
            self._stream.abort()
        finally:
            due.cancel()
            if self._upstream is not None:
                self._upstream.close()
            self._stream.close()

    def _unless_proven(self) -> None:
        """Closes a connection without a request or authentication: it must not hold a slot that others need."""
        if not self._slot.proven:
            self._stream.abort()

    # -- requests

    async def _announced(self, timeout_ms: int) -> int | None:
        """Returns the size of the next request; None when the client hung up or sent nothing for so long."""
        try:
            size = int.from_bytes(await self._stream.wait(4, timeout_ms), "big", signed=True)
        except (TimeoutError, asyncio.IncompleteReadError):
            return None
        most = self._listener.limits.frame_bytes_max
        if size > UNKNOWN_FRAME_BYTES_MAX and await self._must_authenticate():
            most = UNKNOWN_FRAME_BYTES_MAX
        if not _HEADER_BYTES_MIN <= size <= most:
            raise BadMessage(f"a request of {size} bytes; at most {most} are allowed")
        return size

    async def _must_authenticate(self) -> bool:
        if self._identity.authenticated or self._slot.proven:
            return False
        await self._brokers_known()
        return self._listener.directory.authenticating()

    async def _throttle(self) -> None:
        """Reads nothing more during the throttle time of the last response, as a broker does (KIP-219)."""
        throttle_ms, self._throttle_ms = self._throttle_ms, 0
        if throttle_ms > 0:
            await hold(min(throttle_ms, self._listener.limits.idle_timeout_ms) / 1000)

    async def _serve_one(self, size: int) -> None:
        self._busy = True
        try:
            await self._respond(await self._received(size))
        finally:
            self._reserved = 0
            self._slot.hold(0)
            self._busy = False

    async def _received(self, size: int) -> bytes:
        """Reserves bytes as they arrive, not as announced: else a few idle clients could keep all others out."""
        parts, left = [], size
        async with asyncio.timeout(self._listener.limits.frame_timeout_ms / 1000):
            while left:
                parts.append(await self._stream.some(left))
                self._reserve(len(parts[-1]))
                left -= len(parts[-1])
        return b"".join(parts)

    def _reserve(self, size: int) -> None:
        self._reserved += size
        if not self._slot.hold(self._reserved):
            raise BadMessage("all clients together are sending too many bytes")

    async def _respond(self, frame: bytes) -> None:
        header = Header(i16(frame[:2]), i16(frame[2:4]), frame[4:8])
        if header.api not in BEFORE:
            if await self._must_authenticate():
                raise BadMessage(f"API key {header.api} before it has authenticated")
            self._slot.prove()
        elif len(frame) > UNKNOWN_FRAME_BYTES_MAX:
            raise BadMessage(f"API key {header.api} with {len(frame)} bytes, more than any real one has")
        match route(header.api, header.version, shared=self._listener.shared):
            case Route.PASS:
                await self._pass(frame, header)
            case Route.REWRITE:
                await self._rewrite(frame, header)
            case Route.CARRY:
                await self._carry(frame, header)
            case Route.RELAY:
                await self._relay(frame)
            case Route.OWN:
                await self._respond_as_node(frame, header)
            case Route.AUTHENTICATE:
                await self._authenticate(frame, header)
            case Route.REFUSE:
                await self._refuse_traffic(frame, header)
            case Route.CLOSE:
                raise BadMessage(f"API key {header.api} v{header.version} is not offered")

    # -- with a broker

    async def _pass(self, frame: bytes, header: Header) -> None:
        upstream = await self._connected()
        size = await upstream.request(frame)
        await self._stream.send(head(header, size))
        await self._pass_rest(upstream)

    async def _pass_rest(self, upstream: Upstream) -> None:
        while upstream.left:
            await self._stream.send(await upstream.take())

    async def _rewrite(self, frame: bytes, header: Header) -> None:
        """Changes the beginning of the response, and forwards the rest, which is the topics of Metadata."""
        upstream = await self._connected()
        await upstream.request(frame)
        body = await self._changed(upstream, Api(header.api), header.version)
        await self._stream.send(head(header, len(body) + upstream.left), body)
        await self._pass_rest(upstream)

    async def _changed(self, upstream: Upstream, api: Api, version: int) -> bytes:
        """Returns the bytes to send instead of those taken from the response: no more than the changed fields need."""
        codec, held, why = response_codec(api, version), b"", ""
        for more in (CHUNK_BYTES, REWRITTEN_BYTES_MAX):
            held += await upstream.take_up_to(more)
            try:
                return rewritten(api, codec, held, self._listener.controller.node(), shared=self._listener.shared)
            except BadMessage as error:
                why = str(error)
        raise BrokerLost(f"its response to {api.name} v{version} cannot be read: {why}")

    async def _authenticate(self, frame: bytes, header: Header) -> None:
        """Forwards the exchange unchanged, so only the broker checks credentials; both messages name the client."""
        api, codec = Api(header.api), response_codec(Api(header.api), header.version)
        request = (await self._read(frame)).body
        upstream = await self._connected()
        size = await upstream.request(frame)
        held = await upstream.take_up_to(REWRITTEN_BYTES_MAX)
        try:
            response = codec.read(body_of(api, codec, held))
        except BadMessage as error:
            raise BrokerLost(f"its response to {api.name} v{header.version} cannot be read: {error}") from error
        self._identity.observe(request, response)
        if self._identity.authenticated:
            self._slot.prove()
        await self._stream.send(head(header, size), held)
        await self._pass_rest(upstream)

    async def _brokers_known(self) -> None:
        try:
            async with asyncio.timeout(self._listener.limits.connect_timeout_ms / 1000):
                await self._listener.directory.known()
        except TimeoutError:
            raise BrokerLost("the registered brokers were not read yet") from None

    async def _connected(self) -> Upstream:
        if self._upstream is None:
            await self._brokers_known()
            brokers = self._listener.directory.brokers()
            tls = self._listener.tls.brokers if self._listener.tls is not None else None
            self._upstream = await Upstream.connect(brokers, self._listener.limits, self._broker_lost, tls)
        return self._upstream

    def _broker_lost(self) -> None:
        """Ends the client's connection at once, or after the pending response, as if its broker had hung up."""
        self._broker_gone = True
        if not self._busy:
            self._stream.close()

    # -- without a broker

    async def _carry(self, frame: bytes, header: Header) -> None:
        request = await self._read(frame)
        if (principal := await self._principal()) is None:
            await self._reply(header, refusal(request.body, Error.CLUSTER_AUTHORIZATION_FAILED, UNKNOWN))
            return
        api = Api(header.api)
        call = Call(api, header.version, request.body, principal, request.client_id, self._stream.peer, frame)
        try:
            response = await self._listener.controller.carry(call)
        except NotController:
            response = refusal(request.body, Error.NOT_CONTROLLER, NOT_ACTIVE)
        self._throttle_ms = getattr(response, "throttle_time_ms", 0)
        await self._reply(header, response)

    async def _principal(self) -> str | None:
        """Returns the client's principal; None where a principal is needed and unknown."""
        await self._brokers_known()
        if not self._listener.directory.secured():
            return ANONYMOUS
        principal = self._identity.principal
        return None if principal == ANONYMOUS else principal

    async def _relay(self, frame: bytes) -> None:
        """Relays a broker's call; without an active daemon it hangs up, and the broker looks for the controller."""
        if (principal := await self._principal()) is None:
            raise BadMessage(f"a call to the controller: {UNKNOWN}")
        try:
            await self._stream.send(await self._listener.controller.relay(frame, principal, self._stream.peer))
        except NotController:
            raise BadMessage("a call to the controller while no daemon is active, or none responds") from None

    async def _respond_as_node(self, frame: bytes, header: Header) -> None:
        node = self._listener.controller.node()
        if node is None:
            await self._pass(frame, header)
            return
        request = await self._read(frame)
        if (response := own_response(request.body)) is None:
            response = await self._configs_with_own(request, header, node.id)
        if response is None:
            await self._pass(frame, header)
        else:
            await self._reply(header, response)

    async def _configs_with_own(self, request: Request, header: Header, node_id: int) -> Struct | None:
        """Returns the response to a configuration request that names the daemon; None for one that does not."""
        if not about_configs(body := request.body) or not names_own(body, node_id):
            return None
        others = without_own(body, node_id)
        response = await self._broker_response(header, request.client_id, others) if others.resources else None
        return with_own(body, response, node_id)

    async def _broker_response(self, header: Header, client_id: str | None, body: Struct) -> Any:
        """Sends a request in place of the client's and returns the broker's response, within the bounds of both."""
        api = Api(header.api)
        upstream = await self._connected()
        size = await upstream.request(request_frame(header, client_id, request_codec(api, header.version), body))
        if size > self._listener.limits.frame_bytes_max:
            raise BrokerLost(f"its response to {api.name} v{header.version} has {size} bytes, too many to be merged")
        parts = []
        while upstream.left:
            parts.append(await upstream.take())
            self._reserve(len(parts[-1]))
        codec, held = response_codec(api, header.version), b"".join(parts)
        try:
            return await run_off_loop(lambda: codec.read(body_of(api, codec, held)), len(held))
        except BadMessage as error:
            raise BrokerLost(f"its response to {api.name} v{header.version} cannot be read: {error}") from error

    async def _refuse_traffic(self, frame: bytes, header: Header) -> None:
        response = wrong_node((await self._read(frame)).body)
        if response is None:
            raise BadMessage("it produces with acks=0 to the admin endpoint, which leads no partition")
        await self._reply(header, response)

    async def _read(self, frame: bytes) -> Request:
        """Reads a request; raises BadMessage. Its items count against the bound of bytes, too."""
        request = await run_off_loop(partial(read_request, frame), len(frame))
        self._reserve(request.items * ITEM_BYTES)
        return request

    async def _reply(self, header: Header, response: Struct) -> None:
        codec = response_codec(Api(header.api), header.version)
        body = (NO_TAGS if codec.flexible else b"") + await run_off_loop(partial(codec.write, response), self._reserved)
        await self._stream.send(head(header, len(body)), body)

    def _refuse(self, kind: str, why: str) -> None:
        self._listener.limited_log.warn(
            self._stream.peer, kind, f"a connection from {self._stream.peer} is closed: {why}"
        )
        self._stream.abort()


async def hold(seconds: float) -> None:
    """Holds a connection back; a client that hangs up ends it."""
    await asyncio.sleep(seconds)
