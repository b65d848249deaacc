"""Daemons on a real ZooKeeper, through proxies that cut and stall: what kazoo's thread and real sessions do to terms.

Brokers are registrations without anybody behind them; the requests to them go nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.daemon.daemon import Daemon
from controller.daemon.state import Mode
from controller.kafka.procedures import drain
from controller.kafka.term.term import Term
from controller.process.zookeeper import own_acls
from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.own_znodes import this_process
from metadata_store import paths
from metadata_store.acl import READ, Acl, digest_acl
from metadata_store.codecs.topic import decode_state
from metadata_store.errors import Code, MultiFailed, ZkError
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.nodes.cluster_nodes import ensure_top_level_paths
from metadata_store.own import NONE, OwnAcls
from metadata_store.port import Write, ZooKeeper
from state_machines.decisions.drain import Drain
from state_machines.model.types import Leadership
from state_machines.procedures.record import Caller
from testing.znodes import create_topic, elect, expand_topic, states
from tests.conftest import ZooKeeperProcess
from tests.kit.deadlines import eventually
from tests.kit.kafka.cluster import id_of, registration
from tests.kit.kafka.parts import DAEMON
from tests.kit.kafka.role import settings_for
from tests.real.zookeeper.proxy import Proxy

SESSION_MS = 4_000
DIGEST = "regent:secret"


class Cluster:
    """A chroot of the real server with registered brokers; ``broker_zk`` holds their ephemerals."""

    def __init__(self, stack: AsyncExitStack, process: ZooKeeperProcess) -> None:
        self.stack = stack
        self.address = process.address
        self.chroot = process.new_chroot()
        self.operator = self.client()
        self.broker_zk: dict[int, KazooZooKeeper] = {}

    def client(
        self, proxy: Proxy | None = None, credentials: str | None = None, acls: OwnAcls = NONE
    ) -> KazooZooKeeper:
        host = self.address if proxy is None else f"127.0.0.1:{proxy.port}"
        return KazooZooKeeper(
            host + self.chroot,
            session_timeout_ms=SESSION_MS,
            credentials=credentials,
            create_chroot=True,
            own_acls=acls,
        )

    async def boot(self, *ids: int) -> None:
        for broker_id in ids:
            zk = self.broker_zk[broker_id] = self.client()
            await zk.connect(30.0)
            self.stack.push_async_callback(zk.close)
            await zk.create(paths.broker(broker_id), registration(broker_id), ephemeral=True)

    async def topic(self, name: str, *replicas: tuple[int, ...]) -> None:
        """A running topic, led by first replicas."""
        await create_topic(self.operator, name, dict(enumerate(replicas)), id_of(name))
        await self.operator.multi(states(name, replicas, leader_epoch=3))

    async def led(self, name: str, partition: int = 0) -> tuple[int, tuple[int, ...]] | None:
        node = await self.operator.get(paths.state(name, partition))
        found = decode_state(node.data, 0) if node is not None else None
        return (found.leader, found.isr) if isinstance(found, Leadership) else None

    async def leads(self, leader: int, name: str, partition: int = 0) -> None:
        """Waits until a broker leads."""

        async def so() -> bool:
            found = await self.led(name, partition)
            return found is not None and found[0] == leader

        await eventually(so)

    async def epoch(self) -> int:
        node = await self.operator.get(paths.CONTROLLER_EPOCH)
        return int(node.data or b"0") if node is not None else 0


class LoseReply:
    """Write hooks that have the proxy swallow one reply."""

    def __init__(self, proxy: Proxy, number: int) -> None:
        self._proxy, self._left = proxy, number

    async def before(self, _: Sequence[Write]) -> None:
        self._left -= 1
        if self._left == 0:
            self._proxy.lose_reply()

    async def after(self, _: Sequence[Write]) -> None: ...


class Served:
    """A daemon behind a proxy of its own."""

    def __init__(self, daemon: Daemon, proxy: Proxy) -> None:
        self.daemon = daemon
        self.proxy = proxy

    async def serving(self, epoch: int | None = None) -> Term:
        def active() -> Term | None:
            term = self.daemon.term
            wanted = term is not None and epoch in (None, term.claim.epoch)
            return term if wanted and self.daemon.mode is Mode.ACTIVE else None

        found = await eventually(active)
        assert found is not None
        return found

    @property
    def open(self) -> int | None:
        """The epoch in which it would write or send now."""
        term = self.daemon.term
        return term.claim.epoch if term is not None and term.gate.open() else None


@asynccontextmanager
async def cluster(process: ZooKeeperProcess) -> AsyncIterator[Cluster]:
    """Brokers 1 to 3; the role is regent's."""
    async with AsyncExitStack() as stack:
        made = Cluster(stack, process)
        await made.operator.connect(30.0)
        stack.push_async_callback(made.operator.close)
        await ensure_top_level_paths(made.operator)
        await made.boot(1, 2, 3)
        await made.topic("t", (1, 2, 3), (2, 3, 1))
        await Role(made.operator, this_process(DAEMON), hold=False, digest=None).set_flag("regent", "a test", "uid 0")
        yield made


