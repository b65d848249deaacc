"""What servers with an identity of their own may do: move the znodes of regions, and nothing else of the domain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.process.zookeeper import own_acls
from controller.regions.procedures import assign, close, move
from controller.regions.procedures.messages import MOVE, TRANSIT, Move, Transit
from controller.regions.transport.found import Found
from controller.regions.transport.nodes import Nodes
from controller.regions.zookeeper_claim import ROOT
from metadata_store.acl import ALL, CREATE, DELETE, READ, WRITE, Acl, digest_acl, digest_id
from metadata_store.catalog.answers import OWN
from metadata_store.catalog.unassigned import (
    encode,
    folder_of,
    mark_of,
    marks_of,
    path_of,
    server_path,
    servers_of,
)
from metadata_store.errors import Code
from metadata_store.fencing.outcome import Fence
from metadata_store.port import ANY_VERSION
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState
from state_machines.regions.unassigned import Node, NodeState
from tests.contracts.regions_transports import COUNT, created
from tests.contracts.support import ALL_READ, Backend, Session, refused, session
from tests.kit.deadlines import eventually
from tests.kit.kafka.role import changed, settings_for
from tests.kit.regions.transports import OPTIONS, TransportsWorld, world

DAEMON, SERVERS = "regent:secret", "kv:own"
MINE, THEIRS = digest_acl("regent", "secret"), f"digest:{digest_id('kv', 'own')}"
LOCK = {MINE, ALL_READ}
PATIENT = msgspec.structs.replace(OPTIONS, lease_ms=3_000, node_timeout_ms=60_000)
"""Nothing is taken from a server for being slow."""
FREE = 9_000
"""A region that no story has."""


def options(folder: Path, identity: str | None = THEIRS) -> dict[str, Any]:
    """Returns what the sessions of a daemon have. ``identity``: of servers, by the settings."""
    settings = changed(settings_for(folder, digest=DAEMON), "regions", servers_identity=identity)
    return {"credentials": DAEMON, "own_acls": own_acls(settings)}


@asynccontextmanager
async def closed_world(backend: Backend, folder: Path) -> AsyncIterator[TransportsWorld]:
    """Runs a daemon whose domain is closed, and two servers with an identity of their own."""
    daemons, servers = partial(backend.client, **options(folder)), partial(backend.client, credentials=SERVERS)
    async with world(daemons, "s1", "s2", noded=True, options=PATIENT, of_servers=servers) as w:
        yield w


async def lists(s: Session, *paths: str) -> Mapping[str, set[Any]]:
    """Reads lists as one sees them who may administer the znodes."""
    await s.zk.sync()
    return {path: {*(await s.zk.get_acls(path))[0]} for path in paths}


class RightsContract:
    """Runs on a ``backend``."""

    async def test_servers_with_an_identity_of_their_own_open_move_and_close(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        async with closed_world(backend, tmp_path) as w:
            owners = await created(w)
            region, other = sorted(one for one, name in owners.items() if name == "s1")[:2]
            assert (await w.run(move.NAME, MOVE.encode(Move(region, "t", "s2")))).state is State.SUCCESS
            assert (await w.settled(COUNT))[region] == "s2"
            await w.run(close.NAME, TRANSIT.encode(Transit(region, "t")))
            await w.settled(COUNT - 1)
            await w.run(assign.NAME, TRANSIT.encode(Transit(region, "t")))
            await w.settled(COUNT)
            w.members["s1"].held[other] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(other, "t", "s2"))))

            async def is_closing() -> bool:
                found = (await w.nodes()).get(other)
                return found is not None and found.state is NodeState.CLOSING

            await eventually(is_closing)
            theirs = Acl(READ | WRITE, "digest", "kv:x")
            assert (await w.zk.get_acls(path_of(ROOT, other)))[0] == [theirs, ALL_READ], "the server has created it"
            await w.kill("s1")
            assert (await moving).state is State.SUCCESS, "the daemon forces away what a dead server has created"
            assert set((await w.settled(COUNT)).values()) == {"s2"}
            assert not w.faults

    async def test_a_server_may_move_regions_and_is_refused_all_else(self, backend: Backend, tmp_path: Path) -> None:
        async with closed_world(backend, tmp_path) as w, session(backend, credentials=SERVERS) as s:
            owners = await created(w)
            region, free = min(owners), path_of(ROOT, FREE)
            bucket = (await s.names(f"{ROOT}/regions"))[0]
            row = f"{ROOT}/regions/{bucket}/{(await s.names(f'{ROOT}/regions/{bucket}'))[0]}"
            record = f"{ROOT}/procedures/0000099999"
            for path in (f"{ROOT}/epoch", f"{ROOT}/daemon", f"{ROOT}/procedures", f"{ROOT}/tables/t", row):
                await refused(s.zk.set(path, b"9", ANY_VERSION), Code.NO_AUTH, path)
            for path in (record, f"{ROOT}/servers/s9,1", f"{ROOT}/regions/{bucket}/x", f"{ROOT}/x"):
                await refused(s.zk.create(path, b""), Code.NO_AUTH, path)
            for path in (row, f"{ROOT}/daemon", f"{ROOT}/tables/t", f"{ROOT}/servers/s1,1"):
                await refused(s.zk.delete(path, ANY_VERSION), Code.NO_AUTH, path)
            for path in (folder_of(ROOT), marks_of(ROOT)):
                await refused(s.zk.set(path, b"9", ANY_VERSION), Code.NO_AUTH, path)
                await refused(s.zk.set_acls(path, [ALL_READ], ANY_VERSION), Code.NO_AUTH, path)
                await refused(s.zk.delete(path, ANY_VERSION), Code.NO_AUTH, path)

            holds = w.members["s2"].held[region] = w.members["s1"].held[region] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(region, "t"))))
            await eventually(lambda: w.term.env.model.regions[region].state is RegionState.CLOSING)
            await eventually(lambda: self._is_there(s, path_of(ROOT, region)))
            await refused(s.zk.delete(path_of(ROOT, region), ANY_VERSION), Code.NO_AUTH, path_of(ROOT, region))
            await refused(
                s.zk.set_acls(path_of(ROOT, region), [ALL_READ], ANY_VERSION), Code.NO_AUTH, path_of(ROOT, region)
            )
            holds.set()
            await moving
            await s.zk.create(free, b"no node")
            await refused(s.zk.delete(free, ANY_VERSION), Code.NO_AUTH, free)
            await s.zk.set(free, b"1", ANY_VERSION)
            await s.zk.create(mark_of(ROOT, FREE, 1), b"", ephemeral=True)
            await s.zk.delete(mark_of(ROOT, FREE, 1), ANY_VERSION)
            await w.zk.delete(free, ANY_VERSION)
            await w.settled(COUNT)

    async def _is_there(self, s: Session, path: str) -> bool:
        return await s.zk.exists(path) is not None

    async def test_a_term_gives_folders_of_before_the_rights_that_the_settings_name(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        """A daemon without the key made them; with it servers move what is there; and without it they do not."""
        offline = encode(Node(NodeState.OFFLINE, FREE, 1, 1, "s9", 1))
        async with session(backend, **options(tmp_path, None)) as s, session(backend, credentials=SERVERS) as server:
            for identity in (None, THEIRS, None):
                given = partial(backend.client, **options(tmp_path, identity))
                async with world(given, noded=True, options=PATIENT):
                    paths = folder_of(ROOT), marks_of(ROOT), path_of(ROOT, FREE), servers_of(ROOT)
                    if await s.zk.exists(paths[2]) is None:
                        await s.zk.create(paths[2], offline)
                        await s.zk.create(server_path(ROOT, "s9", 1), None, ephemeral=True)  # the next is a failover
                    found = await lists(s, *paths)
                    theirs = [{one.perms for one in found[path] - LOCK} for path in paths]
                    wanted = [{CREATE}, {CREATE | DELETE}, {READ | WRITE}, {CREATE | DELETE}]
                    wanted = wanted if identity else [set() for _ in paths]
                    assert (theirs, all(found[path] >= LOCK for path in paths)) == (wanted, True)
                    await server.zk.sync()
                    if identity is None:
                        await refused(server.zk.set(paths[2], offline, ANY_VERSION), Code.NO_AUTH, paths[2])
                    else:
                        await server.zk.set(paths[2], offline, ANY_VERSION)

    async def test_a_write_of_a_server_that_is_late_does_not_meet_the_znode_that_came_instead(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        path, epoch = path_of(ROOT, FREE), f"{ROOT}/epoch"

        async def connected() -> None:
            pass

        async with session(backend, **options(tmp_path)) as s, session(backend, credentials=SERVERS) as server:
            for parent in ("/regent", ROOT, epoch):
                await s.zk.create(parent, b"")
            nodes = Nodes(s.zk, Fence(0, path=epoch), ROOT, connected)
            await nodes.begin()
            closing = Node(NodeState.CLOSING, FREE, 1, 1, "s1", 1)
            await server.zk.create(path, encode(closing), acl=OWN)
            nodes.follow(FREE)
            keeping, done = asyncio.ensure_future(nodes.keep()), asyncio.Event()
            await eventually(lambda: FREE in nodes.known)
            offline = closing._replace(state=NodeState.OFFLINE, token=2, server="s2")
            nodes.want(FREE, offline, done.set)
            await done.wait()
            closed = encode(closing._replace(state=NodeState.CLOSED))
            await refused(server.zk.set(path, closed, 0), Code.BAD_VERSION, path)
            assert (await server.data(path), nodes.known[FREE]) == (encode(offline), Found(offline, 1))
            await server.zk.set(path, encode(offline._replace(state=NodeState.OPENING)), 1)
            keeping.cancel()
            await asyncio.wait({keeping})

    async def test_a_folder_that_the_daemon_may_not_change_is_named(
        self, backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with session(backend, **options(tmp_path)) as s:
            for path in ("/regent", ROOT):
                await s.zk.create(path, b"")
            await s.zk.create(folder_of(ROOT), b"", acl=[digest_acl("ops", "theirs", ALL), ALL_READ])
        async with world(partial(backend.client, **options(tmp_path)), noded=True):
            assert any(
                f"{folder_of(ROOT)} has an ACL that this daemon may not change" in one.getMessage()
                for one in caplog.records
            )
