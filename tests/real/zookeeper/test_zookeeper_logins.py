"""A real ZooKeeper behind TLS, and one that insists on a login by SASL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from metadata_store.acl import ALL, Acl, digest_acl
from metadata_store.errors import Code, ConnectFailed, ZkError
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.kazoo_adapter.servers import server_version
from metadata_store.kazoo_adapter.tls import ZooKeeperTls
from metadata_store.port import ConnectionState
from testing.embedded.process import free_port
from testing.embedded.zookeeper import EmbeddedZooKeeper
from tests.kit.certificates import Authority
from tests.kit.deadlines import eventually

JAAS = """\
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_regent="plain"
    user_other="secret";
};
"""
PROPERTIES = {
    "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    "sessionRequireClientSASLAuth": "true",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedZooKeeper]:
    made = EmbeddedZooKeeper(tmp_path_factory.mktemp("sasl"), properties=PROPERTIES, jaas=JAAS)
    await made.boot()
    try:
        yield made
    finally:
        await made.kill()


def session(server: EmbeddedZooKeeper, sasl: str | None) -> KazooZooKeeper:
    return KazooZooKeeper(server.connect, session_timeout_ms=10_000, sasl=sasl)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_login_gives_a_session_its_identity_on_each_connection(server: EmbeddedZooKeeper) -> None:
    mine, other = session(server, "regent:plain"), session(server, "other:secret")
    await mine.connect(30.0)
    await other.connect(30.0)
    try:
        await mine.create("/mine", b"x", acl=[Acl(ALL, "sasl", "regent")])
        node = await mine.get("/mine")
        assert node is not None
        assert node.data == b"x"
        with pytest.raises(ZkError) as refused:
            await other.get("/mine")
        assert refused.value.code is Code.NO_AUTH
        await server.restart()
        await eventually(lambda: mine.state is ConnectionState.CONNECTED)
        assert await mine.get("/mine") == node
    finally:
        await mine.close()
        await other.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_password_fails_the_connect(server: EmbeddedZooKeeper) -> None:
    zk = session(server, "regent:wrong")
    with pytest.raises(ConnectFailed, match="refused the credentials"):
        await zk.connect(30.0)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_missing_login_fails_the_connect_with_the_remedy(server: EmbeddedZooKeeper) -> None:
    zk = session(server, None)
    with pytest.raises(ConnectFailed, match=r"set zookeeper\.sasl_file"):
        await zk.connect(5.0)


ZNODES = 400
SESSION_MS = 60_000
PINGS_AFTER_S = 20.0
"""Sooner than kazoo pings in such a session."""
DATA = bytes(700)


class Secured(NamedTuple):
    """A server and what a client of it needs."""

    server: EmbeddedZooKeeper
    port: int
    authority: Authority
    tls: ZooKeeperTls

    def session(self, **options: Any) -> KazooZooKeeper:
        chosen = {"session_timeout_ms": SESSION_MS, "tls": self.tls, **options}
        return KazooZooKeeper(f"127.0.0.1:{self.port}", **chosen)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    port = free_port()
    own = str(authority.signed("server"))
    properties = {
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": own,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(authority.file),
        "ssl.trustStore.type": "PEM",
    }
    server = EmbeddedZooKeeper(folder / "zookeeper", properties=properties, session_ms_max=SESSION_MS)
    await server.boot()
    try:
        yield Secured(server, port, authority, ZooKeeperTls(authority.file, authority.signed("client")))
    finally:
        await server.kill()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_session_reads_writes_and_outlives_a_restart_and_no_reply_waits_for_the_next(secured: Secured) -> None:
    """Many small replies share a TLS record: decrypted ones must not wait until the socket is readable."""
    zk = secured.session(credentials="regent:secret")
    await zk.connect(30.0)
    try:
        await zk.create("/many", None)
        await asyncio.gather(*(zk.create(f"/many/{n}", DATA) for n in range(ZNODES)))
        async with asyncio.timeout(PINGS_AFTER_S):  # a ping would free a reply that was left behind
            for _ in range(5):
                found = await asyncio.gather(*(zk.get(f"/many/{n}") for n in range(ZNODES)))
                assert all(node is not None and node.data == DATA for node in found)
                await zk.heartbeat()
        assert len(await zk.read_many([f"/many/{n}" for n in range(ZNODES)])) == ZNODES

        await zk.create("/mine", b"x", acl=[digest_acl("regent", "secret")])
        stranger = secured.session()
        await stranger.connect(30.0)
        with pytest.raises(Exception, match="NO_AUTH"):
            await stranger.get("/mine")
        await stranger.close()
        await secured.server.restart()
        await eventually(lambda: zk.state is ConnectionState.CONNECTED)
        assert (await zk.get("/mine")) is not None
    finally:
        await zk.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_the_release_is_queried_through_tls(secured: Secured) -> None:
    assert await server_version("127.0.0.1", secured.port, secured.tls.context()) == (3, 8)
    assert await server_version("127.0.0.1", secured.port) is None


@pytest.mark.asyncio(loop_scope="module")
async def test_a_fault_of_tls_fails_the_connect_with_its_reason(secured: Secured, tmp_path: Path) -> None:
    strangers = Authority(tmp_path)
    own = secured.tls
    for tls, hosts, why in (
        (ZooKeeperTls(strangers.file, own.certificate), secured.port, "certificate that is not accepted"),
        (ZooKeeperTls(tmp_path / "none", own.certificate), secured.port, "TLS files cannot be used"),
        (own, secured.server.port, "is it the secureClientPort"),
        (own, free_port(), "is it running"),
    ):
        zk = KazooZooKeeper(f"127.0.0.1:{hosts}", session_timeout_ms=10_000, tls=tls)
        with pytest.raises(ConnectFailed, match=why):
            await zk.connect(3.0)
