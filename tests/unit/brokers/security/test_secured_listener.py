"""TLS and SASL at the controller listener, for a daemon's own connections and for strangers."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from brokers.client import BrokerCallFailed, BrokerClient
from brokers.listener.controller_listener import ControllerListener
from brokers.listener.inbound import ListenerLimits
from brokers.security.access import SecureTransport, access_of
from brokers.security.authentication import (
    FRAME_BYTES_MAX,
    AuthenticationFailed,
    Authenticator,
    Login,
    SecurityUnusable,
    read_user,
    read_users,
)
from brokers.security.scram import ScramRefused
from brokers.security.tls import Tls
from brokers.wire.sasl import encode_authenticate, encode_handshake, read_authenticate_response, read_handshake_response
from configs.connections import SecuritySettings
from tests.kit.certificates import Authority
from tests.kit.deadlines import eventually
from tests.kit.listener import ALTER, PATIENT, isr_change
from tests.kit.wire import read_response, write_request

HANDSHAKE, AUTHENTICATE = 17, 36
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def plain() -> Authenticator:
    """Returns an authenticator with one user."""
    return Authenticator("PLAIN", {"a": "b"})


@asynccontextmanager
async def listening(
    tls: Tls | None = None, authenticator: Authenticator | None = None, **limits: int
) -> AsyncIterator[int]:
    """Starts a listener; returns its port."""
    listener = ControllerListener(
        "127.0.0.1", 0, ListenerLimits(**PATIENT | limits), tls=tls, authenticator=authenticator
    )
    await listener.start()
    try:
        yield listener.port
    finally:
        await listener.stop()


async def refused(transport: SecureTransport, port: int) -> str:
    """Tries to connect; returns why that fails."""
    with pytest.raises(BrokerCallFailed) as why:
        await accepted(transport, port)
    return str(why.value)


async def accepted(transport: SecureTransport, port: int) -> set[int]:
    """Connects; returns the offered APIs."""
    client = await BrokerClient.connect("127.0.0.1", port, 60.0, transport)
    client.close()
    return set(client.api_versions)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_users_are_served_with_their_own_password_alone(mechanism: str) -> None:
    authenticator = Authenticator(mechanism, {"kafka": "secret", "other": "word"})
    async with listening(authenticator=authenticator) as port:
        for name, word in (("kafka", "secret"), ("other", "word")):
            offered = await accepted(SecureTransport(None, Login(mechanism, name, word)), port)
            assert {HANDSHAKE, AUTHENTICATE} < offered
        for name, word in (("kafka", "word"), ("nobody", "secret"), ("", "")):
            assert "is refused" in await refused(SecureTransport(None, Login(mechanism, name, word)), port)


async def test_an_error_about_the_mechanism_names_the_offered_one() -> None:
    async with listening(authenticator=plain()) as port:
        why = await refused(SecureTransport(None, Login("SCRAM-SHA-512", "a", "b")), port)
        assert "SASL SCRAM-SHA-512 is not offered, but PLAIN" in why


class Stranger:
    """Sends bytes to the listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> bytes:
        """Returns the next frame, nothing where the connection ends instead."""
        self.writer.write(data)
        try:
            async with asyncio.timeout(60):
                size = int.from_bytes(await self.reader.readexactly(4), "big")
                return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""


@asynccontextmanager
async def stranger(port: int) -> AsyncIterator[Stranger]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Stranger(reader, writer)
    finally:
        writer.close()


