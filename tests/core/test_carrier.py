"""Calls on their way from an endpoint to a daemon: over a real listener, sealed, tried again when the role moves."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from admin.carrier import Carrier
from admin.ports import Call, Holder, Node, NotController
from brokers.listener.controller_listener import ControllerListener
from brokers.listener.controller_listener import NotController as RoleLost
from brokers.listener.envelopes import CarriedCall
from brokers.listener.inbound import InboundConnection
from brokers.transport import TcpTransport
from brokers.wire import envelope as envelope_module
from brokers.wire.calls import AllocateProducerIdsCall
from brokers.wire.envelope import (
    Envelope,
    EnvelopeResponse,
    encode_envelope,
    encode_envelope_response,
    envelope_key,
    read_envelope,
    read_envelope_response,
)
from brokers.wire.frames import ConnectionLost
from brokers.wire.messages import request_codec
from brokers.wire.messages.topics import CreatableTopic, CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from brokers.wire.off_loop import LARGE_BYTES
from brokers.wire.primitives import Reader
from brokers.wire.replies import AllocateProducerIdsReply
from brokers.wire.versions import Api
from tests.polling import eventually

SECRET, CLUSTER = b"s" * 32, "a cluster"
Act = Callable[[CarriedCall], Awaitable[Struct]]


class Handlers:
    """What an active daemon does with calls: takes them down, then ``act``."""

    def __init__(self) -> None:
        self.calls: list[CarriedCall] = []
        self.act: Act = made
        self.blocks = 0

    def called(self) -> bool:
        return bool(self.calls)

    async def carried(self, call: CarriedCall) -> Struct:
        self.calls.append(call)
        return await self.act(call)

    def registered(self, broker: int, epoch: int) -> bool:
        return True

    async def admits(self, principal: str, client_host: str) -> bool:
        return (principal, client_host) == ("User:broker", "10.0.0.7")

    async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> AllocateProducerIdsReply:
        self.blocks += 1
        return AllocateProducerIdsReply(0, 1_000 * call.broker_id, 1_000)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


async def made(call: CarriedCall) -> Struct:
    return CreateTopicsResponse((CreatedTopic("t"),))


class Role:
    """Who holds the role, as the endpoint sees it."""

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
        self.held = daemon.holder if daemon is not None else None
        self.nobody = nobody
        self._changed.set()
        self._changed = asyncio.Event()


class Daemon:
    """A listener and whoever serves behind it."""

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
    """An endpoint's carrier and two daemons; the first is in office."""

    def __init__(self, daemons: list[Daemon], role: Role, carrier: Carrier) -> None:
        self.first, self.second = daemons
        self.role = role
        self.carrier = carrier

    async def carry(self, **options: Any) -> Any:
        async with asyncio.timeout(20):
            return await self.carrier.carry(a_call(**options))


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


def a_call(timeout_ms: int = 5_000, version: int = 7, principal: str = "User:alice", client: str | None = None) -> Call:
    body = CreateTopicsRequest((CreatableTopic("t", 1, 1, (), ()),), timeout_ms)
    codec = request_codec(Api.CREATE_TOPICS, version)
    name = b"\xff\xff" if client is None else len(client).to_bytes(2, "big") + client.encode()
    head = b"\0\x13" + version.to_bytes(2, "big") + b"\0\0\0\1" + name + (b"\0" if codec.flexible else b"")
    return Call(Api.CREATE_TOPICS, version, body, principal, client, "10.0.0.7", head + codec.write(body))


def code(answer: Any) -> int:
    return int(answer.topics[0].error_code)


@pytest.mark.parametrize("version", range(8))
async def test_a_call_arrives_as_it_was_sent_and_so_does_its_answer(version: int) -> None:
    async with way() as w:
        assert code(await w.carry(version=version)) == 0
        [call] = w.first.handlers.calls
        assert (call.api, call.version, call.principal, call.client_host, call.attempt) == (
            Api.CREATE_TOPICS, version, "User:alice", "10.0.0.7", 0,
        )  # fmt: skip
        assert call.body.topics[0].name == "t"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("client", "known_as"), [(None, ""), ("", ""), ("tool", "tool")])
