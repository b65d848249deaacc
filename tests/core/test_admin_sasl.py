"""Clients that authenticate through the admin endpoint: brokers decide, the controller hears who asks."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.wire.messages.topics import CreatedTopic, CreateTopicsResponse
from tests.core.admin_kit import Place, Someone, answer, corr, echo, place
from tests.core.admin_requests import CREATE_TOPICS, create

HANDSHAKE, AUTHENTICATE, LIST_GROUPS = 17, 36, 16


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
async def test_whoever_no_broker_has_found_may_not_ask_the_controller(said: bytes | None) -> None:
    async with place() as it:
        p = secured(it)
        client = await p.connect()
        if said is not None:
            assert await introduced(client, 2, said) == 58
        assert await created(client) == [("t", 31)]
        assert p.controller.calls == []


async def test_who_somebody_is_holds_for_one_connection() -> None:
    async with place() as it:
        p = secured(it)
        first, second = await p.connect(), await p.connect()
        assert await introduced(first, 2, b"\0alice\0secret") == 0
        assert await created(second) == [("t", 31)]
        assert await created(first) == [("t", 0)]


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