@asynccontextmanager
async def daemon(
    c: Cluster, controller_id: int = DAEMON, *, hold: bool = False, lose_reply_of: int = 0
) -> AsyncIterator[Served]:
    """A running daemon, stopped at the end; the reply of its ``lose_reply_of``-th write is lost."""
    host, port = c.address.split(":")
    proxy = Proxy(host, int(port))
    await proxy.start()
    settings = settings_for(Path("/nowhere"), hold=hold, digest=DIGEST if hold else None)
    chosen = settings.controller.model_copy(update={"id": controller_id, "drain_timeout_ms": 100})
    hooks = LoseReply(proxy, lose_reply_of)

    def connect() -> ZooKeeper:
        zk = c.client(proxy, DIGEST if hold else None, own_acls(settings))
        zk.hooks = hooks
        return zk

    made = Daemon(settings.model_copy(update={"controller": chosen}), connect)
    task = asyncio.create_task(made.run())
    try:
        yield Served(made, proxy)
    finally:
        proxy.resume()
        made.stop()
        await asyncio.wait_for(task, 60.0)
        await proxy.stop()


@pytest.mark.seed("S4-75", "S4-86")
async def test_a_connection_cut_for_less_than_the_lease_loses_nothing(zookeeper_process: ZooKeeperProcess) -> None:
    async with cluster(zookeeper_process) as c, daemon(c) as d:
        term = await d.serving()
        for round_ in range(3):
            d.proxy.suspend()
            await eventually(lambda: not term.gate.open())
            await expand_topic(c.operator, "t", (3, 2))
            await c.topic(f"while-cut-{round_}", (2, 3))
            if round_ == 1:
                await c.broker_zk[1].close()
            d.proxy.resume()
            await c.leads(3, "t", 2 + round_)
        await c.leads(2, "t", 0)
        assert d.daemon.term is term, "one term all along"
        await expand_topic(c.operator, "while-cut-0", (3, 2))
        await c.leads(3, "while-cut-0", 1)
        assert await c.epoch() == 1


@pytest.mark.seed("S4-86")
async def test_a_lease_ends_before_the_session_and_another_daemon_takes_over(
    zookeeper_process: ZooKeeperProcess,
) -> None:
    """The server keeps the session until its time-out; by then the cut daemon has long stopped by its own clock."""
    async with cluster(zookeeper_process) as c, daemon(c) as first:
        term = await first.serving()
        async with daemon(c, DAEMON + 1) as second:
            await eventually(lambda: second.daemon.mode is Mode.STANDBY)
            first.proxy.suspend()
            await c.broker_zk[1].close()
            closed = False

            def taken_over() -> bool:
                nonlocal closed
                closed |= first.open is None
                assert second.open is None or closed, "the second may write while the first still may"
                return second.daemon.mode is Mode.ACTIVE

            await eventually(taken_over)
            assert (term.stands_still, term.gate.open(), term.gate.ended) == (True, False, False)
            await c.leads(2, "t", 0)
            first.proxy.resume()
            await eventually(lambda: term.gate.ended)
            await eventually(lambda: "another daemon is before us" in first.daemon.why)
            assert await c.epoch() == 2