async def test_the_controller_knows_the_clients_id(client: str | None, known_as: str) -> None:
    async with way() as w:
        await w.carry(client=client)
        [call] = w.first.handlers.calls
        assert call.client_id == known_as


async def test_connections_are_used_again_and_calls_have_ids_of_their_own() -> None:
    async with way() as w:
        for _ in range(5):
            await w.carry()
        assert w.first.listener.connections == 1
        assert len({call.call_id for call in w.first.handlers.calls}) == 5
        await asyncio.gather(*(w.carry() for _ in range(20)))
        await eventually(lambda: w.first.listener.connections <= 8)


async def test_another_secret_is_refused_and_said(caplog: pytest.LogCaptureFixture) -> None:
    async with way(theirs=b"t" * 32) as w:
        with caplog.at_level(logging.WARNING):
            assert code(await w.carry()) == 31
        assert "admin.secret_file" in caplog.text
        assert w.first.handlers.calls == []


async def test_without_a_secret_nothing_is_carried_and_nothing_is_taken() -> None:
    async with way(secret=None) as w:
        with pytest.raises(NotController):
            await w.carry()
    async with way(theirs=None) as w:
        with pytest.raises(NotController):
            await w.carry(timeout_ms=200)
        assert w.first.handlers.calls == []


async def test_a_daemon_that_is_not_in_office_has_not_begun_and_the_next_one_is_asked() -> None:
    async with way() as w:
        w.first.listener.resign()
        with pytest.raises(NotController):
            await w.carry(timeout_ms=0)
        assert w.first.handlers.calls == []
        w.carrier.close()
        await w.first.listener.stop()
        waiting = asyncio.create_task(w.carry())
        await asyncio.sleep(0)
        w.second.serve()
        w.role.is_of(w.second)
        assert code(await waiting) == 0
        [call] = w.second.handlers.calls
        assert call.attempt == 0


async def test_a_role_that_is_lost_while_the_call_waits_makes_it_an_attempt() -> None:
    async def lost(call: CarriedCall) -> Struct:
        w.second.serve()
        w.role.is_of(w.second)
        raise RoleLost

    async with way() as w:
        w.first.handlers.act = lost
        assert code(await w.carry()) == 0
        [first], [second] = w.first.handlers.calls, w.second.handlers.calls
        assert (first.attempt, second.attempt) == (0, 1)
        assert first.call_id == second.call_id


async def test_a_daemon_that_hangs_up_or_answers_no_more_is_given_up_for_the_next_one() -> None:
    async def stuck(call: CarriedCall) -> Struct:
        await asyncio.Event().wait()
        raise AssertionError

    for hangs_up in (False, True):
        async with way() as w:
            w.first.handlers.act = stuck
            w.second.serve()
            waiting = asyncio.create_task(w.carry())
            await eventually(w.first.handlers.called)
            if hangs_up:
                w.first.listener.close_connections()
            w.role.is_of(w.second)
            assert code(await waiting) == 0
            assert [call.attempt for call in w.second.handlers.calls] == [1]


@pytest.mark.parametrize(("size", "sent"), [(100, 2), (2_000_000, 1)])
async def test_a_call_with_which_daemons_vanish_is_not_sent_for_ever(size: int, sent: int) -> None:
    async def vanish(call: CarriedCall) -> Struct:
        for daemon in (w.first, w.second):
            daemon.listener.close_connections()
        await asyncio.Event().wait()
        raise AssertionError

    async with way() as w:
        w.first.handlers.act = w.second.handlers.act = vanish
        client = "c" * min(size, 30_000)
        call = a_call(client=client)
        answer: Any = await w.carrier.carry(replace(call, frame=call.frame + bytes(max(0, size - 30_000))))
        assert (code(answer), len(w.first.handlers.calls)) == (-1, sent)
        assert "vanished during this call" in answer.topics[0].error_message


async def test_a_daemon_that_answered_in_between_has_not_vanished() -> None:
    async def alternately(call: CarriedCall) -> Struct:
        match len(w.first.handlers.calls):
            case 1 | 3:
                w.first.listener.close_connections()
                await asyncio.Event().wait()
            case 2:
                raise RoleLost
        return await made(call)

    async with way() as w:
        w.first.handlers.act = alternately
        assert code(await w.carry()) == 0
        assert [call.attempt for call in w.first.handlers.calls] == [0, 1, 2, 3]


