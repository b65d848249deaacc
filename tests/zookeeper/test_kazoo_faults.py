"""The adapter against a real server that is paused, restarted, emptied or moved."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from metadata_store.errors import Code, ConnectFailed, NotConnected, OutcomeUnknown, SessionLost, ZxidWentBack
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.port import ConnectionState, Create, Node, WatchKind
from testing.embedded.zookeeper import EmbeddedZooKeeper
from tests.conftest import ZooKeeperProcess
from tests.contracts.support import CONNECTED, LOST, SUSPENDED, Session, session
from tests.polling import eventually
from tests.zookeeper.proxy import Proxy
from tests.zookeeper.real import RealBackend

SESSION_MS = 2_000
CLOSE_S_MAX = 8.0
SESSION_ENDS_S = 9.0
"""A session of 10 s that nobody renews is not sure to be kept for longer."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedZooKeeper]:
    """A server of the test's own, which it may stop and pause."""
    found = EmbeddedZooKeeper(tmp_path, tick_ms=500)
    await found.boot()
    yield found
    await found.kill()


@pytest.fixture
async def backend(zookeeper_process: ZooKeeperProcess) -> AsyncIterator[RealBackend]:
    found = RealBackend(zookeeper_process.address, zookeeper_process.new_chroot())
    await found.open()
    yield found
    await found.close()


async def connected(connect_string: str, session_timeout_ms: int = SESSION_MS) -> Session:
    s = Session(KazooZooKeeper(connect_string, session_timeout_ms=session_timeout_ms))
    await s.zk.connect(10)
    return s


async def pause(server: EmbeddedZooKeeper) -> None:
    """Pauses, and waits until every thread stands."""
    server.pause()
    tasks = Path(f"/proc/{server.pid}/task")
    await eventually(lambda: all("\nState:\tT" in (task / "status").read_text() for task in tasks.iterdir()))


async def test_a_paused_server_is_noticed_and_close_is_bounded(server: EmbeddedZooKeeper) -> None:
    s = await connected(server.connect)
    await s.zk.create("/a", b"")
    await pause(server)
    write = asyncio.create_task(s.zk.set("/a", b"x", 0))
    await s.reaches(SUSPENDED)
    with pytest.raises(OutcomeUnknown):
        await write
    async with asyncio.timeout(CLOSE_S_MAX):
        await s.zk.close()
    assert s.zk.state is LOST


async def test_close_is_bounded_before_the_pause_is_noticed(server: EmbeddedZooKeeper) -> None:
    before = set(threading.enumerate())
    s = await connected(server.connect, 20_000)
    await pause(server)
    async with asyncio.timeout(CLOSE_S_MAX):
        await s.zk.close()
    assert s.states == [CONNECTED]
    assert set(threading.enumerate()) <= before


async def test_cut_off_beyond_the_session_it_is_lost(backend: RealBackend) -> None:
    async with session(backend) as other, session(backend, session_timeout_ms=SESSION_MS) as s:
        await s.zk.create("/e", b"", ephemeral=True)
        backend.suspend(s.zk)
        await s.reaches(SUSPENDED)
        await eventually(lambda: _gone(other, "/e"), within_s=20)
        assert s.zk.state is SUSPENDED
        backend.resume(s.zk)
        await s.reaches(SUSPENDED, LOST)
        with pytest.raises(SessionLost):
            await s.zk.exists("/e")
        await s.zk.connect(10)
        assert await s.zk.exists("/e") is None


async def _gone(s: Session, path: str) -> bool:
    return await s.zk.exists(path) is None


async def test_a_restart_within_the_session_keeps_it(server: EmbeddedZooKeeper) -> None:
    s = await connected(server.connect, 10_000)
    made = await s.zk.create("/e", b"", ephemeral=True)
    await server.restart()
    await s.reaches(SUSPENDED, CONNECTED)
    assert await s.zk.exists("/e") == made.stat
    assert s.zk.session_id == made.stat.ephemeral_owner
    await s.zk.close()


