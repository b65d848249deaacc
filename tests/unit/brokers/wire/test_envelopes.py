"""Envelopes: Kafka's frame, the seal, and those at a daemon's listener that are not genuine."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from brokers.listener import controller_listener
from brokers.listener.controller_listener import ControllerListener
from brokers.listener.envelopes import CarriedCall, Envelopes
from brokers.listener.inbound import InboundConnection
from brokers.transport import TcpTransport
from brokers.wire import envelope as envelope_module
from brokers.wire.envelope import (
    Envelope,
    EnvelopeResponse,
    encode_envelope,
    encode_envelope_response,
    envelope_key,
    read_envelope,
    read_envelope_response,
)
from brokers.wire.frames import LARGE_BYTES, ConnectionLost
from brokers.wire.messages.topics import CreatedTopic, CreateTopicsResponse
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.versions import Api
from tests.kit.carrier import CLUSTER, Raw, a_call, code, created, way
from tests.kit.carrier import SECRET as LISTENER_SECRET
from tests.kit.deadlines import eventually
from tests.kit.wire import quickly, read_request, read_response, unframe, write_request

SECRET, CHALLENGE, CALL = b"s" * 32, b"c" * 16, b"i" * 16
PLAIN = Envelope(b"a request", "User:alice", "10.0.0.7")


def read(frame: bytes) -> Envelope:
    reader = Reader(frame)
    reader.skip(8)
    return read_envelope(reader)


def sealed(envelope: Envelope = PLAIN, number: int = 1) -> Envelope:
    return envelope.sealed(SECRET, CHALLENGE, CALL, 2, number)


def test_an_envelope_has_kafkas_frame() -> None:
    header, entity = read_request(unframe([encode_envelope(7, PLAIN)]))
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (Api.ENVELOPE, 0, 7)
    assert entity.request_data == PLAIN.request
    assert entity.client_host_address == bytes((10, 0, 0, 7))
    assert entity.request_principal == b"\0\0" + b"\x05User" + b"\x06alice" + b"\0" + b"\0"


def test_an_envelope_of_kafka_is_read() -> None:
    frame = write_request(Api.ENVELOPE, 0, 7, request_data=b"r", request_principal=None, client_host_address=bytes(16))
    assert read(frame) == Envelope(b"r", "", "::")


def test_a_response_has_kafkas_frame() -> None:
    for response in (EnvelopeResponse(0, b"data"), EnvelopeResponse(41, None), EnvelopeResponse(0, b"")):
        frame = unframe([encode_envelope_response(9, response)])
        correlation, entity = read_response(Api.ENVELOPE, 0, frame)
        assert (correlation, entity.error_code, entity.response_data) == (9, response.error, response.data)
        assert read_envelope_response(frame, 9) == response
        with pytest.raises(BadMessage, match="request 9"):
            read_envelope_response(frame, 8)


@quickly
@given(
    request_=st.binary(max_size=200),
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    host=st.ip_addresses().map(str),
    number=st.integers(0, 2**63 - 1),
)
def test_a_sealed_envelope_arrives_as_it_was_sent(request_: bytes, name: str, host: str, number: int) -> None:
    sent = sealed(Envelope(request_, f"User:{name}", host), number)
    found = read(unframe([encode_envelope(1, sent)]))
    assert found == sent
    assert found.genuine(SECRET, CHALLENGE)


def changed(**fields: Any) -> Envelope:
    """Returns the sealed envelope with other fields."""
    made = sealed()
    assert made.seal is not None
    inside = {"request": made.request, "principal": made.principal, "client_host": made.client_host}
    mine = {name: value for name, value in fields.items() if name in inside}
    seal = made.seal._replace(**{name: value for name, value in fields.items() if name not in inside})
    return Envelope(**(inside | mine), seal=seal)


@pytest.mark.parametrize(
    "fields",
    [
        {"request": b"another"},
        {"principal": "User:bob"},
        {"client_host": "10.0.0.8"},
        {"call_id": b"j" * 16},
        {"attempt": 3},
        {"number": 2},
        {"mac": bytes(32)},
        {"principal": "User:alice1", "client_host": ""},
        {"client_host": "", "request": bytes((10, 0, 0, 7)) + PLAIN.request},
    ],
)
def test_an_envelope_with_a_changed_field_is_not_genuine(fields: dict[str, Any]) -> None:
    assert changed().genuine(SECRET, CHALLENGE)
    assert not changed(**fields).genuine(SECRET, CHALLENGE)


def test_another_secret_another_connection_or_no_seal_is_not_genuine() -> None:
    assert not sealed().genuine(b"t" * 32, CHALLENGE)
    assert not sealed().genuine(SECRET, b"d" * 16)
    assert not PLAIN.genuine(SECRET, CHALLENGE)


def test_a_malformed_address_is_left_out_and_the_seal_is_genuine() -> None:
    found = read(unframe([encode_envelope(1, sealed(Envelope(b"r", "User:a", "unknown peer")))]))
    assert found.client_host == ""
    assert found.genuine(SECRET, CHALLENGE)


@quickly
@given(data=st.data())
def test_cut_or_changed_frames_are_malformed_or_not_genuine(data: st.DataObject) -> None:
    frame = bytearray(unframe([encode_envelope(1, sealed())]))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(8, len(frame)))])
    try:
        found = read(cut)
    except BadMessage:
        return
    assert not found.genuine(SECRET, CHALLENGE) or found == sealed()


LARGE = bytes(4 * LARGE_BYTES)


async def test_an_envelope_that_was_sent_before_is_refused_on_its_connection_and_on_another() -> None:
    async with way() as w:
        raw, other = await Raw.to(w.first), await Raw.to(w.first)
        sent = raw.sealed(3)
        assert await raw.errors(sent, sent, raw.sealed(2), raw.sealed(4)) == [0, 31, 31, 0]
        assert await other.errors(sent, Envelope(a_call().frame, "User:alice")) == [31, 31]
        assert len(w.first.handlers.carried_calls) == 2
        raw.connection.close()
        other.connection.close()


async def test_a_seal_under_an_earlier_challenge_is_refused() -> None:
    async with way() as w:
        raw = await Raw.to(w.first)
        for _ in range(3):
            before = raw.sealed(1)
            assert await raw.errors(before) == [0]
            raw.challenge = (await raw.exchange(Envelope(b""))).data or b""
            assert await raw.errors(before) == [31]
        raw.connection.close()


async def test_a_seal_without_a_challenge_is_refused() -> None:
    async with way() as w:
        raw = Raw(await TcpTransport().connect("127.0.0.1", w.first.listener.port, lambda: None), b"")
        assert await raw.errors(raw.sealed(1)) == [31]
        raw.connection.close()


@pytest.mark.parametrize(
    "key", [envelope_key(LISTENER_SECRET, "another", 1), envelope_key(LISTENER_SECRET, CLUSTER, 2), LISTENER_SECRET]
)
async def test_an_envelope_that_is_sealed_for_another_cluster_or_daemon_is_refused(key: bytes) -> None:
    async with way() as w:
        raw = await Raw.to(w.first)
        envelope = Envelope(a_call().frame, "User:alice", "10.0.0.7")
        assert await raw.errors(envelope.sealed(key, raw.challenge, bytes(16), 0, 1), raw.sealed(1)) == [31, 0]
        raw.connection.close()


@pytest.mark.parametrize(
    "request_", [b"\0", b"\0\x13\0\x09" + bytes(8), b"\0\x03\0\0" + bytes(8), b"\0\x13\0\7" + b"\xff" * 20]
)
async def test_a_malformed_call_in_an_envelope_is_refused_and_the_connection_goes_on(request_: bytes) -> None:
    async with way() as w:
        raw = await Raw.to(w.first)
        assert await raw.errors(raw.sealed(1, request_), raw.sealed(2)) == [42, 0]
        raw.connection.close()


async def test_a_daemon_is_not_the_controller_before_it_knows_its_cluster_and_after_it_took_a_secret() -> None:
    listener = ControllerListener("127.0.0.1", 0, secret=LISTENER_SECRET)
    await listener.start()
    raw = Raw(await TcpTransport().connect("127.0.0.1", listener.port, lambda: None), b"")
    assert await raw.errors(raw.sealed(1)) == [41]
    listener.identify(CLUSTER, 1)
    assert await raw.errors(raw.sealed(1)) == [31]
    listener.take_secret(b"t" * 32)
    assert await raw.errors(raw.sealed(1)) == [41]
    raw.connection.close()
    await listener.stop()


async def test_a_listener_without_a_secret_closes_connections_with_envelopes() -> None:
    async with way(theirs=None) as w:
        with pytest.raises(OSError, match="closed"):
            await Raw.to(w.first)


async def test_a_genuine_seal_proves_its_connection_and_a_wrong_one_does_not() -> None:
    async with way() as w:
        raw, slots = await Raw.to(w.first), w.first.listener.slots
        assert await raw.errors(Envelope(a_call().frame, "User:alice")) == [31]
        assert not slots.knows("127.0.0.1")
        assert await raw.errors(raw.sealed(1)) == [0]
        assert slots.knows("127.0.0.1")
        raw.connection.close()


async def test_carried_calls_above_the_bound_are_refused_until_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_listener, "Envelopes", partial(Envelopes, calls_max=2))
    async with way() as w:
        for _ in range(3):
            gate = asyncio.Event()

            async def wait(call: CarriedCall, gate: asyncio.Event = gate) -> Struct:
                await gate.wait()
                return await created(call)

            w.first.handlers.act = wait
            w.first.handlers.carried_calls.clear()
            in_progress = [asyncio.create_task(w.carry()) for _ in range(2)]
            await eventually(lambda: len(w.first.handlers.carried_calls) == 2)
            assert code(await w.carry()) == 7
            gate.set()
            assert [code(await one) for one in in_progress] == [0, 0]
        assert code(await w.carry()) == 0


async def test_stopping_the_listener_abandons_carried_calls_in_progress() -> None:
    ended = asyncio.Event()

    async def stuck(call: CarriedCall) -> Struct:
        try:
            return await asyncio.Event().wait()  # type: ignore[return-value]
        finally:
            ended.set()

    async with way() as w:
        w.first.handlers.act = stuck
        carrying = asyncio.create_task(w.carry())
        await w.called()
        await w.first.listener.stop()
        assert ended.is_set()
        carrying.cancel()


# -- large envelopes


class Seals:
    """Seals that daemons check and make: how many bytes they cover, and whether the event loop waits for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[tuple[int, bool]] = []
        real = envelope_module._mac

        def mac(key: bytes, *parts: bytes) -> bytes:
            self.sizes.append((sum(map(len, parts)), threading.current_thread() is threading.main_thread()))
            return real(key, *parts)

        monkeypatch.setattr(envelope_module, "_mac", mac)

    @property
    def large(self) -> list[bool]:
        """Returns for each large one whether the loop waited."""
        return [on_loop for size, on_loop in self.sizes if size > LARGE_BYTES]


