"""Clients of the admin endpoint with TLS and SASL: brokers decide, and the controller receives the principal."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from admin.endpoint import AdminListener
from admin.identity import Identity
from admin.ports import UNKNOWN_FRAME_BYTES_MAX
from admin.streams import EndpointTls, endpoint_tls
from brokers.security.tls import Tls
from brokers.wire.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from brokers.wire.messages.topics import CreatedTopic, CreateTopicsResponse
from tests.kit.admin import (
    CREATE_TOPICS,
    PASSED,
    Addresses,
    EndpointWorld,
    FakeController,
    KafkaClient,
    ScriptedBroker,
    bare,
    corr,
    create,
    echo,
    endpoint_world,
    response_frame,
)
from tests.kit.certificates import Authority
from tests.kit.kafka.role import settings_for
from tests.kit.wire import write_request

SCRAM_FINAL = b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="
CHALLENGE = b"r=fyko+d2lbbFgONRv9qkxdawL3rfc,s=QSXCR+Q6sek8bf92,i=4096"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def handshake(identity: Identity, mechanism: str, error: int = 0) -> None:
    identity.observe(SaslHandshakeRequest(mechanism), SaslHandshakeResponse(error, ("PLAIN", "SCRAM-SHA-256")))


def step(identity: Identity, message: bytes, response: bytes = b"", error: int = 0, lifetime_ms: int = 0) -> None:
    identity.observe(SaslAuthenticateRequest(message), SaslAuthenticateResponse(error, None, response, lifetime_ms))


@pytest.mark.parametrize(
    ("message", "principal"),
    [
        (b"\0alice\0secret", "User:alice"),
        (b"alice\0alice\0secret", "User:alice"),
        ("\0zoë\0secret".encode(), "User:zoë"),
        (b"alice\0secret", None),
        (b"\0alice\0sec\0ret", None),
        (b"\0\0secret", None),
        (b"\0\xff\0secret", None),
        (b"", None),
    ],
)
def test_plain_names_the_authenticated_user(message: bytes, principal: str | None) -> None:
    identity = Identity()
    handshake(identity, "PLAIN")
    assert identity.principal is None
    step(identity, message)
    assert identity.principal == principal


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("first", "principal"),
    [
        (b"n,,n=alice,r=fyko", "User:alice"),
        (b"n,a=alice,n=alice,r=fyko", "User:alice"),
        (b"n,,n=a=3Db=2Cc,r=fyko", "User:a=b,c"),
        (b"n,,n=alice,r=fyko,tokenauth=false", "User:alice"),
        (b"n,,n=token,r=fyko,tokenauth=true", None),
        (b"n,,n=token,r=fyko,x=y,tokenauth=True", None),
        (b"n,,m=ext,n=alice,r=fyko", None),
        (b"n,,n=,r=fyko", None),
        (b"n,,r=fyko", None),
    ],
)
def test_scram_names_the_user_after_the_final_message(mechanism: str, first: bytes, principal: str | None) -> None:
    identity = Identity()
    handshake(identity, mechanism)
    step(identity, first, CHALLENGE)
    assert identity.principal is None
    step(identity, b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfc,p=...", SCRAM_FINAL)
    assert identity.principal == principal


def test_the_name_of_the_first_message_stays() -> None:
    identity = Identity()
    handshake(identity, "SCRAM-SHA-256")
    step(identity, b"n,,n=alice,r=fyko", CHALLENGE)
    step(identity, b"n,,n=root,r=fyko", SCRAM_FINAL)
    assert identity.principal == "User:alice"


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", "OWN"])
def test_other_mechanisms_leave_the_principal_unknown(mechanism: str) -> None:
    identity = Identity()
    handshake(identity, mechanism)
    step(identity, b"n,a=alice,\1auth=Bearer x\1\1")
    step(identity, b"\0alice\0secret")
    assert identity.principal is None


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI"])
def test_a_response_with_bytes_does_not_end_an_exchange(mechanism: str) -> None:
    """A broker responds to a bad token without an error code, and gives its reason as bytes."""
    identity = Identity()
    handshake(identity, mechanism)
    step(identity, b"n,,\1auth=Bearer garbage\1\1", b'{"status":"invalid_token"}')
    assert not identity.authenticated
    step(identity, b"n,,\1auth=Bearer sound\1\1")
    assert identity.authenticated


def test_a_refused_client_has_no_principal_until_its_next_handshake() -> None:
    identity = Identity()
    handshake(identity, "PLAIN")
    step(identity, b"\0alice\0wrong", error=58)
    assert identity.principal is None
    step(identity, b"\0alice\0secret")
    assert identity.principal is None, "a new exchange begins with a handshake"


def test_a_refused_mechanism_begins_no_exchange() -> None:
    identity = Identity()
    handshake(identity, "PLAIN", error=33)
    step(identity, b"\0alice\0secret")
    assert identity.principal is None


def test_a_session_ends_unless_it_is_renewed() -> None:
    clock = Clock()
    identity = Identity(clock)
    handshake(identity, "PLAIN")
    step(identity, b"\0alice\0secret", lifetime_ms=10_000)
    clock.now_s += 9.9
    assert identity.principal == "User:alice"
    handshake(identity, "PLAIN")
    assert identity.principal == "User:alice", "the session goes on while it is renewed"
    step(identity, b"\0alice\0secret", lifetime_ms=10_000)
    clock.now_s += 9.9
    assert identity.principal == "User:alice"
    clock.now_s += 0.2
    assert identity.principal is None


def test_a_renewal_that_fails_ends_the_session() -> None:
    identity = Identity()
    handshake(identity, "PLAIN")
    step(identity, b"\0alice\0secret")
    handshake(identity, "PLAIN")
    step(identity, b"\0root\0secret", error=58)
    assert identity.principal is None


def test_credentials_are_left_out_of_the_representation() -> None:
    assert "secret" not in repr(SaslAuthenticateRequest(b"\0alice\0secret"))
    assert "v=" not in repr(SaslAuthenticateResponse(0, None, SCRAM_FINAL))


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
    async with secured(frame_timeout_ms=2_000) as w:
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


class SecuredBroker(ScriptedBroker):
    """A broker with TLS that collects the certificates of its clients."""

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self.seen: list[object] = []
        self._context = Tls(authority.signed("broker"), None, authority.file).server()
        self._context.verify_mode = ssl.CERT_OPTIONAL

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._with_certificate, "127.0.0.1", 0, ssl=self._context)

    async def _with_certificate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen.append(writer.get_extra_info("peercert"))
        await self._serve(reader, writer)


@asynccontextmanager
async def listening(tls: EndpointTls, broker: ScriptedBroker) -> AsyncIterator[AdminListener]:
    await broker.start()
    listener = AdminListener("127.0.0.1", 0, Addresses([broker.address]), FakeController(), tls=tls)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()
        await broker.stop()


@pytest.mark.parametrize("named", ["daemon", "endpoint"])
async def test_the_endpoint_presents_clients_its_own_certificate_or_the_daemons_and_brokers_none(
    tmp_path: Path, named: str
) -> None:
    authority, settings = Authority(tmp_path), settings_for(tmp_path)
    security = {"certificate_file": authority.signed("daemon"), "ca_file": authority.file}
    admin = {"tls": True, "certificate_file": authority.signed("endpoint") if named == "endpoint" else None}
    changed = {"security": settings.security.model_copy(update=security)}
    tls = endpoint_tls(settings.model_copy(update=changed | {"admin": settings.admin.model_copy(update=admin)}))
    assert tls is not None
    broker = SecuredBroker(authority)
    async with listening(tls, broker) as listener:
        trusting = ssl.create_default_context(cafile=authority.file)
        client = KafkaClient(*await asyncio.open_connection("127.0.0.1", listener.port, ssl=trusting))
        assert client.writer.get_extra_info("peercert")["subject"] == ((("commonName", named),),)
        assert await client.exchange(PASSED) == echo(PASSED)
        assert broker.seen in ([None], [{}]), "else all clients would have the endpoint's identity"
        await client.call(CREATE_TOPICS, 7, **create(7))
        client.writer.close()
        plain = KafkaClient(*await asyncio.open_connection("127.0.0.1", listener.port))
        assert await plain.refused(PASSED)
        plain.writer.close()


def test_without_the_setting_the_endpoint_has_no_tls(tmp_path: Path) -> None:
    assert endpoint_tls(settings_for(tmp_path)) is None
