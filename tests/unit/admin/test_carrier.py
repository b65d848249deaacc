"""Calls on their way from an endpoint to a daemon: over a real listener, sealed, tried again when the role moves."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from admin.carrier import Carrier
from admin.ports import NotController
from brokers.listener.controller_listener import NotController as RoleLost
from brokers.listener.envelopes import CarriedCall
from brokers.wire.envelope import EnvelopeResponse, encode_envelope_response, envelope_key, read_envelope
from brokers.wire.frames import LARGE_BYTES
from brokers.wire.primitives import Reader
from brokers.wire.versions import Api
from tests.kit.carrier import CLUSTER, SECRET, a_call, code, created, way
from tests.kit.listener import ALTER, isr_change
from tests.kit.wire import write_request


async def stuck(call: CarriedCall) -> Struct:
    """Never responds."""
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("version", range(8))
async def test_a_call_arrives_as_it_was_sent(version: int) -> None:
    async with way() as w:
        assert code(await w.carry(version=version)) == 0
        [call] = w.first.handlers.carried_calls
        assert (call.api, call.version, call.attempt) == (Api.CREATE_TOPICS, version, 0)
        assert (call.principal, call.client_host) == ("User:alice", "10.0.0.7")
        assert call.body.topics[0].name == "t"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("client", "client_id"), [(None, ""), ("", ""), ("tool", "tool")])
async def test_a_call_arrives_with_its_client_id(client: str | None, client_id: str) -> None:
    async with way() as w:
        await w.carry(client=client)
        assert [call.client_id for call in w.first.handlers.carried_calls] == [client_id]


async def test_connections_are_reused_and_each_call_has_an_id_of_its_own() -> None:
    async with way() as w:
        for _ in range(5):
            await w.carry()
        assert w.first.listener.connections == 1
        assert len({call.call_id for call in w.first.handlers.carried_calls}) == 5
        await asyncio.gather(*(w.carry() for _ in range(20)))
        await w.left(8)


@pytest.mark.parametrize("large", [False, True])
async def test_another_secret_is_refused_and_logged_and_a_new_connection_is_used(
    large: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with way(theirs=b"t" * 32) as w:
        for _ in range(2):
            call = a_call()
            response = await w.carrier.carry(replace(call, frame=call.frame + bytes(large * 4 * LARGE_BYTES)))
            assert code(response) == 31
            await w.left(0)
        assert w.first.handlers.carried_calls == []
    assert "admin.secret_file" in caplog.text


@pytest.mark.parametrize(("ours", "theirs"), [(None, SECRET), (SECRET, None)])
async def test_without_a_secret_no_call_is_carried(ours: bytes | None, theirs: bytes | None) -> None:
    async with way(secret=ours, theirs=theirs) as w:
        with pytest.raises(NotController):
            await w.carry(timeout_ms=200)
        assert w.first.handlers.carried_calls == []


# -- the role moves


async def test_a_call_waits_for_the_next_daemon_after_the_first_one_resigned() -> None:
    async with way() as w:
        w.first.listener.resign()
        with pytest.raises(NotController):
            await w.carry(timeout_ms=0)
        assert w.first.handlers.carried_calls == []
        w.carrier.close()
        await w.first.listener.stop()
        waiting = asyncio.create_task(w.carry())
        await asyncio.sleep(0)
        w.move()
        assert code(await waiting) == 0
        assert [call.attempt for call in w.second.handlers.carried_calls] == [0]


async def test_a_call_whose_daemon_loses_the_role_is_a_further_attempt_at_the_next_one() -> None:
    async def lose(call: CarriedCall) -> Struct:
        w.move()
        raise RoleLost

    async with way() as w:
        w.first.handlers.act = lose
        assert code(await w.carry()) == 0
        [first], [second] = w.first.handlers.carried_calls, w.second.handlers.carried_calls
        assert (first.attempt, second.attempt) == (0, 1)
        assert first.call_id == second.call_id


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_a_call_whose_daemon_does_not_respond_is_a_further_attempt_at_the_next_one(hangs_up: bool) -> None:
    async with way() as w:
        w.first.handlers.act = stuck
        waiting = asyncio.create_task(w.carry())
        await w.called()
        if hangs_up:
            w.first.listener.close_connections()
        w.move()
        assert code(await waiting) == 0
        assert [call.attempt for call in w.second.handlers.carried_calls] == [1]


async def test_an_idle_connection_to_the_former_daemon_is_closed_and_carries_no_call() -> None:
    """The former daemon does not know yet that it has lost the role, and would serve the call."""
    async with way() as w:
        for number in (1, 2, 3):
            await w.carry()
            w.move()
            assert [len(daemon.handlers.carried_calls) for daemon in (w.first, w.second)] == [number, number - 1]
            await w.carry()
            assert [len(daemon.handlers.carried_calls) for daemon in (w.first, w.second)] == [number, number]
            await w.left(0)
            w.role.is_of(w.first)
        assert {call.attempt for call in w.first.handlers.carried_calls + w.second.handlers.carried_calls} == {0}


@pytest.mark.parametrize(("size", "sent"), [(100, 2), (2_000_000, 1)])
async def test_a_call_with_which_daemons_vanish_is_given_up(size: int, sent: int) -> None:
    async def vanish(call: CarriedCall) -> Struct:
        for daemon in (w.first, w.second):
            daemon.listener.close_connections()
        return await stuck(call)

    async with way() as w:
        w.first.handlers.act = w.second.handlers.act = vanish
        call = a_call(client="c" * min(size, 30_000))
        response: Any = await w.carrier.carry(replace(call, frame=call.frame + bytes(max(0, size - 30_000))))
        assert (code(response), len(w.first.handlers.carried_calls)) == (-1, sent)
        assert "vanished during this call" in response.topics[0].error_message


async def test_a_daemon_that_responded_in_between_has_not_vanished() -> None:
    async def alternate(call: CarriedCall) -> Struct:
        match len(w.first.handlers.carried_calls):
            case 1 | 3:
                w.first.listener.close_connections()
                await asyncio.Event().wait()
            case 2:
                raise RoleLost
        return await created(call)

    async with way() as w:
        w.first.handlers.act = alternate
        assert code(await w.carry()) == 0
        assert [call.attempt for call in w.first.handlers.carried_calls] == [0, 1, 2, 3]


async def test_a_call_waits_while_the_role_is_vacant_and_not_while_a_broker_holds_it() -> None:
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


async def test_a_call_whose_client_hangs_up_ends_and_its_connection_is_not_reused() -> None:
    gate = asyncio.Event()

    async def wait(call: CarriedCall) -> Struct:
        await gate.wait()
        return await created(call)

    async with way() as w:
        w.first.handlers.act = wait
        waiting = asyncio.create_task(w.carry())
        await w.called()
        waiting.cancel()
        gate.set()
        await w.left(0)
        assert code(await w.carry()) == 0


# -- responses


async def test_an_error_in_a_handler_is_a_response(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(call: CarriedCall) -> Struct:
        raise ZeroDivisionError

    async with way() as w:
        w.first.handlers.act = fail
        assert code(await w.carry()) == -1
        assert "ZeroDivisionError" in caplog.text
        w.first.handlers.act = created
        assert code(await w.carry()) == 0


@pytest.mark.parametrize("how", ["unsealed", "other secret", "other challenge", "other response"])
async def test_a_response_without_the_daemons_seal_does_not_count(how: str) -> None:
    """Another host, at the daemon's address or in between, responds that a topic was created."""
    key = envelope_key(b"x" * 32 if how == "other secret" else SECRET, CLUSTER, 1)

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            frame = Reader(await reader.readexactly(int.from_bytes(size, "big")))
            frame.skip(4)
            correlation, seal = frame.i32(), read_envelope(frame).seal
            made = EnvelopeResponse(0, b"c" * 16)
            if seal is not None:
                made = EnvelopeResponse(0, b"it is done")
                if how != "unsealed":
                    made = made.sealed(key, b"d" * 16 if how == "other challenge" else b"c" * 16, seal)
                if how == "other response":
                    made = made._replace(data=b"it is not done")
            writer.write(encode_envelope_response(correlation, made))
        writer.close()

    async with way() as w:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        w.role.held = w.first.holder._replace(port=server.sockets[0].getsockname()[1])
        assert code(await w.carry(timeout_ms=1_500)) == -1
        w.carrier.close()
        server.close()


