"""A session on an ensemble of three servers outlives each of them: killed, frozen, or restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from controller.role.lease import Lease
from metadata_store.errors import ZooKeeperError
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.kazoo_adapter.servers import ServerLimits, server_limits
from metadata_store.port import WatchKind
from testing.embedded.process import poll
from testing.embedded.zookeeper import EmbeddedZooKeeper, ensemble, in_sync
from tests.contracts.support import CONNECTED, SUSPENDED, Session
from tests.kit.deadlines import eventually
from tests.real.zookeeper.real import cut

SESSION_MS = 10_000
"""Silence is noticed half a session after the last answer; the lease ends at 8 s."""
SERVES_S_MAX = 60.0


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[EmbeddedZooKeeper]]:
    found = ensemble(tmp_path, 3, tick_ms=500, heap_mb=128)
    await asyncio.gather(*(server.boot() for server in found))
    await eventually(lambda: in_sync(found), SERVES_S_MAX)
    yield found
    await asyncio.gather(*(server.kill() for server in found))


async def kept(servers: list[EmbeddedZooKeeper]) -> tuple[Session, Lease, asyncio.Task[None]]:
    """Opens a session with an ephemeral znode, and keeps its lease as the daemon does."""
    s = Session(KazooZooKeeper(",".join(server.connect for server in servers), session_timeout_ms=SESSION_MS))
    await s.zk.connect(30)
    await s.zk.create("/e", b"", ephemeral=True)
    lease = Lease.of_session(SESSION_MS / 1000, 0.8)
    keeping = asyncio.create_task(lease.keep(s.zk.heartbeat, ZooKeeperError))
    await lease.until_valid()
    return s, lease, keeping


def connected_to(s: Session, servers: list[EmbeddedZooKeeper]) -> EmbeddedZooKeeper:
    return next(server for server in servers if s.zk.peer.endswith(f":{server.port}"))


async def leads(server: EmbeddedZooKeeper) -> bool:
    return "Mode: leader" in await server.query("srvr")


async def sits_at(s: Session, servers: list[EmbeddedZooKeeper], *, leader: bool) -> EmbeddedZooKeeper:
    """Moves the session until the server that it is connected to is the leader, or is not."""
    for _ in range(20):
        server = connected_to(s, servers)
        if await leads(server) is leader:
            return server
        s.states.clear()
        cut(s.zk)
        await s.reaches(SUSPENDED, CONNECTED)
    pytest.fail("no server of the wanted role was connected to")


async def test_the_limits_of_servers_hold_how_long_they_wait_for_a_frozen_leader(
    servers: list[EmbeddedZooKeeper],
) -> None:
    for server in servers:
        found = await server_limits("127.0.0.1", server.port)
        assert found == ServerLimits(tick_ms=500, follower_wait_ms=2_000, session_ms_min=1_000, session_ms_max=10_000)


Fault = Callable[[EmbeddedZooKeeper], Awaitable[object]]


async def freeze(server: EmbeddedZooKeeper) -> None:
    server.pause()


async def outlives(
    s: Session, lease: Lease, servers: list[EmbeddedZooKeeper], lost: EmbeddedZooKeeper, fault: Fault = freeze
) -> float:
    """Waits until the session is up elsewhere; returns how long that took, the lease having been valid all the time."""
    await lease.until_valid()
    began, session_id = time.monotonic(), s.zk.session_id
    s.states.clear()
    await fault(lost)

    async def elsewhere() -> bool:
        assert lease.valid(), f"the lease ran out {time.monotonic() - began:.1f} s after the fault"
        if s.states[-2:] != [SUSPENDED, CONNECTED] or connected_to(s, servers) is lost:
            return False
        try:
            return await s.zk.exists("/e") is not None
        except ZooKeeperError:
            return False

    assert await poll(elsewhere, SESSION_MS / 1000)
    took_s = time.monotonic() - began
    assert s.zk.session_id == session_id
    stat = await s.zk.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == session_id
    since = s.zk.last_zxid
    await s.zk.watch(exists=["/w"], since_zxid=since)
    await s.zk.create("/w", b"")
    await s.saw(("/w", WatchKind.CREATED))
    await s.zk.delete("/w", 0)
    s.events.clear()
    return took_s


@pytest.mark.timeout(240)
@pytest.mark.parametrize("at_leader", [False, True], ids=["follower", "leader"])
async def test_a_session_outlives_its_server_frozen_killed_and_stopped(
    servers: list[EmbeddedZooKeeper], at_leader: bool
) -> None:
    s, lease, keeping = await kept(servers)
    faults: dict[str, Fault] = {"frozen": freeze, "killed": EmbeddedZooKeeper.kill, "stopped": EmbeddedZooKeeper.stop}
    for name, fault in faults.items():
        lost = await sits_at(s, servers, leader=at_leader)
        took_s = await outlives(s, lease, servers, lost, fault)
        print(f"{'leader' if at_leader else 'follower'} {name}: elsewhere after {took_s:.2f} s")
        lost.resume()
        if not lost.running:
            await lost.boot()
        await eventually(lambda: in_sync(servers), SERVES_S_MAX)
    keeping.cancel()
    await s.zk.close()


async def test_a_session_at_a_follower_outlives_the_frozen_leader(servers: list[EmbeddedZooKeeper]) -> None:
    s, lease, keeping = await kept(servers)
    await sits_at(s, servers, leader=False)
    [leader] = [server for server in servers if await leads(server)]
    took_s = await outlives(s, lease, servers, leader)
    print(f"leader frozen, session at a follower: up again after {took_s:.2f} s")
    keeping.cancel()
    await s.zk.close()


async def test_a_session_outlives_the_absence_of_a_majority(servers: list[EmbeddedZooKeeper]) -> None:
    """Without a majority no server serves and no session ends; the session goes on as soon as there is one."""
    s, _, keeping = await kept(servers)
    session_id = s.zk.session_id
    here = connected_to(s, servers)
    away = [server for server in servers if server is not here]
    for server in away:
        server.pause()
    await s.reaches(CONNECTED, SUSPENDED)
    for server in away:
        server.resume()
    await eventually(lambda: s.zk.state is CONNECTED)
    assert s.zk.session_id == session_id
    keeping.cancel()
    await s.zk.close()