SHUTDOWN = bytes.fromhex("00000019 0007 0003 00000001 0001 61 00 00000001 0000000000000001 00".replace(" ", ""))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (SHUTDOWN, "API key 7 v3 before it has authenticated"),
        (encode_authenticate(1, b"\0a\0b"), "SaslAuthenticate before SaslHandshake"),
        ((FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "a frame of 65537 bytes"),
        (
            encode_handshake(1, "PLAIN")[:4] + b"\0\x11\0\0" + encode_handshake(1, "PLAIN")[8:],
            "API key 17 v0 before it has authenticated",
        ),
        (b"\0\0\0\x0a" + bytes(10), "API key 0 v0 before it has authenticated"),
    ],
    ids=["a call", "a step without a handshake", "a large frame", "a handshake of version 0", "Produce"],
)
async def test_other_requests_before_authentication_end_the_connection(
    data: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(authenticator=plain()) as port, stranger(port) as one:
        assert await one.send(data) == b""
    assert why in caplog.text


async def test_a_failed_step_ends_the_connection_and_a_successful_one_opens_it() -> None:
    async with listening(authenticator=plain()) as port:
        async with stranger(port) as one:
            assert read_handshake_response(await one.send(encode_handshake(1, "PLAIN")), 1).mechanisms == ("PLAIN",)
            assert read_authenticate_response(await one.send(encode_authenticate(2, b"\0a\0c")), 2).error == 58
            assert await one.send(encode_authenticate(3, b"\0a\0b")) == b""
        async with stranger(port) as one:
            await one.send(encode_handshake(1, "PLAIN"))
            assert read_authenticate_response(await one.send(encode_authenticate(2, b"\0a\0b")), 2).error == 0
            assert await one.send(bytes.fromhex("0000000b00120000000000070001 61".replace(" ", "")))
            large = write_request(ALTER, 3, 8, **isr_change(partitions=3_000))
            assert len(large) > FRAME_BYTES_MAX
            _, response = read_response(ALTER, 3, await one.send(len(large).to_bytes(4, "big") + large))
            assert response.error_code == 41


async def test_connections_that_only_repeat_their_handshake_end_in_time() -> None:
    async def repeats(port: int) -> None:
        async with stranger(port) as one:
            assert await one.send(encode_handshake(1, "PLAIN"))
            while await one.send(encode_handshake(1, "PLAIN")):
                pass

    async with (
        listening(authenticator=plain(), frame_timeout_ms=1_500) as port,
        asyncio.timeout(20),  # a call may take 25 s, but a handshake in progress is none
        asyncio.TaskGroup() as peers,
    ):
        for _ in range(8):
            peers.create_task(repeats(port))


@pytest.mark.parametrize("require_clients", [False, True])
async def test_clients_need_a_certificate_where_it_is_required(tmp_path: Path, *, require_clients: bool) -> None:
    authority, strangers = Authority(tmp_path), Authority(tmp_path / "strangers")
    own = Tls(authority.signed("own"), None, authority.file, require_clients=require_clients)
    async with listening(tls=own) as port:
        good = Tls(authority.signed("good"), None, authority.file)
        assert await accepted(SecureTransport(good, None), port)
        assert "certificate is not accepted" in await refused(
            SecureTransport(Tls(None, None, strangers.file), None), port
        )
        bare = SecureTransport(Tls(None, None, authority.file), None)
        if require_clients:
            assert await refused(bare, port)
        else:
            assert await accepted(bare, port)


async def test_a_certificate_of_another_host_is_refused_unless_hosts_are_not_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with listening(tls=Tls(authority.signed("own", "DNS:elsewhere"), None, authority.file)) as port:
        assert "certificate is not accepted" in await refused(
            SecureTransport(Tls(None, None, authority.file), None), port
        )
        assert await accepted(SecureTransport(Tls(None, None, authority.file, check_host=False), None), port)


async def test_changed_certificates_are_used_and_half_written_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    file = authority.signed("own")

    async def serial(port: int) -> bytes | None:
        context = ssl.create_default_context(cafile=authority.file)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.close()
        found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return found

    async with listening(tls=Tls(file, None, authority.file)) as port:
        before = await serial(port)
        authority.signed("renewed", into=file)
        after = await serial(port)
        assert after != before
        whole = file.read_text()
        file.write_text(whole[:100])
        assert await serial(port) == after
        assert "the earlier certificates stay in use" in caplog.text
        file.write_text(whole)
        assert await serial(port) == after


async def test_an_authentication_that_expires_ends_its_idle_connection() -> None:
    """Brokers with ``connections.max.reauth.ms`` would refuse its next request."""
    async with listening(authenticator=plain()) as port:
        transport = SecureTransport(None, _Short("PLAIN", "a", "b"))
        lost = asyncio.Event()
        connection = await transport.connect("127.0.0.1", port, lost.set)
        assert not connection.closed
        await eventually(lost.is_set)
        assert connection.closed


class _Short(Login, frozen=True):
    async def authenticate(self, connection: object) -> float:
        await super().authenticate(connection)  # type: ignore[arg-type]
        return 1.0


def test_files_of_users_are_read(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# of brokers\n\na:b\n  c:d:e  \n")
    assert read_users(file) == {"a": "b", "c": "d:e"}
    for text, why in (
        ("", "contains no user"),
        ("a\n", "line 1, is not user:password"),
        ("a:b\n\na:\n", "line 3, is not user:password"),
        (":b\n", "line 1, is not user:password"),
        ("a:b\nc:d\n", "contains 2 users"),
    ):
        file.write_text(text)
        with pytest.raises(SecurityUnusable, match=why):
            read_user(file)
    with pytest.raises(SecurityUnusable, match="cannot be read"):
        read_users(tmp_path / "none")


def test_the_settings_choose_tls_and_sasl_and_unusable_files_are_refused(tmp_path: Path) -> None:
    authority, users = Authority(tmp_path), tmp_path / "users"
    users.write_text("a:b\n")
    files = {"ca_file": authority.file, "certificate_file": authority.signed("own"), "sasl_file": users}
    table = {
        "PLAINTEXT": (False, False),
        "SSL": (True, False),
        "SASL_PLAINTEXT": (False, True),
        "SASL_SSL": (True, True),
    }
    for protocol, (tls, sasl) in table.items():
        found = access_of(SecuritySettings.model_validate({"protocol": protocol, **files}))
        assert (found.tls is not None, found.authenticator is not None) == (tls, sasl)
        assert isinstance(found.transport, SecureTransport) == (tls or sasl)
    brokers = tmp_path / "brokers"
    brokers.write_text("broker:word\n")
    files |= {"sasl_brokers_file": brokers}
    secured = SecuritySettings.model_validate({"protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", **files})
    for listens in (True, False):
        authenticator = access_of(secured, listens=listens).authenticator
        assert authenticator is not None
        assert authenticator.plain(b"\0a\0b") == "a"
        with nullcontext() if listens else pytest.raises(ScramRefused):
            assert authenticator.plain(b"\0broker\0word") == "broker"
    default = access_of(secured).authenticator
    assert default is not None
    assert default.plain(b"\0broker\0word") == "broker"
    with pytest.raises(SecurityUnusable, match="TLS files cannot be used"):
        access_of(SecuritySettings.model_validate({"protocol": "SSL", **files, "ca_file": tmp_path / "none"}))
    sealed = tmp_path / "sealed.pem"
    seal = ["openssl", "pkcs8", "-topk8", "-in", str(files["certificate_file"]), "-passout", "pass:word"]
    key = subprocess.run(seal, check=True, capture_output=True, text=True).stdout
    own = files["certificate_file"].read_text(encoding="utf-8")
    sealed.write_text(key + own[own.index("-----BEGIN CERTIFICATE") :], encoding="utf-8")
    with pytest.raises(SecurityUnusable, match=f"{sealed}.*without a password"):
        access_of(SecuritySettings.model_validate({"protocol": "SSL", **files, "certificate_file": sealed}))
    assert "b" not in repr(Login("PLAIN", "a", "b")).removeprefix("Login")
    assert issubclass(AuthenticationFailed, OSError)