# -- brokers' calls, where they share a listener with clients

ALLOCATE = b"\x00\x43\x00\x00\x00\x00\x00\x09\xff\xff\x00" + (5).to_bytes(4, "big") + (77).to_bytes(8, "big") + b"\x00"
"""AllocateProducerIds v0 of broker 5, correlation 9."""


async def relay(carrier: Carrier, principal: str = "User:broker", frame: bytes = ALLOCATE) -> tuple[int, int, int]:
    """Relays a broker's call; returns correlation id, error and first id of the response."""
    response = await carrier.relay(frame, principal, "10.0.0.7")
    assert len(response) == 4 + int.from_bytes(response[:4], "big")
    number = int.from_bytes
    return number(response[4:8], "big"), number(response[13:15], "big", signed=True), number(response[15:23], "big")


async def test_a_brokers_call_is_handled_by_the_active_daemon_if_its_principal_is_a_brokers() -> None:
    async with way() as w:
        assert await relay(w.carrier) == (9, 0, 7_000)
        assert (await relay(w.carrier, "User:alice"))[:2] == (9, 31)
        assert len(w.first.handlers.calls) == 1


@pytest.mark.parametrize("large", [False, True])
async def test_a_brokers_call_gets_not_controller_from_a_daemon_that_resigned(large: bool) -> None:
    frame = write_request(ALTER, 3, 9, **isr_change(partitions=3_000)) if large else ALLOCATE
    async with way() as w:
        w.first.listener.resign()
        assert (await relay(w.carrier, frame=frame))[:2] == (9, 41)


@pytest.mark.parametrize("frame", [ALLOCATE[:-2], b"\x00\x43\x00\x09" + ALLOCATE[4:], ALLOCATE[:2]])
async def test_a_malformed_call_of_a_broker_reaches_no_handler(frame: bytes) -> None:
    async with way() as w:
        with pytest.raises(NotController):
            await relay(w.carrier, frame=frame)
        assert w.first.handlers.calls == []


async def test_a_brokers_call_has_no_response_without_an_active_daemon() -> None:
    async with way() as w:
        w.role.is_of(None)
        with pytest.raises(NotController):
            await relay(w.carrier)