async def test_while_nobody_holds_the_role_a_call_waits_and_while_a_broker_does_it_does_not() -> None:
    async with way() as w:
        w.role.is_of(None, nobody=True)
        waiting = asyncio.create_task(w.carry())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        w.role.is_of(w.first)
        assert code(await waiting) == 0
        w.role.is_of(None, nobody=True)
        with pytest.raises(NotController):
            await w.carry(timeout_ms=50)
        w.role.is_of(None)
        with pytest.raises(NotController):
            await w.carry(timeout_ms=1_000_000)


async def test_a_client_that_hangs_up_gives_its_call_up_and_its_connection_is_not_used_again() -> None:
    gate = asyncio.Event()

    async def waits(call: CarriedCall) -> Struct:
        await gate.wait()
        return await made(call)

    async with way() as w:
        w.first.handlers.act = waits
        waiting = asyncio.create_task(w.carry())
        await eventually(lambda: bool(w.first.handlers.calls))
        waiting.cancel()
        gate.set()
        await eventually(lambda: w.first.listener.connections == 0)
        assert code(await w.carry()) == 0


async def test_an_error_in_a_handler_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(call: CarriedCall) -> Struct:
        raise ZeroDivisionError

    async with way() as w:
        w.first.handlers.act = fail
        assert code(await w.carry()) == -1
        assert "ZeroDivisionError" in caplog.text
        w.first.handlers.act = made
        assert code(await w.carry()) == 0


# -- envelopes that are not an endpoint's


class Raw:
    """A connection that sends what it likes."""

    def __init__(self, connection: Any, challenge: bytes) -> None:
        self.connection = connection
        self.challenge = challenge
        self._correlation = 0

    @classmethod
    async def to(cls, daemon: Daemon) -> Raw:
        connection = await TcpTransport().connect("127.0.0.1", daemon.listener.port, lambda: None)
        raw = cls(connection, b"")
        raw.challenge = (await raw.ask(Envelope(b""))).data or b""
        return raw

    async def ask(self, envelope: Envelope) -> EnvelopeResponse:
        self._correlation += 1
        async with asyncio.timeout(20):
            frame = await self.connection.exchange([encode_envelope(self._correlation, envelope)])
        return read_envelope_response(frame, self._correlation)

    def sealed(self, number: int, request: bytes | None = None) -> Envelope:
        envelope = Envelope(a_call().frame if request is None else request, "User:alice", "10.0.0.7")
        return envelope.sealed(envelope_key(SECRET, CLUSTER, 1), self.challenge, bytes(16), 0, number)


async def test_what_was_sent_before_is_refused_on_the_same_connection_and_on_another() -> None:
    async with way() as w:
        raw, other = await Raw.to(w.first), await Raw.to(w.first)
        sent = raw.sealed(3)
        assert (await raw.ask(sent)).error == 0
        assert (await raw.ask(sent)).error == 31
        assert (await raw.ask(raw.sealed(2))).error == 31
        assert (await raw.ask(raw.sealed(4))).error == 0
        assert (await other.ask(sent)).error == 31
        assert (await other.ask(Envelope(a_call().frame, "User:alice"))).error == 31
        assert len(w.first.handlers.calls) == 2
        raw.connection.close()
        other.connection.close()


LARGE = bytes(4 * LARGE_BYTES)


