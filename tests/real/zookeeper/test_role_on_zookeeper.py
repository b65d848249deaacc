"""What the role's operations rely on in the real server: probing without writing, and the way back by its own shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from brokers.queries import dial_for
from controller.daemon.handback import shell_lines
from controller.daemon.preflight.context import Context, Level, gather
from controller.daemon.preflight.ensemble import zookeeper_release
from controller.daemon.preflight.permissions import lockable, refused_paths, writable
from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.own_znodes import may_change_acls, this_process
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl, digest_acl
from metadata_store.codecs.topic import encode_state
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.kazoo_adapter.servers import server_version
from metadata_store.nodes.cluster_nodes import ensure_top_level_paths
from metadata_store.port import Create, Delete, Node, Op, SetData
from testing.embedded.jvm import java_command
from testing.znodes import create_topic, elect, states
from tests.kit.kafka.role import DIGEST, settings_for

CLOSED = [digest_acl("brokers", "other"), Acl(READ, "world", "anyone")]
LOCK = [digest_acl("regent", "secret"), Acl(READ, "world", "anyone")]
SHELL_S_MAX = 60.0


@asynccontextmanager
async def session(connect: str, credentials: str | None = None) -> AsyncIterator[KazooZooKeeper]:
    zk = KazooZooKeeper(connect, session_timeout_ms=10_000, credentials=credentials, create_chroot=True)
    await zk.connect(30.0)
    try:
        yield zk
    finally:
        await zk.close()


async def fill(zk: KazooZooKeeper) -> None:
    """A cluster's znodes with one topic, and a controller."""
    await ensure_top_level_paths(zk)
    await create_topic(zk, "orders", {0: (1, 2)})
    await zk.multi(states("orders", [(1, 2)], controller_epoch=1))
    await elect(zk, 1)


async def context(zk: KazooZooKeeper, connect: str, folder: Path, *, hold: bool = False) -> Context:
    settings = settings_for(folder, hold=hold, digest=DIGEST if hold else None)
    settings = settings.model_copy(update={"zookeeper": settings.zookeeper.model_copy(update={"connect": connect})})
    role = Role(zk, this_process(settings.controller.id), hold=hold, digest=("regent", "secret") if hold else None)
    return await gather(settings, role, dial_for(settings), server_version, own_listener=False)


async def close(zk: KazooZooKeeper, path: str, acls: list[Acl] = CLOSED) -> None:
    _, stat = await zk.get_acls(path)
    await zk.set_acls(path, acls, stat.acl_version)


async def versions(zk: KazooZooKeeper, found: list[str]) -> list[object]:
    """Data and versions of znodes, and of what is below the root."""
    nodes = await zk.read_many(found)
    listed = await zk.children("/")
    return [*(n.stat if isinstance(n, Node) else n for n in nodes), sorted(listed[0]) if listed else None]


async def test_permissions_are_found_out_without_a_write(zookeeper_chroot: str, tmp_path: Path) -> None:
    async with session(zookeeper_chroot) as zk:
        await fill(zk)
        looked_at = [paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.topic("orders"), paths.state("orders", 0)]
        before = await versions(zk, looked_at)
        found = await writable(await context(zk, zookeeper_chroot, tmp_path))
        assert (found.level, await versions(zk, looked_at)) == (Level.OK, before)
        await close(zk, paths.topic("orders"))
        await close(zk, paths.ISR_CHANGES)
        found = await writable(await context(zk, zookeeper_chroot, tmp_path))
        assert found.level is Level.REFUSED
        assert "/isr_change_notification/" in found.text
        assert paths.topic("orders") in found.text
        assert paths.CONTROLLER not in found.text


async def test_every_operation_of_a_probe_is_judged_by_itself(zookeeper_chroot: str) -> None:
    """Versions that do not fit, znodes that are gone or there, children: only permissions count."""
    async with session(zookeeper_chroot) as zk:
        await fill(zk)
        await close(zk, paths.topic("orders"))
        probe: list[Op] = [
            SetData(paths.CONTROLLER_EPOCH, b"1", 77),
            SetData("/nowhere", b"", 0),
            Create(paths.CONTROLLER, b""),
            Delete(paths.BROKERS, 0),
            SetData(paths.topic("orders"), b"{}", 77),
            SetData(paths.state("orders", 0), b"{}", 0),
        ]
        assert await refused_paths(zk, probe, 10) == [paths.topic("orders")]
        state = await zk.get(paths.state("orders", 0))
        assert state is not None
        assert (state.stat.version, state.data) == (0, encode_state(1, 0, (1, 2), 1))


async def test_a_permission_to_change_an_acl_is_found_out_without_changing_it(
    zookeeper_chroot: str, tmp_path: Path
) -> None:
    async with session(zookeeper_chroot) as nobody, session(zookeeper_chroot, DIGEST) as regent:
        await fill(nobody)
        assert await may_change_acls(nobody, paths.CONTROLLER_EPOCH)
        await close(regent, paths.CONTROLLER_EPOCH, LOCK)
        assert not await may_change_acls(nobody, paths.CONTROLLER_EPOCH)
        assert await may_change_acls(regent, paths.CONTROLLER_EPOCH)
        acls, stat = await regent.get_acls(paths.CONTROLLER_EPOCH)
        assert (acls, stat.acl_version) == (LOCK, 1)
        held = await lockable(await context(regent, zookeeper_chroot, tmp_path, hold=True))
        assert held.level is Level.OK
        refused = await lockable(await context(nobody, zookeeper_chroot, tmp_path, hold=True))
        assert refused.level is Level.REFUSED


async def test_the_release_is_reported(zookeeper_chroot: str, tmp_path: Path) -> None:
    async with session(zookeeper_chroot) as zk:
        await ensure_top_level_paths(zk)
        found = await zookeeper_release(await context(zk, zookeeper_chroot, tmp_path))
        assert (found.level, found.text.split(" is ")[1]) == (Level.OK, "3.8")


@pytest.mark.parametrize("hold", [False, True])
async def test_zookeepers_own_shell_gives_the_role_back(zookeeper_chroot: str, hold: bool) -> None:
    """The lines of a hand-back without regent, typed into the shell as they are."""
    credentials = DIGEST if hold else None
    async with session(zookeeper_chroot, credentials) as zk:
        await fill(zk)
        for path, data in ((own.ROOT, b""), (own.LOCKS, b""), (own.ROLE, own.encode(own.RoleFlag("regent")))):
            await zk.create(path, data)
        if hold:
            await close(zk, paths.CONTROLLER_EPOCH, LOCK)
        lines = [line.replace("PASSWORD", "secret") for line in shell_lines("regent" if hold else None)]
        output = await typed(zookeeper_chroot, lines)
        assert "Node does not exist: /controller" in output, output
        node = await zk.get(own.ROLE)
        assert node is not None
        assert own.decode_role(node.data).holder == "brokers"
        assert (await zk.get_acls(paths.CONTROLLER_EPOCH))[0] == list(OPEN)


async def typed(connect: str, lines: list[str]) -> str:
    """What the shell says to lines on its standard input."""
    command = java_command(["-Xmx64m"], "org.apache.zookeeper.ZooKeeperMain", "-server", connect)
    shell = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(shell.communicate("\n".join([*lines, "quit", ""]).encode()), SHELL_S_MAX)
    return said.decode(errors="replace")
