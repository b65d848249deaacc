"""Options that the adapter gives to kazoo, its logins, and how long a server may take."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.serialization import SASL, Connect

from metadata_store.kazoo_adapter import jute, kazoo_client
from metadata_store.kazoo_adapter.sasl_digest import DigestMd5
from metadata_store.kazoo_adapter.tls import ZooKeeperTls
from tests.kit.kazoo_kit import CONNECT_S, Header, unconnected
from tests.kit.virtual_time import in_exact_time

PEM = ZooKeeperTls(Path("/ca.pem"), Path("/own.pem"), Path("/own.key"))
CHALLENGE = b'realm="zk-sasl-md5",nonce="n",qop="auth",algorithm=md5-sess,charset=utf-8'


def proof(user: str, password: str, cnonce: str) -> bytes:
    """Returns the last message of a server that knows the password (RFC 2831)."""

    def md5(data: bytes) -> bytes:
        return hashlib.md5(data, usedforsecurity=False).digest()

    secret = md5(f"{user}:zk-sasl-md5:{password}".encode()) + f":n:{cnonce}".encode()
    action = md5(b":zookeeper/zk-sasl-md5").hex()
    return b"rspauth=" + md5(f"{md5(secret).hex()}:n:00000001:{cnonce}:auth:{action}".encode()).hex().encode()


async def of_client(**options: Any) -> kazoo_client.Client:
    """Returns kazoo's client of a session with these options."""
    async with unconnected("a:1,b:2/kafka", **{"session_timeout_ms": 12_345, **options}) as (zk, wire, _):
        connecting = await wire.begin(zk.connect(CONNECT_S), sends=False)
        client = wire.client
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
    return client


# -- options


@in_exact_time
async def test_kazoo_has_the_servers_without_the_chroot_the_session_in_ms_and_retries_for_ever() -> None:
    client = await of_client()
    assert (client.hosts, client.chroot) == ([("a", 1), ("b", 2)], "")
    assert client._session_timeout == 12_345
    assert (client.use_ssl, client.auth_data, client._connection.sasl_options) == (False, set(), None)
    retry = client._connection.retry_sleeper
    assert (retry.max_tries, retry.delay, retry.max_delay) == (-1, 0.1, 1.0)


@in_exact_time
async def test_kazoo_has_the_credentials_of_both_kinds() -> None:
    client = await of_client(credentials="regent:s3cret", sasl="kafka:secret:with:colons")
    assert client.auth_data == {("digest", "regent:s3cret")}
    assert client.sasl == "kafka:secret:with:colons"
    assert client._connection.sasl_options == {}, "not None: kazoo logs in"


@pytest.mark.parametrize(
    ("tls", "given"),
    [
        (PEM, ("/ca.pem", "/own.pem", "/own.key", True)),
        (ZooKeeperTls(None, Path("/own.pem"), check_host=False), (None, "/own.pem", "/own.pem", False)),
        (ZooKeeperTls(), (None, None, None, True)),
    ],
)
@in_exact_time
async def test_kazoo_has_the_tls_options_and_never_prompts_for_a_password(
    tls: ZooKeeperTls, given: tuple[Any, ...]
) -> None:
    client = await of_client(tls=tls)
    assert (client.ca, client.certfile, client.keyfile, client.check_hostname) == given
    assert (client.use_ssl, client.verify_certs, client.keyfile_password) == (True, True, "")


def test_another_kazoo_is_refused_with_the_remedy() -> None:
    program = "import kazoo.version; kazoo.version.__version__ = '2.99'; import metadata_store.kazoo_adapter"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "install kazoo==2.11.0" in ran.stderr


# -- the handshake


class Server:
    """Responses of a server to a login by SASL; ``tokens``: what the client sent, with the numbers of the requests."""

    def __init__(self, client: kazoo_client.Client, *responses: tuple[int, bytes] | ConnectionDropped) -> None:
        self.tokens: list[tuple[int, bytes]] = []
        self._responses = list(responses)
        self.connection = client._connection
        self.connection._submit = self._submit
        self.connection._read_header = self._read_header

    def _submit(self, request: SASL, _timeout: float, xid: int) -> None:
        self.tokens.append((xid, request.challenge))

    def _read_header(self, _timeout: float) -> tuple[Header, bytes, int]:
        response = self._responses.pop(0)
        if isinstance(response, ConnectionDropped):
            raise response
        err, token = response
        return Header(0, 0, err), jute.blob(token), 0

    def log_in(self) -> None:
        self.connection._authenticate_with_sasl("zk1", 1.0)


@in_exact_time
async def test_each_login_by_sasl_uses_the_user_and_the_password_behind_the_first_colon() -> None:
    client = await of_client(sasl="kafka:a:b")
    with mock.patch("metadata_store.kazoo_adapter.kazoo_client.secrets.token_hex", return_value="c"):
        for _ in range(3):
            login = DigestMd5("kafka", "a:b", "c")
            server = Server(client, (0, CHALLENGE), (0, proof("kafka", "a:b", "c")))
            server.log_in()
            assert server.tokens == [(1, b""), (2, login.respond(CHALLENGE))]


@pytest.mark.parametrize(
    ("responses", "words"),
    [
        ([(-115, b"")], r"refused the SASL login \(error -115\)"),
        ([(0, CHALLENGE), (-115, b"")], r"refused the SASL login \(error -115\)"),
        ([(0, CHALLENGE), (0, b"rspauth=00")], "has not proved that it knows the password"),
        ([(0, b'nonce="x"')], "not DIGEST-MD5"),
        ([ConnectionDropped()], "zk1 hung up at the SASL login"),
        ([(0, CHALLENGE), ConnectionDropped()], "zk1 hung up at the SASL login"),
    ],
)
@in_exact_time
async def test_a_login_by_sasl_that_fails_ends_the_session_with_the_reason(responses: list[Any], words: str) -> None:
    client = await of_client(sasl="kafka:secret")
    with pytest.raises(AuthFailedError, match=words):
        Server(client, *responses).log_in()


@in_exact_time
async def test_a_handshake_is_bounded_by_an_attempt_and_grants_the_session() -> None:
    """Of a session of 12.345 s with one server: 0.3 of it; of a granted one of 40 s: 12 s."""
    client = await of_client()
    connection, timeouts = client._connection, []

    def invoked(_: Any, timeout: float, __: Any, ___: Any = None) -> Any:
        timeouts.append(timeout)
        return mock.Mock(time_out=granted_ms), 0

    client.servers.round([("a", "10.0.0.1", 1)])
    with mock.patch("kazoo.protocol.connection.ConnectionHandler._invoke", invoked):
        for granted_ms in (40_000, 6_000, 40_000):
            connection._invoke(99.0, Connect(0, 0, 1, 0, b"", False))
            assert client.granted_ms == granted_ms
        connection._invoke(1.0, Connect(0, 0, 1, 0, b"", False))
    assert timeouts == [pytest.approx(each) for each in (12.345 * 0.3, 12.0, 2.0, 1.0)]


@in_exact_time
async def test_a_tcp_connect_is_bounded_by_an_attempt() -> None:
    client = await of_client()
    with mock.patch("kazoo.handlers.threading.SequentialThreadingHandler.create_connection") as connect:
        for wanted, bound in [(99.0, 12.345 * 0.3), (1.0, 1.0)]:
            client.handler.create_connection(("10.0.0.1", 1), timeout=wanted, hostname="a")
            assert connect.call_args.kwargs == {"timeout": pytest.approx(bound), "hostname": "a"}