class Judged:
    """Seals that daemons judged and made: how many bytes they are of, and whether the loop stood still for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[tuple[int, bool]] = []
        real = envelope_module._mac

        def mac(key: bytes, *parts: bytes) -> bytes:
            self.sizes.append((sum(map(len, parts)), threading.current_thread() is threading.main_thread()))
            return real(key, *parts)

        monkeypatch.setattr(envelope_module, "_mac", mac)

    @property
    def large(self) -> list[bool]:
        return [on_loop for size, on_loop in self.sizes if size > LARGE_BYTES]


async def test_the_seal_of_a_large_envelope_is_judged_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with way() as w:
        raw = await Raw.to(w.first)
        envelopes = [raw.sealed(1), raw.sealed(2, a_call().frame + LARGE), raw.sealed(3)]
        judged = Judged(monkeypatch)
        assert [(await raw.ask(envelope)).error for envelope in envelopes] == [0, 0, 0]
        assert judged.large == [False]
        assert [on_loop for size, on_loop in judged.sizes if size <= LARGE_BYTES] == [True] * 5
        raw.connection.close()


async def test_the_answer_to_a_large_call_is_sealed_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def many(call: CarriedCall) -> Struct:
        return CreateTopicsResponse(tuple(CreatedTopic("t" * 200) for _ in range(1_000)))

    async with way() as w:
        w.first.handlers.act = many
        raw = await Raw.to(w.first)
        envelope = raw.sealed(1)
        judged = Judged(monkeypatch)
        assert (await raw.ask(envelope)).error == 0
        assert judged.large == [False]
        raw.connection.close()


async def test_an_endpoint_seals_large_calls_and_opens_large_answers_beside_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def many(call: CarriedCall) -> Struct:
        return CreateTopicsResponse(tuple(CreatedTopic("t" * 200) for _ in range(1_000)))

    async with way() as w:
        w.first.handlers.act = many
        judged, call = Judged(monkeypatch), a_call()
        answer: Any = await w.carrier.carry(replace(call, frame=call.frame + LARGE))
        assert len(answer.topics) == 1_000
        assert judged.large == [False] * 4, "call and answer, on both sides"


@pytest.mark.parametrize("afresh", [False, True], ids=["at once", "after a new challenge"])
@pytest.mark.parametrize(("size", "whole"), [(len(LARGE), 2), (2_000_000, 1)], ids=["in one piece", "in many pieces"])
async def test_of_a_connection_with_a_wrong_seal_nothing_large_is_read_again(
    monkeypatch: pytest.MonkeyPatch, size: int, whole: int, afresh: bool
) -> None:
    async with way() as w:
        raw = await Raw.to(w.first)
        wrong = Envelope(bytes(size), "User:alice").sealed(b"x" * 32, raw.challenge, bytes(16), 0, 1)
        judged, came, real = Judged(monkeypatch), list[int](), w.first.listener.respond

        async def respond(frame: bytes, connection: InboundConnection | None = None) -> bytes:
            came.append(len(frame))
            return await real(frame, connection)

        monkeypatch.setattr(w.first.listener, "respond", respond)
        assert (await raw.ask(wrong)).error == 31
        assert not afresh or (await raw.ask(Envelope(b""))).error == 0
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await raw.ask(wrong)
        assert judged.large == [False]
        assert len([size for size in came if size > 1_000]) <= whole, (
            "of the second one no more than its beginning, unless all of it is there at once"
        )
        assert w.first.handlers.calls == []


async def test_an_endpoint_that_was_refused_sends_its_next_call_on_a_new_connection() -> None:
    async with way(theirs=b"t" * 32) as w:
        for _ in range(2):
            call = a_call()
            assert code(await w.carrier.carry(replace(call, frame=call.frame + LARGE))) == 31
            await eventually(lambda: w.first.listener.connections == 0)


async def test_a_seal_without_a_challenge_is_refused() -> None:
    async with way() as w:
        connection = await TcpTransport().connect("127.0.0.1", w.first.listener.port, lambda: None)
        raw = Raw(connection, b"")
        assert (await raw.ask(raw.sealed(1))).error == 31
        connection.close()


@pytest.mark.parametrize(
    "request_", [b"\0", b"\0\x13\0\x09" + bytes(8), b"\0\x03\0\0" + bytes(8), b"\0\x13\0\7" + b"\xff" * 20]
)
async def test_what_is_in_an_envelope_and_cannot_be_read_is_answered_so(request_: bytes) -> None:
    async with way() as w:
        raw = await Raw.to(w.first)
        assert (await raw.ask(raw.sealed(1, request_))).error == 42
        assert (await raw.ask(raw.sealed(2))).error == 0
        raw.connection.close()


@pytest.mark.parametrize("key", [envelope_key(SECRET, "another", 1), envelope_key(SECRET, CLUSTER, 2), SECRET])
async def test_what_is_sealed_for_another_cluster_or_daemon_is_refused(key: bytes) -> None:
    async with way() as w:
        raw = await Raw.to(w.first)
        envelope = Envelope(a_call().frame, "User:alice", "10.0.0.7")
        assert (await raw.ask(envelope.sealed(key, raw.challenge, bytes(16), 0, 1))).error == 31
        assert (await raw.ask(raw.sealed(1))).error == 0
        raw.connection.close()


async def test_a_daemon_that_does_not_know_its_cluster_yet_is_not_the_controller() -> None:
    listener = ControllerListener("127.0.0.1", 0, secret=SECRET)
    await listener.start()
    connection = await TcpTransport().connect("127.0.0.1", listener.port, lambda: None)
    raw = Raw(connection, b"")
    assert (await raw.ask(raw.sealed(1))).error == 41
    connection.close()
    await listener.stop()


@pytest.mark.parametrize("how", ["unsealed", "other secret", "other challenge", "other answer"])
async def test_an_answer_that_the_daemon_has_not_sealed_is_not_believed(how: str) -> None:
    """Somebody on the way, or at the daemon's address, says that a topic was created."""
    key = envelope_key(b"x" * 32 if how == "other secret" else SECRET, CLUSTER, 1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            frame = Reader(await reader.readexactly(int.from_bytes(size, "big")))
            frame.skip(4)
            correlation, seal = frame.i32(), read_envelope(frame).seal
            made = EnvelopeResponse(0, b"c" * 16)
            if seal is not None:
                made = EnvelopeResponse(0, b"it is done")
                if how != "unsealed":
                    made = made.sealed(key, b"d" * 16 if how == "other challenge" else b"c" * 16, seal)
                if how == "other answer":
                    made = made._replace(data=b"it is not done")
            writer.write(encode_envelope_response(correlation, made))
        writer.close()

    async with way() as w:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        w.role.held = w.first.holder._replace(port=server.sockets[0].getsockname()[1])
        assert code(await w.carry(timeout_ms=300)) == -1
        w.carrier.close()
        server.close()


async def test_a_listener_without_a_secret_hangs_up_on_envelopes() -> None:
    async with way(theirs=None) as w:
        with pytest.raises(OSError, match="closed"):
            await Raw.to(w.first)


# -- brokers' calls, where they share a listener with clients

ALLOCATE = b"\x00\x43\x00\x00\x00\x00\x00\x09\xff\xff\x00" + (5).to_bytes(4, "big") + (77).to_bytes(8, "big") + b"\x00"
"""AllocateProducerIds v0 of broker 5, correlation 9."""


def allocated(frame: bytes) -> tuple[int, int, int]:
    """Correlation id, error and first id of a framed answer."""
    assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
    number = int.from_bytes
    return number(frame[4:8], "big"), number(frame[13:15], "big", signed=True), number(frame[15:23], "big")


async def test_a_brokers_call_is_answered_by_the_daemon_in_office() -> None:
    async with way() as w:
        assert allocated(await w.carrier.relay(ALLOCATE, "User:broker", "10.0.0.7")) == (9, 0, 5_000)
        assert w.first.handlers.blocks == 1


async def test_who_may_not_act_as_a_broker_is_told_so() -> None:
    async with way() as w:
        correlation, error, _ = allocated(await w.carrier.relay(ALLOCATE, "User:alice", "10.0.0.7"))
        assert (correlation, error) == (9, 31)
        assert w.first.handlers.blocks == 0


async def test_a_daemon_that_resigned_says_so_and_its_broker_looks_again() -> None:
    async with way() as w:
        w.first.listener.resign()
        assert allocated(await w.carrier.relay(ALLOCATE, "User:broker", "10.0.0.7"))[1] == 41


@pytest.mark.parametrize("frame", [ALLOCATE[:-2], b"\x00\x43\x00\x09" + ALLOCATE[4:], ALLOCATE[:2]])
async def test_what_is_no_call_reaches_nobody(frame: bytes) -> None:
    async with way() as w:
        with pytest.raises(NotController):
            await w.carrier.relay(frame, "User:broker", "10.0.0.7")
        assert w.first.handlers.blocks == 0


async def test_without_a_daemon_in_office_there_is_no_answer() -> None:
    async with way() as w:
        w.role.is_of(None)
        with pytest.raises(NotController):
            await w.carrier.relay(ALLOCATE, "User:broker", "10.0.0.7")
