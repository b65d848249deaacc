"""Clients that authenticate through the admin endpoint: brokers decide, and the controller receives the principal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from admin.limits import UNKNOWN_FRAME_BYTES_MAX
from brokers.wire.messages.topics import CreatedTopic, CreateTopicsResponse
from tests.kit.admin_kit import EndpointWorld, KafkaClient, corr, echo, endpoint_world, response_frame
from tests.kit.admin_requests import CREATE_TOPICS, PASSED, bare, create
from tests.kit.wire_kit import write_request

HANDSHAKE, AUTHENTICATE, API_VERSIONS = 17, 36, 18
ALICE, ANONYMOUS = b"\0alice\0secret", b"\0ANONYMOUS\0secret"


def script(frame: bytes) -> bytes:
    """Responds as a broker with SASL and the users ``alice`` and ``ANONYMOUS``."""
    version = frame[3]
    if frame[1] == HANDSHAKE:
        return response_frame(HANDSHAKE, version, corr(frame), mechanisms=("PLAIN",))
    if frame[1] == AUTHENTICATE:
        outcome = {
            "error_code": 0 if ALICE in frame or ANONYMOUS in frame else 58,
            "error_message": None,
            "auth_bytes": b"",
        }
        return response_frame(AUTHENTICATE, version, corr(frame), **outcome)
    return echo(frame)


@asynccontextmanager
async def secured(**limits: Any) -> AsyncIterator[EndpointWorld]:
    """Serves an endpoint whose brokers require SASL."""
    async with endpoint_world(**limits) as w:
        w.directory.sasl = True
        w.broker.script = script
        w.controller.respond = lambda call: CreateTopicsResponse((CreatedTopic("t"),))
        yield w


async def authenticate(client: KafkaClient, message: bytes, version: int = 2, mechanism: str = "PLAIN") -> int:
    """Returns the error code of an exchange."""
    assert (await client.call(HANDSHAKE, 1, mechanism=mechanism)).error_code == 0
    return int((await client.call(AUTHENTICATE, version, auth_bytes=message)).error_code)


async def created(client: KafkaClient) -> list[tuple[str, int]]:
    """Creates a topic and returns its error code."""
    response = await client.call(CREATE_TOPICS, 7, **create(7))
    return [(t.name, int(t.error_code)) for t in response.topics]


@pytest.mark.parametrize("version", range(3))
async def test_the_controller_receives_the_principal_that_the_broker_authenticated(version: int) -> None:
    async with secured() as w:
        client = await w.connect()
        assert await authenticate(client, ALICE, version) == 0
        assert await created(client) == [("t", 0)]
        assert [call.principal for call in w.controller.calls] == ["User:alice"]
        assert ALICE in w.broker.frames[1], "passed on unchanged"


@pytest.mark.parametrize("message", [None, b"\0alice\0wrong", b"\0root\0secret"])
async def test_a_client_without_authentication_may_send_nothing_else(message: bytes | None) -> None:
    async with secured() as w:
        for request in (write_request(CREATE_TOPICS, 7, 9, "me", **create(7)), PASSED, bare(0, 11, 30)):
            client = await w.connect()
            if message is not None:
                assert await authenticate(client, message) == 58
            assert await client.refused(request)
        assert w.controller.calls == []
        assert all(frame[1] in (HANDSHAKE, AUTHENTICATE) for frame in w.broker.frames)


async def test_before_authentication_a_request_must_be_small() -> None:
    async with secured() as w:
        client, stranger = await w.connect(), await w.connect()
        stranger.writer.write((UNKNOWN_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
        assert await stranger.closed()
        assert await authenticate(client, ALICE) == 0
        large = PASSED + bytes(UNKNOWN_FRAME_BYTES_MAX)
        assert await client.exchange(large) == echo(large)


async def test_a_client_that_does_not_authenticate_in_time_is_cut_off() -> None:
    async with secured(frame_timeout_ms=300) as w:
        alice, stranger = await w.connect(), await w.connect()
        assert await authenticate(alice, ALICE) == 0
        assert await stranger.exchange(bare(API_VERSIONS, 99))
        assert (await stranger.call(HANDSHAKE, 1, mechanism="PLAIN")).error_code == 0
        assert await stranger.closed()
        assert await created(alice) == [("t", 0)]


async def test_clients_on_a_listener_with_tls_alone_need_no_sasl_and_may_not_call_the_controller() -> None:
    async with secured() as w:
        w.directory.sasl, w.directory.tls_alone = False, True
        client = await w.connect()
        assert await client.exchange(PASSED) == echo(PASSED)
        assert await created(client) == [("t", 31)]


@pytest.mark.parametrize(("mechanism", "message"), [("GSSAPI", ALICE), ("OAUTHBEARER", ALICE), ("PLAIN", ANONYMOUS)])
async def test_a_client_without_a_name_of_its_own_is_served_by_its_broker_alone(mechanism: str, message: bytes) -> None:
    """The name ANONYMOUS stands for clients without authentication, which may have more rights."""
    async with secured() as w:
        client = await w.connect()
        assert await authenticate(client, message, mechanism=mechanism) == 0
        assert await client.exchange(PASSED) == echo(PASSED)
        assert await created(client) == [("t", 31)]


async def test_without_authentication_each_client_is_anonymous() -> None:
    async with secured() as w:
        w.directory.sasl = False
        assert await created(await w.connect()) == [("t", 0)]
        assert [call.principal for call in w.controller.calls] == ["User:ANONYMOUS"]


async def test_until_brokers_are_known_no_client_is_anonymous() -> None:
    async with secured(connect_timeout_ms=50) as w:
        w.directory.read.clear()
        assert await (await w.connect()).refused(write_request(CREATE_TOPICS, 7, 9, "me", **create(7)))
        assert w.controller.calls == []


async def test_an_exchange_that_cannot_be_read_ends_the_connection() -> None:
    async with secured() as w:
        w.broker.script = lambda frame: frame[4:8] + b"\0"
        assert await (await w.connect()).refused(write_request(HANDSHAKE, 1, 9, "me", mechanism="PLAIN"))
