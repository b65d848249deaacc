"""A real ZooKeeper that insists on a login by SASL (DIGEST-MD5)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from metadata_store.acl import ALL, Acl
from metadata_store.errors import Code, ConnectFailed, ZkError
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.port import ConnectionState
from testing.embedded.zookeeper import EmbeddedZooKeeper
from tests.kit.polling import eventually

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
    await mine.connect(10.0)
    await other.connect(10.0)
    try:
        await mine.create("/mine", b"x", acl=[Acl(ALL, "sasl", "regent")])
        node = await mine.get("/mine")
        assert node is not None
        assert node.data == b"x"
        with pytest.raises(ZkError) as refused:
            await other.get("/mine")
        assert refused.value.code is Code.NO_AUTH
        await server.restart()
        await eventually(lambda: mine.state is ConnectionState.CONNECTED, 30.0)
        assert await mine.get("/mine") == node
    finally:
        await mine.close()
        await other.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_password_fails_the_connect(server: EmbeddedZooKeeper) -> None:
    zk = session(server, "regent:wrong")
    with pytest.raises(ConnectFailed, match="refused the credentials"):
        await zk.connect(10.0)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_missing_login_fails_the_connect_with_the_remedy(server: EmbeddedZooKeeper) -> None:
    zk = session(server, None)
    with pytest.raises(ConnectFailed, match=r"set zookeeper\.sasl_file"):
        await zk.connect(5.0)
