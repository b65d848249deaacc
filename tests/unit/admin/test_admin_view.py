"""The endpoint's view of the cluster while brokers, daemons and ZooKeeper come and go; and the whole process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from admin import cluster_view
from admin.cluster_view import ClusterView
from admin.endpoint import run
from admin.ports import Address, Node
from brokers.security.shared_secret import Seals
from configs.loading import load
from metadata_store import paths
from metadata_store.errors import Code, ZkError
from metadata_store.nodes.endpoint_znode import AdminEndpoint, announce, decode_endpoint, endpoint_path
from metadata_store.port import ANY_VERSION, ConnectionState, Stat
from metadata_store.port import Node as ZkNode
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.kit.admin import METADATA, KafkaClient, corr, endpoint_world, metadata_response
from tests.kit.deadlines import eventually
from tests.kit.kafka.parts import SECRET

ADVERTISED = Address("regent1", 9096)
DAEMON = Node(1_000_001, *ADVERTISED)
SHOWN = AdminEndpoint("CLIENT", *ADVERTISED)


def registration(port: int, listener: str = "CLIENT", protocol: str = "PLAINTEXT") -> bytes:
    """Writes ``/brokers/ids/N`` with one client listener."""
    fields = {
        "version": 5, "host": None, "port": -1, "jmx_port": -1, "timestamp": "1", "features": {},
        "endpoints": [f"{listener}://127.0.0.1:{port}"], "listener_security_protocol_map": {listener: protocol},
    }  # fmt: skip
    return json.dumps(fields).encode()


def held_by(controller: int, nonce: str | None, **changed: object) -> bytes:
    """Writes ``/controller``, with fields ``changed`` after the seal."""
    fields: dict[str, object] = {"version": 2, "brokerid": controller, "timestamp": "1", "kraftControllerEpoch": -1}
    if nonce is not None:
        listener = "regent1:9095"
        seal = Seals(SECRET, "").of_controller(controller, nonce, listener)
        fields |= {"regent": nonce, "regentListener": listener, "regentSeal": seal}
    return json.dumps(fields | changed).encode()


class Cluster:
    """A ZooKeeper in memory with znodes as brokers and daemons write them."""

    def __init__(self, server: MemoryServer, zk: MemoryZooKeeper) -> None:
        self.server = server
        self.zk = zk
        self.sessions: list[MemoryZooKeeper] = []

    def session(self) -> MemoryZooKeeper:
        self.sessions.append(MemoryZooKeeper(self.server))
        return self.sessions[-1]

    async def register(self, broker: int, port: int, listener: str = "CLIENT", protocol: str = "PLAINTEXT") -> None:
        await self.zk.create(f"{paths.BROKER_IDS}/{broker}", registration(port, listener, protocol))

    async def elect(self, controller: int, nonce: str | None = None) -> None:
        await self.zk.create(paths.CONTROLLER, held_by(controller, nonce))

    async def resign(self) -> None:
        await self.zk.delete(paths.CONTROLLER, ANY_VERSION)


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    server = MemoryServer()
    zk = MemoryZooKeeper(server)
    await zk.connect(1)
    await zk.create("/brokers", None)
    await zk.create(paths.BROKER_IDS, None)
    yield Cluster(server, zk)
    await zk.close()


@asynccontextmanager
async def following(c: Cluster, *, announced_for: int | None = None) -> AsyncIterator[ClusterView]:
    view = ClusterView("CLIENT", SECRET, ADVERTISED, announced_for=announced_for)
    task = asyncio.create_task(view.follow(c.session, 1))
    yield view
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


def announced(c: Cluster) -> Callable[[], Coroutine[None, None, bool]]:
    """Returns a check that the znode of daemon 7 names the endpoint of its session."""

    async def shown() -> bool:
        node = await c.zk.get(endpoint_path(7))
        found = decode_endpoint(node.data) if node is not None else None
        return (
            node is not None and found is not None and Seals(SECRET, "").announces(7, node.stat.ephemeral_owner, found)
        )

    return shown


def knows(view: ClusterView, *ports: int) -> Callable[[], bool]:
    return lambda: {at.port for at in view.brokers()} == set(ports)


async def test_the_view_follows_brokers_and_daemons() -> None:
    async with cluster() as c, following(c) as view:
        assert view.brokers() == ()
        await c.register(1, 9001)
        await c.register(2, 9002)
        await eventually(knows(view, 9001, 9002))
        assert view.node() is None
        await c.elect(DAEMON.id, "nonce")
        await eventually(lambda: view.node() == DAEMON)
        await c.zk.set(f"{paths.BROKER_IDS}/2", registration(9012), ANY_VERSION)
        await eventually(knows(view, 9001, 9012))
        await c.zk.delete(f"{paths.BROKER_IDS}/1", ANY_VERSION)
        await eventually(knows(view, 9012))
        await c.zk.set(paths.CONTROLLER, held_by(DAEMON.id + 1, "other"), ANY_VERSION)
        await eventually(lambda: view.node() == DAEMON._replace(id=DAEMON.id + 1))
        await c.resign()
        await eventually(lambda: view.node() is None)


class Interleaved(MemoryZooKeeper):
    """A session during whose first read of the cluster another client changes it, right before one request."""

    change: Callable[[], Coroutine[None, None, object]] | None = None
    request = ""

    async def _before(self, request: str) -> None:
        if self.change is not None and request == self.request:
            change, self.change = self.change, None
            await change()

    async def children(self, path: str) -> tuple[list[str], Stat] | None:
        await self._before("brokers")
        return await super().children(path)

    async def read_many(self, paths: Sequence[str], *, paths_max: int = 1_000) -> list[ZkNode | Code]:
        await self._before("registrations" if any(path.startswith("/brokers/ids/") for path in paths) else "")
        return await super().read_many(paths, paths_max=paths_max)

    async def watch(
        self, data: Sequence[str] = (), exists: Sequence[str] = (), children: Sequence[str] = (), *, since_zxid: int
    ) -> None:
        await self._before("watches")
        await super().watch(data, exists, children, since_zxid=since_zxid)


@pytest.mark.parametrize(
    ("changed", "before"),
    [
        *(
            (changed, before)
            for changed in ("elected", "resigned")
            for before in ("brokers", "registrations", "watches")
        ),
        *((changed, before) for changed in ("registered", "gone") for before in ("registrations", "watches")),
        ("moved", "watches"),
    ],
)
async def test_a_change_during_a_read_of_the_cluster_is_seen(changed: str, before: str) -> None:
    async with cluster() as c:
        await c.register(1, 9001)
        if changed == "resigned":
            await c.elect(DAEMON.id, "nonce")
        changes: dict[str, Callable[[], Coroutine[None, None, object]]] = {
            "elected": lambda: c.elect(DAEMON.id, "nonce"),
            "resigned": c.resign,
            "registered": lambda: c.register(2, 9002),
            "moved": lambda: c.zk.set(f"{paths.BROKER_IDS}/1", registration(9011), ANY_VERSION),
            "gone": lambda: c.zk.delete(f"{paths.BROKER_IDS}/1", ANY_VERSION),
        }
        session = Interleaved(c.server)
        session.change, session.request = changes[changed], before
        c.session = lambda: session  # type: ignore[method-assign]
        async with following(c) as view:
            await view.known()
            ports = {"registered": (9001, 9002), "moved": (9011,), "gone": ()}.get(changed, (9001,))
            await eventually(lambda: knows(view, *ports)() and (view.node() is not None) == (changed == "elected"))


async def test_a_removed_announcement_is_written_again() -> None:
    async with cluster() as c, following(c, announced_for=7):
        await eventually(announced(c))
        await c.zk.delete(endpoint_path(7), ANY_VERSION)
        await eventually(announced(c))


async def test_an_announcement_of_an_earlier_session_is_replaced() -> None:
    async with cluster() as c:
        former = c.session()
        await former.connect(1)
        for zk in (former, c.zk):
            assert await announce(zk, 7, Seals(SECRET, "").announced(7, zk.session_id, SHOWN)) is None
        await former.close()
        assert await announced(c)()


async def test_an_announcement_that_is_always_forestalled_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def too_late(*_: object, **__: object) -> None:
        raise ZkError(Code.NODE_EXISTS, endpoint_path(7))

    async with cluster() as c:
        monkeypatch.setattr(c.zk, "create", too_late)
        assert await announce(c.zk, 7, SHOWN) is not None


async def test_an_announcement_without_permission_is_logged_and_the_view_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def denied(*_: object, **__: object) -> None:
        raise ZkError(Code.NO_AUTH, endpoint_path(7))

    monkeypatch.setattr(cluster_view, "announce", denied)
    async with cluster() as c, following(c, announced_for=7) as view:
        await c.register(1, 9001)
        await eventually(knows(view, 9001))
        assert f"this endpoint may not write {endpoint_path(7)}" in caplog.text


async def test_an_announcement_of_another_endpoint_stays_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as c:
        other = c.session()
        await other.connect(1)
        assert await announce(other, 7, AdminEndpoint("CLIENT", "regent2", 9096)) is None
        async with following(c, announced_for=7):
            await eventually(lambda: "names another admin endpoint" in caplog.text)
            assert "controller.id 7" in caplog.text
            await other.close()
            await eventually(announced(c))


async def test_a_broker_that_holds_the_role_is_no_daemon() -> None:
    async with cluster() as c:
        await c.register(1, 9001)
        await c.elect(1)
        async with following(c) as view:
            await eventually(knows(view, 9001))
            assert view.node() is None
            await c.resign()
            await c.elect(DAEMON.id, "nonce")
            await eventually(lambda: view.node() == DAEMON)


@pytest.mark.parametrize(
    "changed",
    [
        {"regentListener": "stranger:9095"},
        {"regent": "another life"},
        {"brokerid": DAEMON.id + 1},
        {"regentSeal": None},
        {"regentSeal": "00"},
        {"regentSeal": "\u00b2"},
    ],
)
async def test_a_daemon_without_a_seal_for_its_listener_is_not_trusted(
    changed: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as c:
        await c.zk.create(paths.CONTROLLER, held_by(DAEMON.id, "nonce", **changed))
        async with following(c) as view:
            await view.known()
            assert (view.holder(), view.node(), view.vacant()) == (None, None, False)
            assert "is not sealed with this endpoint's secret" in caplog.text
            await c.zk.set(paths.CONTROLLER, held_by(DAEMON.id, "nonce"), ANY_VERSION)
            await eventually(lambda: view.holder() is not None)


async def test_a_seal_of_another_cluster_is_not_trusted() -> None:
    async with cluster() as c:
        await c.zk.create(paths.CLUSTER, None)
        await c.zk.create(paths.CLUSTER_ID, b'{"version":"1","id":"another"}')
        await c.elect(DAEMON.id, "nonce")
        async with following(c) as view:
            await view.known()
            assert view.holder() is None


async def test_garbled_znodes_and_unsuitable_listeners_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as c:
        await c.zk.create(f"{paths.BROKER_IDS}/7", b"?")
        await c.zk.create(paths.CONTROLLER, b"?")
        await c.register(1, 9001, "INTERNAL")
        await c.register(2, 9002, protocol="SSL")
        async with following(c) as view:
            await eventually(lambda: "broker 1 is left out: it has no listener named CLIENT" in caplog.text)
            assert "broker 2 is left out: it has TLS" in caplog.text
            assert f"{paths.BROKER_IDS}/7 is left out" in caplog.text
            assert (view.brokers(), view.node()) == ((), None)
            await c.register(3, 9003)
            await eventually(knows(view, 9003))
            assert caplog.text.count("broker 1 is left out") == 1


async def test_a_cluster_is_secured_unless_all_its_listeners_are_plaintext() -> None:
    async with cluster() as c, following(c) as view:
        await view.known()
        assert view.secured(), "unknown yet"
        await c.register(1, 9001)
        await eventually(lambda: not view.secured())
        await c.register(2, 9002, protocol="SASL_PLAINTEXT")
        await eventually(view.secured)
        assert knows(view, 9001, 9002)()
        await c.zk.delete(f"{paths.BROKER_IDS}/1", ANY_VERSION)
        await c.zk.delete(f"{paths.BROKER_IDS}/2", ANY_VERSION)
        await eventually(knows(view))
        assert view.secured(), "it stays unchanged while no broker is there"
        await c.register(3, 9003, protocol="SSL")
        await c.register(4, 9004, "OTHER")
        await c.register(5, 9005)
        await eventually(knows(view, 9005))
        assert view.secured()


async def test_clients_must_authenticate_where_every_listener_has_sasl() -> None:
    async with cluster() as c, following(c) as view:
        assert view.authenticating(), "unknown yet"
        await c.register(1, 9001, protocol="SASL_PLAINTEXT")
        await eventually(knows(view, 9001))
        assert view.authenticating()
        await c.register(2, 9002)
        await eventually(lambda: not view.authenticating())
        await c.zk.delete(f"{paths.BROKER_IDS}/2", ANY_VERSION)
        await eventually(view.authenticating)
        await c.zk.delete(f"{paths.BROKER_IDS}/1", ANY_VERSION)
        await eventually(knows(view))
        assert view.authenticating(), "it stays unchanged while no broker is there"
        await c.register(3, 9003, protocol="SSL")
        await eventually(lambda: not view.authenticating())


async def test_the_last_view_stays_while_zookeeper_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "AGAIN_S", 0.01)
    async with cluster() as c:
        await c.register(1, 9001)
        await c.elect(DAEMON.id, "nonce")
        async with following(c) as view:
            await eventually(knows(view, 9001))
            (first,) = c.sessions
            c.server.suspend(first.session_id)
            await c.register(2, 9002)
            assert knows(view, 9001)()
            assert view.node() == DAEMON
            c.server.resume(first.session_id)
            await eventually(knows(view, 9001, 9002))
            c.server.down = True
            c.server.expire(first.session_id)
            await eventually(lambda: len(c.sessions) > 3)
            await c.register(3, 9003)
            assert knows(view, 9001, 9002)()
            c.server.down = False
            await eventually(knows(view, 9001, 9002, 9003))


async def test_the_whole_endpoint_serves_a_client_and_stops(tmp_path: Path) -> None:
    file = tmp_path / "regent.toml"
    file.write_text(
        '[zookeeper]\nconnect = "unused:1"\n[listener]\nadvertised_host = "regent1"\n'
        '[admin]\nhost = "127.0.0.1"\nport = 0\nidle_timeout_ms = 20000\n'
    )
    (tmp_path / "admin-secret").write_text(SECRET.hex())
    (tmp_path / "admin-secret").chmod(0o600)
    settings = load(file, {"REGENT_STATE__DIRECTORY": str(tmp_path)}).settings
    ready: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
    async with endpoint_world() as w, cluster() as c:
        w.broker.script = lambda frame: metadata_response(0, corr(frame), (), 1)
        await c.register(1, w.broker.address.port)
        await c.elect(DAEMON.id, "nonce")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, settings, c.session, ready.set_result)
            address = await ready
            assert address.host == "regent1"
            client = KafkaClient(*await asyncio.open_connection("127.0.0.1", address.port))
            response = await client.call(METADATA, 0, topics=())
            assert [(n.node_id, n.host, n.port) for n in response.brokers] == [(DAEMON.id, *address)]
            tasks.cancel_scope.cancel()
        assert await client.closed()
        client.writer.close()
        assert [zk.state for zk in c.sessions] == [ConnectionState.LOST]
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", address.port)