async def many(call: CarriedCall) -> Struct:
    """Responds with a large response."""
    return CreateTopicsResponse(tuple(CreatedTopic("t" * 200) for _ in range(1_000)))


async def test_the_seal_of_a_large_envelope_is_checked_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with way() as w:
        raw = await Raw.to(w.first)
        envelopes = [raw.sealed(1), raw.sealed(2, a_call().frame + LARGE), raw.sealed(3)]
        seals = Seals(monkeypatch)
        assert await raw.errors(*envelopes) == [0, 0, 0]
        assert seals.large == [False]
        assert [on_loop for size, on_loop in seals.sizes if size <= LARGE_BYTES] == [True] * 5
        raw.connection.close()


async def test_daemon_and_endpoint_seal_and_check_large_calls_and_responses_beside_their_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with way() as w:
        w.first.handlers.act = many
        seals, call = Seals(monkeypatch), a_call()
        response: Any = await w.carrier.carry(replace(call, frame=call.frame + LARGE))
        assert len(response.topics) == 1_000
        assert seals.large == [False] * 4
        await w.carry()
        assert seals.large == [False] * 6, "a large response to a small call, on both sides"


@pytest.mark.parametrize("afresh", [False, True], ids=["at once", "after a new challenge"])
@pytest.mark.parametrize(("size", "whole"), [(len(LARGE), 2), (2_000_000, 1)], ids=["in one piece", "in many pieces"])
async def test_no_large_envelope_is_read_after_a_wrong_seal_of_its_connection(
    monkeypatch: pytest.MonkeyPatch, size: int, whole: int, afresh: bool
) -> None:
    """Of the second one no more than its beginning arrives, unless all of it is there at once."""
    async with way() as w:
        raw = await Raw.to(w.first)
        wrong = Envelope(bytes(size), "User:alice").sealed(b"x" * 32, raw.challenge, bytes(16), 0, 1)
        seals, received, real = Seals(monkeypatch), list[int](), w.first.listener.respond

        async def respond(frame: bytes, connection: InboundConnection | None = None) -> bytes:
            received.append(len(frame))
            return await real(frame, connection)

        monkeypatch.setattr(w.first.listener, "respond", respond)
        assert await raw.errors(wrong) == [31]
        assert not afresh or await raw.errors(Envelope(b"")) == [0]
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await raw.exchange(wrong)
        assert seals.large == [False]
        assert len([size for size in received if size > 1_000]) <= whole
        assert w.first.handlers.carried_calls == []
