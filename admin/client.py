"""One client's connection: requests are answered one after the other, in order, as a broker does it."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Struct

from admin.endpoint_tls import EndpointTls
from admin.framing import Header, body_of, head, i16, request_frame, rewritten
from admin.identity import ANONYMOUS, Identity
from admin.limits import CHUNK_BYTES, ITEM_BYTES, REWRITTEN_BYTES_MAX, UNKNOWN_FRAME_BYTES_MAX, Limits
from admin.own_configs import about_configs, names_own, with_own, without_own
from admin.own_node import own_answer
from admin.ports import Call, ControllerPort, Directory, NotController
from admin.routes import Route, route
from admin.streams import Stream
from admin.upstream import BrokerLost, Upstream
from admin.wrong_node import wrong_node
from brokers.listener.connection_slots import ConnectionSlot
from brokers.rate_limited_log import RateLimitedLog
from brokers.wire.beside import beside
from brokers.wire.errors import Error
from brokers.wire.messages import Request, read_request, request_codec, response_codec
from brokers.wire.primitives import NO_TAGS, Malformed
from brokers.wire.refusals import refusal
from brokers.wire.versions import Api

log = logging.getLogger("regent.admin")

UNKNOWN: Final = "who asks is not known to the admin endpoint"
BEFORE: Final = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
"""What a client may ask before it has authenticated, and what does not show that it is one."""
_HEADER_BYTES_MIN: Final = 8


class Host(Protocol):
    """What a connection needs of its listener."""

    limits: Limits
    quiet: RateLimitedLog
    tls: EndpointTls | None
    directory: Directory
    controller: ControllerPort
    shared: bool


class Client:
    """Lives as long as the connection. Its broker is chosen at the first request that needs one and never changes."""

    def __init__(self, host: Host, stream: Stream, slot: ConnectionSlot) -> None:
        self._host = host
        self._stream = stream
        self._slot = slot
        self._upstream: Upstream | None = None
        self._identity = Identity()
        self._busy = False
        self._broker_gone = False
        self._reserved = 0
        self._throttle_ms = 0

    async def serve(self) -> None:
        """Answers until either side has had enough; never raises but when cancelled."""
        limit_s = self._host.limits.frame_timeout_ms / 1000
        due = asyncio.get_running_loop().call_later(limit_s, self._unless_proven)
        try:
            first_ms = min(self._host.limits.idle_timeout_ms, self._host.limits.frame_timeout_ms)
            while (size := await self._announced(first_ms)) is not None:
                await self._serve_one(size)
                if self._broker_gone:
                    break
                await self._throttle()
                first_ms = self._host.limits.idle_timeout_ms
        except asyncio.CancelledError:
            self._stream.abort()
            raise
        except Malformed as error:
            self._refuse("call", str(error))
        except BrokerLost as error:
            self._refuse("broker", f"the broker behind it is lost: {error}")
        except TimeoutError:
            self._refuse("slow", "a request does not arrive, or an answer is not taken, in time")
        except (OSError, EOFError):
            self._stream.abort()
        except Exception:
            log.exception("a call of %s failed; its connection is closed", self._stream.peer)
            self._stream.abort()
        finally:
            due.cancel()
            if self._upstream is not None:
                self._upstream.close()
            self._stream.close()

    def _unless_proven(self) -> None:
        """Whoever only connects, or does not authenticate, must not hold a place that others need."""
        if not self._slot.proven:
            self._stream.abort()

    # -- requests

    async def _announced(self, timeout_ms: int) -> int | None:
        """Size of the next request; None when the client is done or said nothing for so long."""
        try:
            size = int.from_bytes(await self._stream.wait(4, timeout_ms), "big", signed=True)
        except (TimeoutError, asyncio.IncompleteReadError):
            return None
        most = self._host.limits.frame_bytes_max
        if size > UNKNOWN_FRAME_BYTES_MAX and await self._must_authenticate():
            most = UNKNOWN_FRAME_BYTES_MAX
        if not _HEADER_BYTES_MIN <= size <= most:
            raise Malformed(f"a request of {size} bytes where at most {most} are allowed")
        return size

    async def _must_authenticate(self) -> bool:
        if self._identity.authenticated or self._slot.proven:
            return False
        await self._brokers_known()
        return self._host.directory.authenticating()

    async def _throttle(self) -> None:
        """Nothing more is read for as long as the client was told to wait, as at a broker (KIP-219)."""
        throttle_ms, self._throttle_ms = self._throttle_ms, 0
        if throttle_ms > 0:
            await hold(min(throttle_ms, self._host.limits.idle_timeout_ms) / 1000)

    async def _serve_one(self, size: int) -> None:
        self._busy = True
        try:
            await self._answer(await self._received(size))
        finally:
            self._reserved = 0
            self._slot.hold(0)
            self._busy = False

    async def _received(self, size: int) -> bytes:
        """What counts is what came, not what was announced: else a few who send nothing could keep all others out."""
        parts, left = [], size
        async with asyncio.timeout(self._host.limits.frame_timeout_ms / 1000):
            while left:
                parts.append(await self._stream.some(left))
                self._reserve(len(parts[-1]))
                left -= len(parts[-1])
        return b"".join(parts)

    def _reserve(self, size: int) -> None:
        self._reserved += size
        if not self._slot.hold(self._reserved):
            raise Malformed("too many bytes are being sent by all clients together")

    async def _answer(self, frame: bytes) -> None:
        header = Header(i16(frame[:2]), i16(frame[2:4]), frame[4:8])
        if header.api not in BEFORE:
            if await self._must_authenticate():
                raise Malformed(f"API key {header.api} before it has authenticated")
            self._slot.prove()
        elif len(frame) > UNKNOWN_FRAME_BYTES_MAX:
            raise Malformed(f"API key {header.api} with {len(frame)} bytes, more than any real one has")
        match route(header.api, header.version, shared=self._host.shared):
            case Route.PASS:
                await self._pass(frame, header)
            case Route.REWRITE:
                await self._rewrite(frame, header)
            case Route.CARRY:
                await self._carry(frame, header)
            case Route.RELAY:
                await self._relay(frame)
            case Route.OWN:
                await self._answer_as_node(frame, header)
            case Route.AUTHENTICATE:
                await self._authenticate(frame, header)
            case Route.REFUSE:
                await self._refuse_traffic(frame, header)
            case Route.CLOSE:
                raise Malformed(f"API key {header.api} v{header.version} is not offered")

    # -- with a broker

    async def _pass(self, frame: bytes, header: Header) -> None:
        upstream = await self._connected()
        size = await upstream.ask(frame)
        await self._stream.send(head(header, size))
        await self._pass_rest(upstream)

    async def _pass_rest(self, upstream: Upstream) -> None:
        while upstream.left:
            await self._stream.send(await upstream.take())

    async def _rewrite(self, frame: bytes, header: Header) -> None:
        """The beginning of the answer is held and changed; what follows it, the topics of Metadata, is passed on."""
        upstream = await self._connected()
        await upstream.ask(frame)
        body = await self._changed(upstream, Api(header.api), header.version)
        await self._stream.send(head(header, len(body) + upstream.left), body)
        await self._pass_rest(upstream)

    async def _changed(self, upstream: Upstream, api: Api, version: int) -> bytes:
        """What is sent instead of all that was taken of the answer so far: as little as holds what is changed."""
        codec, held, why = response_codec(api, version), b"", ""
        for more in (CHUNK_BYTES, REWRITTEN_BYTES_MAX):
            held += await upstream.take_up_to(more)
            try:
                return rewritten(api, codec, held, self._host.controller.node(), shared=self._host.shared)
            except Malformed as error:
                why = str(error)
        raise BrokerLost(f"its answer to {api.name} v{version} cannot be read: {why}")

    async def _authenticate(self, frame: bytes, header: Header) -> None:
        """Passed on as it is: credentials stay where they are. What both say tells who the client is."""
        api, codec = Api(header.api), response_codec(Api(header.api), header.version)
        request = (await self._read(frame)).body
        upstream = await self._connected()
        size = await upstream.ask(frame)
        held = await upstream.take_up_to(REWRITTEN_BYTES_MAX)
        try:
            answer = codec.read(body_of(api, codec, held))
        except Malformed as error:
            raise BrokerLost(f"its answer to {api.name} v{header.version} cannot be read: {error}") from error
        self._identity.heard(request, answer)
        if self._identity.authenticated:
            self._slot.prove()
        await self._stream.send(head(header, size), held)
        await self._pass_rest(upstream)

    async def _brokers_known(self) -> None:
        try:
            async with asyncio.timeout(self._host.limits.connect_timeout_ms / 1000):
                await self._host.directory.known()
        except TimeoutError:
            raise BrokerLost("what brokers there are was not read yet") from None

    async def _connected(self) -> Upstream:
        if self._upstream is None:
            await self._brokers_known()
            brokers = self._host.directory.brokers()
            tls = self._host.tls.brokers if self._host.tls is not None else None
            self._upstream = await Upstream.connect(brokers, self._host.limits, self._broker_lost, tls)
        return self._upstream

    def _broker_lost(self) -> None:
        """The client learns it at once, or behind the answer that it waits for, as if the broker had hung up on it."""
        self._broker_gone = True
        if not self._busy:
            self._stream.close()

    # -- without

    async def _carry(self, frame: bytes, header: Header) -> None:
        request = await self._read(frame)
        if (principal := await self._principal()) is None:
            await self._reply(header, refusal(request.body, Error.CLUSTER_AUTHORIZATION_FAILED, UNKNOWN))
            return
        api = Api(header.api)
        call = Call(api, header.version, request.body, principal, request.client_id, self._stream.peer, frame)
        try:
            answer = await self._host.controller.carry(call)
        except NotController:
            answer = refusal(request.body, Error.NOT_CONTROLLER)
        self._throttle_ms = getattr(answer, "throttle_time_ms", 0)
        await self._reply(header, answer)

    async def _principal(self) -> str | None:
        """Who the client is; None where that must be known, and is not."""
        await self._brokers_known()
        if not self._host.directory.secured():
            return ANONYMOUS
        principal = self._identity.principal
        return None if principal == ANONYMOUS else principal

    async def _relay(self, frame: bytes) -> None:
        """A broker that finds nobody here looks for the controller again."""
        if (principal := await self._principal()) is None:
            raise Malformed(f"a call to the controller: {UNKNOWN}")
        try:
            await self._stream.send(await self._host.controller.relay(frame, principal, self._stream.peer))
        except NotController:
            raise Malformed("a call to the controller, which no daemon is at present, or none that answers") from None

    async def _answer_as_node(self, frame: bytes, header: Header) -> None:
        node = self._host.controller.node()
        if node is None:
            await self._pass(frame, header)
            return
        request = await self._read(frame)
        if (answer := own_answer(request.body)) is None:
            answer = await self._configs_with_own(request, header, node.id)
        if answer is None:
            await self._pass(frame, header)
        else:
            await self._reply(header, answer)

    async def _configs_with_own(self, request: Request, header: Header, node_id: int) -> Struct | None:
        """Returns the answer to a configuration call that names the daemon; None for one that does not."""
        if not about_configs(body := request.body) or not names_own(body, node_id):
            return None
        others = without_own(body, node_id)
        answer = await self._broker_answers(header, request.client_id, others) if others.resources else None
        return with_own(body, answer, node_id)

    async def _broker_answers(self, header: Header, client_id: str | None, body: Struct) -> Any:
        """Sends a request in place of the client's and returns the broker's whole answer, within the bounds of both."""
        api = Api(header.api)
        upstream = await self._connected()
        size = await upstream.ask(request_frame(header, client_id, request_codec(api, header.version), body))
        if size > self._host.limits.frame_bytes_max:
            raise BrokerLost(f"its answer to {api.name} v{header.version} has {size} bytes, too many to be merged")
        parts = []
        while upstream.left:
            parts.append(await upstream.take())
            self._reserve(len(parts[-1]))
        codec, held = response_codec(api, header.version), b"".join(parts)
        try:
            return await beside(lambda: codec.read(body_of(api, codec, held)), len(held))
        except Malformed as error:
            raise BrokerLost(f"its answer to {api.name} v{header.version} cannot be read: {error}") from error

    async def _refuse_traffic(self, frame: bytes, header: Header) -> None:
        answer = wrong_node((await self._read(frame)).body)
        if answer is None:
            raise Malformed("it produces here, without waiting for answers; leaders are elsewhere")
        await self._reply(header, answer)

    async def _read(self, frame: bytes) -> Request:
        """A request; raises Malformed. What it holds counts like the bytes that it came in."""
        request = await beside(partial(read_request, frame), len(frame))
        self._reserve(request.items * ITEM_BYTES)
        return request

    async def _reply(self, header: Header, answer: Struct) -> None:
        codec = response_codec(Api(header.api), header.version)
        body = (NO_TAGS if codec.flexible else b"") + await beside(partial(codec.write, answer), self._reserved)
        await self._stream.send(head(header, len(body)), body)

    def _refuse(self, kind: str, why: str) -> None:
        self._host.quiet.warn(self._stream.peer, kind, f"a connection from {self._stream.peer} is closed: {why}")
        self._stream.abort()


async def hold(seconds: float) -> None:
    """Holds a connection back; a client that hangs up ends it."""
    await asyncio.sleep(seconds)