async def test_each_connection_has_the_session_timeout_that_it_was_granted(
    server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    s = await connected(server.connect, 10_000)
    assert s.zk.session_timeout_ms == 10_000
    await server.stop()
    config = tmp_path / "zookeeper.properties"
    config.write_text(config.read_text().replace("maxSessionTimeout=10000", "maxSessionTimeout=4000"))
    await server.boot()
    await s.reaches(SUSPENDED, CONNECTED)
    assert s.zk.session_timeout_ms == 4_000
    await s.zk.close()


async def test_a_handshake_that_nobody_answers_does_not_cost_the_session(backend: RealBackend) -> None:
    async with session(backend, session_timeout_ms=10_000) as s:
        made = await s.zk.create("/e", b"", ephemeral=True)
        connections = backend.mute(s.zk)
        async with asyncio.timeout(SESSION_ENDS_S):
            await s.reaches(SUSPENDED, CONNECTED)
        assert await s.zk.exists("/e") == made.stat
        assert backend.connections(s.zk) == connections + 2


async def test_an_emptied_ensemble_is_an_error_of_its_own(server: EmbeddedZooKeeper, tmp_path: Path) -> None:
    s = await connected(server.connect)
    for n in range(10):
        await s.zk.create(f"/n{n}", b"")
    seen = s.zk.last_zxid
    await server.kill()
    shutil.rmtree(tmp_path / "data")
    await server.boot()
    await s.zk.close()
    with pytest.raises(ZxidWentBack) as error:
        await s.zk.connect(10)
    assert (error.value.seen, error.value.now < seen) == (seen, True)
    assert s.zk.state is LOST


async def test_nobody_there_and_nobody_answering(server: EmbeddedZooKeeper) -> None:
    await pause(server)
    zk = KazooZooKeeper(server.connect, session_timeout_ms=SESSION_MS)
    async with asyncio.timeout(1 + CLOSE_S_MAX):
        with pytest.raises(ConnectFailed, match="is it running"):
            await zk.connect(1)


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


async def test_the_term_hears_of_a_blip_while_the_loop_stands_still(zookeeper_process: ZooKeeperProcess) -> None:
    s = await connected(zookeeper_process.address, 6_000)
    heard = threading.Event()
    states: list[tuple[ConnectionState, threading.Thread]] = []

    def flag(state: ConnectionState) -> None:
        states.append((state, threading.current_thread()))
        heard.set()

    s.zk.on_state_thread = flag
    s.zk._transport._client.cut()  # type: ignore[attr-defined]
    assert heard.wait(10)  # blocks the loop on purpose
    assert states[0][0] is SUSPENDED
    assert states[0][1] is not threading.current_thread()
    assert s.zk.state is SUSPENDED
    with pytest.raises(NotConnected):
        await s.zk.get("/")
    await s.reaches(SUSPENDED, CONNECTED)
    await s.zk.close()


async def test_a_blip_that_the_loop_did_not_see_yet_still_refuses_calls(zookeeper_process: ZooKeeperProcess) -> None:
    s = await connected(zookeeper_process.address, 6_000)
    client = s.zk._transport._client  # type: ignore[attr-defined]
    before, deadline = client.connections, time.monotonic() + 10
    client.cut()
    while client.connections == before and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: ASYNC251 - the loop stands still on purpose
    assert client.connected
    assert s.zk.state is SUSPENDED
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
        released.wait(30)

    s.zk.on_state_thread = hold
    s.zk._transport._client.cut()  # type: ignore[attr-defined]
    assert await asyncio.to_thread(stuck.wait, 10)
    calls = [asyncio.ensure_future(s.zk.exists("/")) for _ in range(2_000)]
    await asyncio.sleep(0)
    released.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in found} == {NotConnected}
    await s.reaches(SUSPENDED, CONNECTED)
    await s.zk.close()


async def test_a_lost_session_is_not_replaced_behind_the_back(backend: RealBackend) -> None:
    async with session(backend) as s:
        await backend.expire(s.zk)
        await s.reaches(SUSPENDED, LOST)
        await asyncio.wait_for(s.zk._transport.ended.wait(), 10)  # type: ignore[attr-defined]
        assert (s.zk.state, s.states[-1]) == (LOST, LOST)


async def test_a_callback_that_fails_does_not_take_the_connection_with_it(
    zookeeper_process: ZooKeeperProcess,
) -> None:
    s = await connected(zookeeper_process.address, 6_000)
    s.zk.on_state_thread = _failing
    s.zk._transport._client.cut()  # type: ignore[attr-defined]
    await s.reaches(SUSPENDED, CONNECTED)
    assert await s.zk.exists("/") is not None
    await s.zk.close()


def _failing(_: ConnectionState) -> None:
    raise RuntimeError("a callback of the daemon failed")


async def test_reads_cut_off_in_the_middle_fail_as_one(backend: RealBackend) -> None:
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


async def test_thousands_of_single_reads_under_way(backend: RealBackend) -> None:
    async with session(backend, multi_read=False) as s:
        await s.zk.create("/a", b"x")
        found = await s.zk.read_many(["/a", "/none"] * 2_500)
        assert [type(node) for node in found] == [Node, Code] * 2_500


async def test_thousands_of_watches_in_several_requests(backend: RealBackend) -> None:
    async with session(backend) as s:
        paths = [f"/{'w' * 120}{n}" for n in range(6_000)]
        for start in range(0, 6_000, 2_000):
            await s.zk.apply([Create(path, None) for path in paths[start : start + 2_000]])
        since = s.zk.last_zxid
        changed = paths[::100]
        for path in changed:
            await s.zk.set(path, b"x", 0)
        await s.zk.watch(data=paths, since_zxid=since)
        await s.saw(*[(path, WatchKind.CHANGED) for path in changed])
        later = paths[1::100]
        for path in later:
            await s.zk.set(path, b"x", 0)
        await s.zk.sync()
        await s.saw(*[(path, WatchKind.CHANGED) for path in later])


@pytest.mark.parametrize("fault", [lambda p: p.cut(), lambda p: p.suspend()])
async def test_close_during_trouble(backend: RealBackend, fault: Callable[[Proxy], None]) -> None:
    zk = backend.client()
    await zk.connect(10)
    fault(zk.proxy)
    async with asyncio.timeout(CLOSE_S_MAX):
        await zk.close()
    assert zk.state is LOST
