"""TLS towards ZooKeeper without a server: what was decrypted counts as readable, and failures have words."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from metadata_store.kazoo_adapter.kazoo_client import _Handler
from metadata_store.kazoo_adapter.tls import ZooKeeperTls, why_not
from tests.kit.certificates import Authority

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
            done.wait(10.0)

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
