"""kazoo with a real server fulfils all contracts, and agrees with the double in memory."""

from __future__ import annotations

from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from metadata_store.acl import ALL, CREATE, READ, Acl, digest_acl
from metadata_store.errors import MultiFailed, ZkError
from metadata_store.port import Check, Create, Created, Delete, Node, Op, SetData, Stat
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.contracts.catalog_shapes_zookeeper import ZooKeeperShapesContract
from tests.contracts.catalog_zookeeper import ZooKeeperCatalogContract
from tests.contracts.closing import ClosingContract
from tests.contracts.kafka import KafkaStoreContract
from tests.contracts.nodes import NodeContract
from tests.contracts.port import PortContract
from tests.contracts.records_damaged import DamagedContract
from tests.contracts.records_zookeeper import ZooKeeperRecordsContract, ZooKeeperShelf
from tests.contracts.regions_levels import LevelsContract
from tests.contracts.regions_presence import PresenceContract
from tests.contracts.regions_rights import RightsContract
from tests.contracts.regions_transports import NodesContract, TransportsContract
from tests.contracts.regions_zookeeper import ZooKeeperRegionsContract
from tests.contracts.support import CONNECT_S, Backend, Session
from tests.real.zookeeper.real import RealBackend


class TestKazoo(PortContract):
    """The port."""


class TestKazooWithoutMultiRead(NodeContract):
    """ZooKeeper before 3.6."""

    options = {"multi_read": False}


class TestKafkaStoreOnRealZooKeeper(KafkaStoreContract):
    """The store on it."""


class TestClosing(ClosingContract):
    """Closing regent's znodes."""


class TestOnRealZooKeeper(ZooKeeperRecordsContract):
    """The contract."""


class TestDamagedOnRealZooKeeper(DamagedContract):
    """The contract of damaged stores."""

    samples = 2

    @pytest.fixture
    def shelf(self, backend: Backend) -> ZooKeeperShelf:
        return ZooKeeperShelf(backend)


class TestDomain(ZooKeeperRegionsContract, LevelsContract):
    """The claim, the lease, and daemons that stand by."""


class TestTransports(TransportsContract, NodesContract, PresenceContract):
    """Servers that answer by reports, and by znodes."""


class TestRights(RightsContract):
    """Servers with an identity of their own."""


class TestCatalog(ZooKeeperCatalogContract, ZooKeeperShapesContract):
    """The contract of catalogs."""


STEPS = 60
PATHS = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z"]
ACLS: list[tuple[Acl, ...] | None] = [
    None,
    None,
    (digest_acl("me", "secret"), Acl(READ, "world", "anyone")),
    (digest_acl("me", "secret"),),
    (Acl(READ | CREATE, "world", "anyone"), Acl(ALL, "auth", "")),
]


def draw_op(random: Random) -> Op:
    path, version = random.choice(PATHS), random.choice([-1, 0, 0, 1, 2])
    kind = random.randrange(8)
    if kind < 4:
        sequential = random.random() < 0.2
        return Create(path, random.choice([None, b"", b"d"]), random.random() < 0.2, sequential, random.choice(ACLS))
    if kind < 6:
        return SetData(path, b"new", version)
    return Delete(path, version) if kind == 6 else Check(path, version)


async def step(random: Random, s: Session) -> Any:
    """Makes a random call; everything random is drawn before the first await."""
    kind, ops = random.randrange(10), [draw_op(random) for _ in range(random.randint(1, 4))]
    path, acls, version = random.choice(PATHS), random.choice(ACLS[2:]), random.choice([0, 1])
    watched = random.sample(PATHS, 3)
    if kind < 5:
        return await s.zk.multi(ops)
    if kind == 5:
        assert acls is not None
        return await s.zk.set_acls(path, acls, version)
    if kind == 6:
        return await s.zk.read_many(PATHS)
    if kind == 7:
        return [await s.zk.children(path), await s.zk.get_acls(path)]
    await s.zk.sync()
    since = s.zk.last_zxid
    return await s.zk.watch(data=watched[:1], exists=watched[1:2], children=watched[2:], since_zxid=since)


def comparable(value: Any) -> Any:
    """Leaves out zxids and session ids, which differ between servers."""
    if isinstance(value, Stat):
        return value.version, value.acl_version, value.num_children, value.ephemeral_owner != 0
    if isinstance(value, Node):
        return value.data, comparable(value.stat)
    if isinstance(value, Created):
        return value.path, comparable(value.stat)
    if isinstance(value, list | tuple):
        found = [comparable(item) for item in value]
        return sorted(found) if found and all(isinstance(item, str) for item in found) else found
    return value


async def trace(seed: int, sessions: list[Session]) -> list[Any]:
    random = Random(seed)
    seen: list[Any] = []
    for _ in range(STEPS):
        s = random.choice(sessions)
        try:
            seen.append(comparable(await step(random, s)))
        except MultiFailed as failed:
            seen.append(("failed", failed.index, failed.codes, failed.path))
        except ZkError as error:
            seen.append((error.code, error.path))
        for each in sessions:
            await each.zk.sync()
            seen.append(list(each.events))
            each.events.clear()
    return seen


@pytest.mark.parametrize("seed", range(20))
async def test_a_random_history_is_the_same_in_memory_and_on_a_real_server(seed: int, backend: RealBackend) -> None:
    server = MemoryServer()
    traces = []
    async with AsyncExitStack() as stack:
        for make in (backend.client, lambda **options: MemoryZooKeeper(server, **options)):
            sessions = [Session(make(credentials="me:secret")), Session(make())]
            for s in sessions:
                await s.zk.connect(CONNECT_S)
                stack.push_async_callback(s.zk.close)
            traces.append(await trace(seed, sessions))
    for number, (on_real, in_memory) in enumerate(zip(*traces, strict=True)):
        assert in_memory == on_real, f"entry {number} of the trace of seed {seed}"
