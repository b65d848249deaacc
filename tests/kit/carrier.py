"""An endpoint's carrier and two daemons with real listeners, and connections that send raw envelopes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from admin.carrier import Carrier
from admin.ports import Call, Holder, Node
from brokers.listener.controller_listener import ControllerListener
from brokers.listener.envelopes import CarriedCall
from brokers.transport import TcpTransport
from brokers.wire.envelope import Envelope, EnvelopeResponse, encode_envelope, envelope_key, read_envelope_response
from brokers.wire.messages import request_codec
from brokers.wire.messages.topics import CreatableTopic, CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from brokers.wire.versions import Api
from tests.kit.deadlines import eventually
from tests.kit.listener import HandlersDouble

SECRET, CLUSTER = b"s" * 32, "a cluster"
Act = Callable[[CarriedCall], Awaitable[Struct]]


class Handlers(HandlersDouble):
    """Handles calls of endpoints: records each, then ``act``."""

    def __init__(self) -> None:
        super().__init__()
        self.carried_calls: list[CarriedCall] = []
        self.act: Act = created

    async def carried(self, call: CarriedCall) -> Struct:
        self.carried_calls.append(call)
        return await self.act(call)

    async def admits(self, principal: str, client_host: str) -> bool:
        return (principal, client_host) == ("User:broker", "10.0.0.7")


async def created(call: CarriedCall) -> Struct:
    return CreateTopicsResponse((CreatedTopic("t"),))


class Role:
    """The holder of the role, as the endpoint sees it."""

    def __init__(self) -> None:
        self.held: Holder | None = None
        self.nobody = True
        self._changed = asyncio.Event()

    def node(self) -> Node | None:
        return None

    def holder(self) -> Holder | None:
        return self.held

    def vacant(self) -> bool:
        return self.nobody

    async def changed(self) -> None:
        await self._changed.wait()

    def is_of(self, daemon: Daemon | None, *, nobody: bool = False) -> None:
        """Gives the role to a daemon, to a broker (None), or to nobody."""
        self.held = daemon.holder if daemon is not None else None
        self.nobody = nobody
        self._changed.set()
        self._changed = asyncio.Event()


class Daemon:
    """A listener and its handlers."""

    def __init__(self, number: int, secret: bytes | None) -> None:
        self.listener = ControllerListener("127.0.0.1", 0, secret=secret)
        self.listener.identify(CLUSTER, number)
        self.handlers = Handlers()
        self.number = number

    @property
    def holder(self) -> Holder:
        return Holder(self.number, f"nonce-{self.number}", "127.0.0.1", self.listener.port, CLUSTER)

    def serve(self) -> None:
        self.listener.serve(self.handlers)


class Way:
    """An endpoint's carrier and two daemons, of which the first is active."""

    def __init__(self, daemons: list[Daemon], role: Role, carrier: Carrier) -> None:
        self.first, self.second = daemons
        self.role = role
        self.carrier = carrier

    async def carry(self, **options: Any) -> Any:
        """Carries a call; returns its response."""
        async with asyncio.timeout(60):
            return await self.carrier.carry(a_call(**options))

    def move(self) -> None:
        """Moves the role to the second daemon."""
        self.second.serve()
        self.role.is_of(self.second)

    async def left(self, connections: int) -> None:
        """Waits until the first daemon has at most so many connections."""
        await eventually(lambda: self.first.listener.connections <= connections)

    async def called(self) -> None:
        """Waits until the first daemon has a call."""
        await eventually(lambda: bool(self.first.handlers.carried_calls))


@asynccontextmanager
async def way(secret: bytes | None = SECRET, theirs: bytes | None = SECRET) -> AsyncIterator[Way]:
    daemons = [Daemon(1, theirs), Daemon(2, theirs)]
    for daemon in daemons:
        await daemon.listener.start()
    role = Role()
    carrier = Carrier(role, secret)
    daemons[0].serve()
    role.is_of(daemons[0])
    try:
        yield Way(daemons, role, carrier)
    finally:
        carrier.close()
        for daemon in daemons:
            await daemon.listener.stop()
    await eventually(lambda: not any(daemon.listener.connections for daemon in daemons))


def a_call(
    timeout_ms: int = 30_000, version: int = 7, principal: str = "User:alice", client: str | None = None
) -> Call:
    body = CreateTopicsRequest((CreatableTopic("t", 1, 1, (), ()),), timeout_ms)
    codec = request_codec(Api.CREATE_TOPICS, version)
    name = b"\xff\xff" if client is None else len(client).to_bytes(2, "big") + client.encode()
    head = b"\0\x13" + version.to_bytes(2, "big") + b"\0\0\0\1" + name + (b"\0" if codec.flexible else b"")
    return Call(Api.CREATE_TOPICS, version, body, principal, client, "10.0.0.7", head + codec.write(body))


def code(answer: Any) -> int:
    return int(answer.topics[0].error_code)


class Raw:
    """A connection that sends raw envelopes."""

    def __init__(self, connection: Any, challenge: bytes) -> None:
        self.connection = connection
        self.challenge = challenge
        self._correlation = 0

    @classmethod
    async def to(cls, daemon: Daemon) -> Raw:
        """Connects, and requests a challenge."""
        connection = await TcpTransport().connect("127.0.0.1", daemon.listener.port, lambda: None)
        raw = cls(connection, b"")
        raw.challenge = (await raw.exchange(Envelope(b""))).data or b""
        return raw

    async def errors(self, *envelopes: Envelope) -> list[int]:
        """Sends envelopes one after the other; returns the errors of the responses."""
        return [(await self.exchange(envelope)).error for envelope in envelopes]

    async def exchange(self, envelope: Envelope) -> EnvelopeResponse:
        self._correlation += 1
        async with asyncio.timeout(60):
            frame = await self.connection.exchange([encode_envelope(self._correlation, envelope)])
        return read_envelope_response(frame, self._correlation)

    def sealed(self, number: int, request: bytes | None = None) -> Envelope:
        """Returns an envelope with a genuine seal of this number."""
        envelope = Envelope(a_call().frame if request is None else request, "User:alice", "10.0.0.7")
        return envelope.sealed(envelope_key(SECRET, CLUSTER, 1), self.challenge, bytes(16), 0, number)
