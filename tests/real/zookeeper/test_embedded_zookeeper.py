"""The embedded ZooKeeper does what its options say, and the benchmark of steps runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoAuthError
from kazoo.security import make_digest_acl

from benchmarks.procedures import calls, steps, terms
from benchmarks.procedures.plan import TINY
from benchmarks.regions.by_znodes import answered_by_znodes
from benchmarks.regions.plan import Shape
from benchmarks.regions.taking_over import taken_over
from testing.embedded.zookeeper import EmbeddedZooKeeper
from tests.conftest import ZooKeeperProcess
from tests.kit.deadlines import eventually


@asynccontextmanager
async def zookeeper(folder: Path, **options: int) -> AsyncIterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(folder, **options)  # type: ignore[arg-type]
    try:
        await server.boot()
        yield server
    finally:
        await server.kill()


@contextmanager
def client(connect: str, session_s: float = 10.0) -> Iterator[KazooClient]:
    kazoo = KazooClient(hosts=connect, timeout=session_s)
    kazoo.start(timeout=10)
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


def test_each_test_has_a_chroot_of_its_own(zookeeper_process: ZooKeeperProcess, zookeeper_chroot: str) -> None:
    with client(zookeeper_process.address) as kazoo:
        assert not kazoo.exists(zookeeper_chroot.removeprefix(zookeeper_process.address))
        assert zookeeper_process.new_chroot() not in zookeeper_chroot


def test_super_user_passes_every_acl(zookeeper_process: ZooKeeperProcess) -> None:
    path = zookeeper_process.new_chroot()
    with client(zookeeper_process.address) as owner, client(zookeeper_process.address) as other:
        owner.add_auth("digest", "owner:secret")
        owner.create(path, b"mine", acl=[make_digest_acl("owner", "secret", all=True)])
        with pytest.raises(NoAuthError):
            other.get(path)
        other.add_auth("digest", f"super:{zookeeper_process.super_password}")
        assert other.get(path)[0] == b"mine"


async def test_sessions_are_bounded_by_ticks(tmp_path: Path) -> None:
    async with zookeeper(tmp_path, tick_ms=500) as server:
        for asked_s, granted_ms in ((0.2, 1_000), (4.0, 4_000), (60.0, 10_000)):
            connections = await asyncio.to_thread(connections_while_connected, server, asked_s)
            assert f",to={granted_ms}," in connections


def connections_while_connected(server: EmbeddedZooKeeper, asked_s: float) -> str:
    with client(server.connect, asked_s):
        return asyncio.run(server.query("cons"))


async def test_packets_are_bounded_by_jute_maxbuffer(tmp_path: Path) -> None:
    async with zookeeper(tmp_path, jute_maxbuffer=4_096) as server:
        await asyncio.to_thread(write_up_to, server.connect, 4_096)


def write_up_to(connect: str, bytes_max: int) -> None:
    with client(connect) as kazoo:
        kazoo.create("/fits", b"x" * (bytes_max - 200))
        with pytest.raises(ConnectionLoss):
            kazoo.create("/too-big", b"x" * (bytes_max + 200))


async def test_data_survives_kill_and_restart_on_the_same_port(tmp_path: Path) -> None:
    async with zookeeper(tmp_path) as server:
        await asyncio.to_thread(write_up_to, server.connect, 1_048_575)
        await server.kill()
        assert not await server.serves()
        await server.boot()
        assert await asyncio.to_thread(has_node, server.connect, "/fits")
        await server.restart()
        assert await asyncio.to_thread(has_node, server.connect, "/fits")


def has_node(connect: str, path: str) -> bool:
    with client(connect) as kazoo:
        return kazoo.exists(path) is not None


async def test_paused_server_answers_again_when_resumed(tmp_path: Path) -> None:
    async with zookeeper(tmp_path) as server:
        server.pause()
        assert await server.query("srvr") == ""
        server.resume()
        await eventually(server.serves)


async def test_procedures_run_on_zookeeper(tmp_path: Path) -> None:
    rows = await steps.measure(TINY, tmp_path)
    assert [row.case for row in rows] == ["S4x100", "S4x400"]
    assert all(row.ours.rounds == steps.ROUNDS for row in rows)


async def test_plans_begin_as_procedures_and_by_the_handler(tmp_path: Path) -> None:
    [row] = await terms.plans(TINY, tmp_path)
    assert (row.ours.rounds, row.ratio is not None) == (TINY.rounds, True)


async def test_a_daemon_takes_office_with_and_without_records(tmp_path: Path) -> None:
    rows = await terms.failovers(TINY, tmp_path)
    assert [row.case for row in rows] == ["F4", "F4t"]
    assert all(row.ratio is not None for row in rows)


@pytest.mark.timeout(300)  # a busy machine takes long
async def test_a_clients_call_reaches_a_daemon(tmp_path: Path) -> None:
    """The other calls take longer: see ``tests/verify/test_benchmarks_calls.py``."""
    turns = await calls.play(TINY, tmp_path, None, ("T1c",))
    assert [len(turns["T1c"]), bool(turns["T1c"][0].ready_s)] == [TINY.rounds, True]


@pytest.mark.timeout(300)
async def test_regions_are_assigned_by_znodes_and_by_polls_and_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shape = Shape(20, 2)
    made = {row.case: row for row in (*await answered_by_znodes(shape, 1), *await taken_over(shape, 1))}
    failovers = {"A1z failover", "A1z failover lag", "A1z failover done", "A1z failover done lag"}
    changes = {f"A1z {change}{more}" for change in ("create", "disable", "enable") for more in ("", " writes", " lag")}
    assert made.keys() == failovers | changes
    writes = [made[f"A1z {change} writes"] for change in ("create", "disable", "enable")]
    more = [round(one.ours.median - one.peer.median) for one in writes if one.peer is not None]
    assert more == [6, 3, 6], "an open is created, moved twice with a mark that comes and goes, and deleted"
