"""The adapter against a real server that is paused, restarted, moved, or has a small buffer."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from metadata_store.errors import Code, ConnectFailed, NotConnected, OutcomeUnknown
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.port import REQUEST_BYTES_MAX, ConnectionState, Create, Node
from testing.embedded.zookeeper import EmbeddedZooKeeper
from tests.conftest import ZooKeeperProcess
from tests.contracts.support import CONNECTED, LOST, SUSPENDED, Session, session
from tests.kit.deadlines import eventually
from tests.real.zookeeper.proxy import Proxy
from tests.real.zookeeper.real import RealBackend, connections, cut

SESSION_MS = 4_000
CLOSE_S_MAX = 20.0
SESSION_ENDS_S = 9.0
"""A session of 10 s that nobody renews is not sure to be kept for longer."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedZooKeeper]:
    """A server of the test's own, which it may stop and pause."""
    found = EmbeddedZooKeeper(tmp_path, tick_ms=500)
    await found.boot()
    yield found
    await found.kill()


async def connected(connect_string: str, session_timeout_ms: int = SESSION_MS) -> Session:
    s = Session(KazooZooKeeper(connect_string, session_timeout_ms=session_timeout_ms))
    await s.zk.connect(30)
    return s


async def pause(server: EmbeddedZooKeeper) -> None:
    """Pauses, and waits until every thread stands."""
    server.pause()
    tasks = Path(f"/proc/{server.pid}/task")
    await eventually(lambda: all("\nState:\tT" in (task / "status").read_text() for task in tasks.iterdir()))


async def close_in_time(s: Session) -> None:
    async with asyncio.timeout(CLOSE_S_MAX):
        await s.zk.close()
    assert s.zk.state is LOST


# -- servers


async def test_a_paused_server_is_noticed_and_neither_close_nor_connect_waits_for_it(
    server: EmbeddedZooKeeper,
) -> None:
    threads = set(threading.enumerate())
    noticing, unnoticing = await connected(server.connect), await connected(server.connect, 20_000)
    await noticing.zk.create("/a", b"")
    await pause(server)
    write = asyncio.create_task(noticing.zk.set("/a", b"x", 0))
    await close_in_time(unnoticing)
    assert unnoticing.states == [CONNECTED]
    await noticing.reaches(SUSPENDED)
    with pytest.raises(OutcomeUnknown):
        await write
    await close_in_time(noticing)
    async with asyncio.timeout(1 + CLOSE_S_MAX):
        with pytest.raises(ConnectFailed, match="is it running"):
            await noticing.zk.connect(1)
    assert set(threading.enumerate()) <= threads


