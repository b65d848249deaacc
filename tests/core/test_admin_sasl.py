"""Clients that authenticate through the admin endpoint: brokers decide, the controller hears who asks."""

from __future__ import annotations

from typing import Any

import pytest

from admin.limits import UNKNOWN_FRAME_BYTES_MAX
from brokers.wire.messages.topics import CreatedTopic, CreateTopicsResponse
from tests.core.admin_kit import Place, Someone, answer, corr, echo, place
from tests.core.admin_requests import CREATE_TOPICS, PASSED, create
from tests.core.wire_kit import write_request

HANDSHAKE, AUTHENTICATE, LIST_GROUPS = 17, 36, 16
VERSIONS = b"\0\x12\0\x63" + b"\0\0\0\x07" + b"\xff\xff"


def secured(p: Place) -> Place:
    """Brokers want SASL; ``User:alice`` with the password ``secret`` may come in."""

    def script(frame: bytes) -> bytes:
        version = frame[3]
        if frame[1] == HANDSHAKE:
            return answer(HANDSHAKE, version, corr(frame), mechanisms=("PLAIN",))
        if frame[1] == AUTHENTICATE:
            error = 0 if b"\0alice\0secret" in frame else 58
            return answer(AUTHENTICATE, version, corr(frame), error_code=error, error_message=None, auth_bytes=b"")
        return echo(frame)

    p.directory.sasl = True
    p.broker.script = script
    p.controller.answer = lambda call: CreateTopicsResponse((CreatedTopic("t"),))
    return p


async def introduced(client: Someone, version: int, said: bytes) -> int:
    """Error code of an exchange."""
    assert (await client.ask(HANDSHAKE, 1, mechanism="PLAIN")).error_code == 0
    return int((await client.ask(AUTHENTICATE, version, auth_bytes=said)).error_code)


async def created(client: Someone) -> list[tuple[str, int]]:
    answered = await client.ask(CREATE_TOPICS, 7, **create(7))
    return [(t.name, int(t.error_code)) for t in answered.topics]


@pytest.mark.parametrize("version", range(3))
async def test_the_controller_hears_who_the_broker_has_found(version: int) -> None:
    async with place() as it:
        p = secured(it)
        client = await p.connect()
        assert await introduced(client, version, b"\0alice\0secret") == 0
        assert await created(client) == [("t", 0)]
        assert [call.principal for call in p.controller.calls] == ["User:alice"]
        assert b"\0alice\0secret" in p.broker.frames[1], "passed on as it was"


@pytest.mark.parametrize("said", [None, b"\0alice\0wrong", b"\0root\0secret"])
async def test_whoever_no_broker_has_found_may_not_ask_anything(said: bytes | None) -> None:
    async with place() as it:
        p = secured(it)
        for request in (write_request(CREATE_TOPICS, 7, 9, "me", **create(7)), PASSED, b"\0\0\0\x0b" + bytes(40)):
            client = await p.connect()
            if said is not None:
                assert await introduced(client, 2, said) == 58
            client.send(request)
            assert await client.closed()
        assert p.controller.calls == []
        assert all(frame[1] in (HANDSHAKE, AUTHENTICATE) for frame in p.broker.frames)


async def test_before_it_has_authenticated_a_client_s_requests_must_be_small() -> None:
    async with place() as it:
        p = secured(it)
        client, stranger = await p.connect(), await p.connect()
        stranger.writer.write((UNKNOWN_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        assert await stranger.closed()
        assert await introduced(client, 2, b"\0alice\0secret") == 0
        large = PASSED + bytes(UNKNOWN_FRAME_BYTES_MAX)
        client.send(large)
        assert await client.frame() == echo(large)


async def test_a_client_that_does_not_authenticate_in_time_is_let_go() -> None:
    async with place(frame_timeout_ms=300) as it:
        p = secured(it)
        alice, stranger = await p.connect(), await p.connect()
        assert await introduced(alice, 2, b"\0alice\0secret") == 0
        stranger.send(VERSIONS)
        assert await stranger.frame()
        assert (await stranger.ask(HANDSHAKE, 1, mechanism="PLAIN")).error_code == 0
        assert await stranger.closed()
        assert await created(alice) == [("t", 0)]


async def test_clients_whose_listener_has_tls_alone_need_no_sasl_and_may_not_ask_the_controller() -> None:
    async with place() as it:
        p = secured(it)
        p.directory.sasl, p.directory.tls_alone = False, True
        client = await p.connect()
        client.send(PASSED)
        assert await client.frame() == echo(PASSED)
        assert await created(client) == [("t", 31)]


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER"])
async def test_a_client_that_brokers_let_in_without_a_name_known_here_is_served_by_them(mechanism: str) -> None:
    async with place() as it:
        p = secured(it)
        client = await p.connect()
        assert (await client.ask(HANDSHAKE, 1, mechanism=mechanism)).error_code == 0
        assert (await client.ask(AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret")).error_code == 0
        client.send(PASSED)
        assert await client.frame() == echo(PASSED)
        assert await created(client) == [("t", 31)]


async def test_without_authentication_everybody_is_anonymous() -> None:
    async with place() as it:
        p = secured(it)
        p.directory.sasl = False
        assert await created(await p.connect()) == [("t", 0)]
        assert [call.principal for call in p.controller.calls] == ["User:ANONYMOUS"]


async def test_until_brokers_are_known_nobody_is_anonymous() -> None:
    async with place(connect_timeout_ms=50) as it:
        p = secured(it)
        p.directory.read.clear()
        client = await p.connect()
        client.request(CREATE_TOPICS, 7, **create(7))
        assert await client.closed()
        assert p.controller.calls == []


async def test_an_exchange_that_cannot_be_read_ends_the_connection() -> None:
    async with place() as it:
        p = secured(it)
        p.broker.script = lambda frame: frame[4:8] + b"\0"
        client = await p.connect()
        fields: dict[str, Any] = {"mechanism": "PLAIN"}
        client.request(HANDSHAKE, 1, **fields)
        assert await client.closed()
