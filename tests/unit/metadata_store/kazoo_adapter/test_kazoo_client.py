"""Options that the adapter gives to kazoo, its logins, SASL and TLS, and how long a server may take."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.serialization import SASL, Connect

from metadata_store.kazoo_adapter import jute, kazoo_client, sasl_digest
from metadata_store.kazoo_adapter.kazoo_client import _Handler
from metadata_store.kazoo_adapter.sasl_digest import DigestMd5, SaslFailed, directives
from metadata_store.kazoo_adapter.tls import ZooKeeperTls, why_not
from tests.kit.certificates import Authority
from tests.kit.deadlines import in_exact_time
from tests.kit.kazoo import CONNECT_S, Header, unconnected

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


MESSAGE = b"0123456789"


def test_bytes_that_tls_has_decrypted_already_are_ready_to_be_read(tmp_path: Path) -> None:
    """Two answers in one TLS record: the socket below has nothing more to tell when the first was read."""
    authority = Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.signed("server"))
    near, far = socket.socketpair()
    idle, waking = socket.socketpair()
    done = threading.Event()

    def serve() -> None:
        with server.wrap_socket(far, server_side=True) as secured:
            secured.sendall(MESSAGE)
            done.wait(60.0)

    serving = threading.Thread(target=serve)
    serving.start()
    handler = _Handler(lambda: 1.0)
    with ssl.create_default_context(cafile=authority.file).wrap_socket(near, server_hostname="127.0.0.1") as secured:
        assert handler.select([secured, idle], [], [], 10.0)[0] == [secured]
        assert secured.recv(4) == MESSAGE[:4]
        assert handler.select([secured, idle], [], [], 0)[0] == [secured]
        waking.send(b"x")
        assert set(handler.select([secured, idle], [], [], 0)[0]) == {secured, idle}
        assert secured.recv(100) == MESSAGE[4:]
        assert handler.select([secured, idle], [], [], 0)[0] == [idle]
        assert idle.recv(1) == b"x"
        assert handler.select([secured, idle], [], [], 0)[0] == []
        done.set()
        serving.join()
    for each in (idle, waking):
        each.close()


@pytest.mark.parametrize("good", [True, False])
async def test_a_handshake_that_fails_says_why(tmp_path: Path, *, good: bool) -> None:
    authority, strangers = Authority(tmp_path), Authority(tmp_path / "strangers")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.signed("server"))

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    secured = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
    plain = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    try:
        at, bare = (f"127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in (secured, plain))
        tls = ZooKeeperTls((authority if good else strangers).file)
        said = await why_not(f"127.0.0.1:1,{at}", tls)
        assert said is None if good else said is not None and "not accepted" in said
        said = await why_not(bare, tls)
        assert said is not None
        assert "hangs up where TLS begins" in said
        said = await why_not(at, ZooKeeperTls(authority.file, authority.signed("own"), sealed_key(tmp_path)))
        assert said is not None
        assert "cannot be used" in said, "and nobody is asked for the key's password"
        said = await why_not(at, ZooKeeperTls(tmp_path / "none"))
        assert said is not None
        assert "cannot be used" in said
    finally:
        for each in (secured, plain):
            each.close()
            await each.wait_closed()


def sealed_key(folder: Path) -> Path:
    """A key with a password."""
    file = folder / "sealed.key"
    make = ["openssl", "genpkey", "-algorithm", "RSA", "-aes256", "-pass", "pass:word", "-out", str(file)]
    subprocess.run(make, check=True, capture_output=True)
    return file


def test_options_of_the_client() -> None:
    own, key = Path("/own.pem"), Path("/key.pem")
    assert ZooKeeperTls(None, own).options()["keyfile"] == str(own)
    assert ZooKeeperTls(None, own, key).options()["keyfile"] == str(key)
    assert ZooKeeperTls().options()["certfile"] is None
    assert ZooKeeperTls(None, own, key).options()["keyfile_password"] == "", "OpenSSL would ask at the terminal"


DIGEST_CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def test_the_example_of_rfc_2831(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_digest, "DIGEST_URI", b"imap/elwood.innosoft.com")
    login = DigestMd5("chris", "secret", "OA6MHXh6VqTrRk")
    response = directives(login.respond(DIGEST_CHALLENGE))
    assert response[b"response"] == b"d388dad90d4bbd760a152321f2143af7"
    assert (response[b"username"], response[b"realm"], response[b"nc"]) == (
        b"chris",
        b"elwood.innosoft.com",
        b"00000001",
    )
    login.verify(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    with pytest.raises(SaslFailed, match="has not proved"):
        login.verify(b"rspauth=00000000000000000000000000000000")


def test_quotes_are_escaped_both_ways() -> None:
    login = DigestMd5('a "b" \\c', "secret", "x")
    assert directives(login.respond(DIGEST_CHALLENGE))[b"username"] == b'a "b" \\c'


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"", "not DIGEST-MD5"),
        (b'nonce="",algorithm=md5-sess', "not DIGEST-MD5"),
        (b'nonce="x"', "not DIGEST-MD5"),
        (b'nonce="x",algorithm=md5-sess,qop="auth-conf"', "protection of messages"),
        (b"\xff\xff\xff", "cannot be understood"),
        (b'nonce="x', "cannot be understood"),
    ],
)
def test_a_malformed_or_unsupported_challenge_is_refused(challenge: bytes, why: str) -> None:
    with pytest.raises(SaslFailed, match=why):
        DigestMd5("u", "p", "x").respond(challenge)