@pytest.mark.seed("S4-86")
async def test_a_server_that_stops_answering_closes_the_gate_though_the_connection_stands(
    zookeeper_process: ZooKeeperProcess,
) -> None:
    async with cluster(zookeeper_process) as c, daemon(c) as d:
        term = await d.serving()
        d.proxy.stall()
        await eventually(lambda: not term.gate.open())
        await c.broker_zk[1].close()
        d.proxy.suspend()
        d.proxy._flowing.set()
        d.proxy.resume()
        await c.leads(2, "t", 0)
        await d.serving()


@pytest.mark.seed("S4-86")
async def test_a_reply_lost_at_any_write_of_the_start_ends_in_office(zookeeper_process: ZooKeeperProcess) -> None:
    """kazoo reports such a write as one of unknown outcome: queue, claim and first decisions cope with each."""
    async with cluster(zookeeper_process) as c:
        await c.broker_zk[1].close()
        for number in (1, 2, 3, 5, 6, 7, 8, 9, 10):
            async with daemon(c, lose_reply_of=number) as d:
                await d.serving()
                assert d.daemon.role is not None
                assert len(await d.daemon.role.queue()) == 1
        await c.leads(2, "t", 0)


@pytest.mark.seed("S4-86")
async def test_the_lock_out_holds_against_a_brokers_election(zookeeper_process: ZooKeeperProcess) -> None:
    async with cluster(zookeeper_process) as c:
        async with daemon(c, hold=True) as d:
            await d.serving()
            acls, _ = await _acls(d)
            assert set(acls) == {digest_acl("regent", "secret"), Acl(READ, "world", "anyone")}
        node = await c.operator.get(paths.CONTROLLER)
        assert node is not None
        assert node.stat.ephemeral_owner == 0, "no daemon lives, nobody is elected"
        await c.operator.delete(paths.CONTROLLER, -1)
        with pytest.raises(MultiFailed) as failed:
            await elect(c.broker_zk[2], 2)
        assert failed.value.code is Code.NO_AUTH
        assert await c.operator.get(paths.CONTROLLER) is None
        async with daemon(c) as stranger:
            await eventually(lambda: "set zookeeper.digest_file" in stranger.daemon.why)
        async with daemon(c, hold=True) as again:
            await again.serving(2)


async def test_in_mode_hold_no_stranger_changes_or_deletes_records_of_procedures(
    zookeeper_process: ZooKeeperProcess,
) -> None:
    async with cluster(zookeeper_process) as c, daemon(c, hold=True) as d:
        await d.serving()
        assert d.daemon.term is not None
        pid = await d.daemon.term.procedures.engine.submit(drain.NAME, drain.encode_drain(Drain((1,))), Caller())
        path = f"{own.PROCEDURES}/{pid:010}"
        await c.operator.sync()
        root = own.PROCEDURES
        for attempt in (c.operator.set(path, b"", -1), c.operator.delete(path, -1), c.operator.set(root, b"", -1)):
            with pytest.raises(ZkError) as failed:
                await attempt
            assert failed.value.code is Code.NO_AUTH


async def _acls(d: Served) -> tuple[list[Acl], Any]:
    assert d.daemon.zk is not None
    return await d.daemon.zk.get_acls(paths.CONTROLLER_EPOCH)


async def test_a_stop_frees_the_role_at_once(zookeeper_process: ZooKeeperProcess) -> None:
    async with cluster(zookeeper_process) as c:
        async with daemon(c) as first:
            await first.serving()
            async with daemon(c, DAEMON + 1) as second:
                await eventually(lambda: second.daemon.mode is Mode.STANDBY)
                first.daemon.stop()
                await second.serving(2)
        assert await c.operator.get(paths.CONTROLLER) is None