async def test_a_restart_within_the_session_keeps_it_with_the_time_out_that_is_granted_then(
    server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    s = await connected(server.connect, 10_000)
    made = await s.zk.create("/e", b"", ephemeral=True)
    assert s.zk.session_timeout_ms == 10_000
    await server.stop()
    config = tmp_path / "zookeeper.properties"
    config.write_text(config.read_text().replace("maxSessionTimeout=10000", "maxSessionTimeout=4000"))
    await server.boot()
    await s.reaches(SUSPENDED, CONNECTED)
    assert await s.zk.exists("/e") == made.stat
    assert (s.zk.session_id, s.zk.session_timeout_ms) == (made.stat.ephemeral_owner, 4_000)
    await s.zk.close()


async def test_a_handshake_without_a_reply_does_not_cost_the_session(backend: RealBackend) -> None:
    async with session(backend, session_timeout_ms=10_000) as s:
        made = await s.zk.create("/e", b"", ephemeral=True)
        before = backend.mute(s.zk)
        async with asyncio.timeout(SESSION_ENDS_S):
            await s.reaches(SUSPENDED, CONNECTED)
        assert await s.zk.exists("/e") == made.stat
        assert backend.connections(s.zk) == before + 2


async def test_names_are_resolved_again_at_each_connect(
    zookeeper_process: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = zookeeper_process.address.split(":")
    old, new = Proxy(host, int(port)), Proxy(host, int(port))
    await old.start()
    await new.start()
    address = [old.port]
    plain = socket.getaddrinfo

    def resolve(name: Any, *args: Any) -> Any:
        return plain("127.0.0.1", address[0], *args[1:]) if name == "zookeeper.test" else plain(name, *args)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    s = await connected("zookeeper.test:2181", 6_000)
    first = s.zk.session_id
    address[0] = new.port
    old.suspend()
    await s.reaches(SUSPENDED, CONNECTED)
    assert (s.zk.session_id, new.connections) == (first, 1)
    await s.zk.close()
    await old.stop()
    await new.stop()


@pytest.mark.kafka("KafkaZkClientTest.testJuteMaxBuffer")
async def test_a_small_buffer_is_learned_and_forgotten_once_a_larger_request_has_a_reply(tmp_path: Path) -> None:
    small = EmbeddedZooKeeper(tmp_path, tick_ms=500, jute_maxbuffer=100_000)
    await small.boot()
    s = await connected(small.connect, 10_000)
    absent = [f"/{'x' * 500}{n}" for n in range(1_000)]
    for _ in range(2):
        with pytest.raises(NotConnected):
            await s.zk.read_many(absent)
        await eventually(lambda: s.zk.state is CONNECTED)
    assert await s.zk.read_many(absent) == [Code.NO_NODE] * 1_000
    await small.kill()
    large = EmbeddedZooKeeper(tmp_path, tick_ms=500, port=small.port)
    await large.boot()
    await eventually(lambda: s.zk.state is CONNECTED)
    await s.zk.create("/a", b"x" * 520_000)
    assert s.zk.request_bytes_max == REQUEST_BYTES_MAX
    await s.zk.close()
    await large.kill()


# -- kazoo's thread and the loop


async def test_a_blip_while_the_loop_stands_still_is_flagged_on_the_thread_and_refuses_requests(
    zookeeper_process: ZooKeeperProcess,
) -> None:
    s = await connected(zookeeper_process.address, 6_000)
    flags: list[tuple[ConnectionState, bool]] = []
    here = threading.current_thread()
    s.zk.on_state_thread = lambda state: flags.append((state, threading.current_thread() is here))
    before, deadline = connections(s.zk), time.monotonic() + 60
    cut(s.zk)
    while connections(s.zk) == before and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: ASYNC251 - the loop stands still on purpose
    assert flags == [(SUSPENDED, False)]
    assert s.zk.state is SUSPENDED, "though the connection is back"
    with pytest.raises(NotConnected):
        await s.zk.get("/")
    await s.reaches(SUSPENDED, CONNECTED)
    assert await s.zk.exists("/") is not None
    await s.zk.close()


async def test_a_stuck_connection_thread_never_blocks_the_loop(zookeeper_process: ZooKeeperProcess) -> None:
    """Each call wakes kazoo's thread through a socket pair that holds some 270 bytes."""
    s = await connected(zookeeper_process.address, 6_000)
    stuck, released = threading.Event(), threading.Event()

    def hold(_: ConnectionState) -> None:
        stuck.set()
        released.wait(60)

    s.zk.on_state_thread = hold
    cut(s.zk)
    assert await asyncio.to_thread(stuck.wait, 60)
    calls = [asyncio.ensure_future(s.zk.exists("/")) for _ in range(2_000)]
    await asyncio.sleep(0)
    released.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in found} == {NotConnected}
    await s.reaches(SUSPENDED, CONNECTED)
    await s.zk.close()


async def test_bulk_reads_cut_off_in_the_middle_fail_as_one(backend: RealBackend) -> None:
    async with session(backend) as s:
        await s.zk.apply([Create(f"/n{n}", b"x" * 100) for n in range(2_000)])
        paths = [f"/n{n}" for n in range(2_000)] * 10
        reads = asyncio.create_task(s.zk.read_many(paths, paths_max=50))
        await asyncio.sleep(0)
        backend.suspend(s.zk)
        with pytest.raises(NotConnected):
            await reads
        backend.resume(s.zk)
        await s.reaches(SUSPENDED, CONNECTED)
        found = await s.zk.read_many(paths)
        assert all(isinstance(node, Node) for node in found)


@pytest.mark.parametrize("fault", ["cut", "suspend"])
async def test_a_close_during_trouble_is_bounded(backend: RealBackend, fault: str) -> None:
    zk = backend.client()
    s = Session(zk)
    await zk.connect(30)
    getattr(zk.proxy, fault)()
    await close_in_time(s)
