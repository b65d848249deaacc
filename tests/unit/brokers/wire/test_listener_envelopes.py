"""Envelopes at a daemon's listener: replays, wrong seals, malformed calls, and large ones."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from brokers.listener import controller_listener
from brokers.listener.controller_listener import ControllerListener
from brokers.listener.envelopes import CarriedCall, Envelopes
from brokers.listener.inbound import InboundConnection
from brokers.transport import TcpTransport
from brokers.wire import envelope as envelope_module
from brokers.wire.envelope import Envelope, envelope_key
from brokers.wire.frames import ConnectionLost
from brokers.wire.messages.topics import CreatedTopic, CreateTopicsResponse
from brokers.wire.off_loop import LARGE_BYTES
from tests.kit.carrier_kit import CLUSTER, SECRET, Raw, a_call, code, created, way
from tests.kit.polling import eventually

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


@pytest.mark.parametrize("key", [envelope_key(SECRET, "another", 1), envelope_key(SECRET, CLUSTER, 2), SECRET])
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
    listener = ControllerListener("127.0.0.1", 0, secret=SECRET)
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
