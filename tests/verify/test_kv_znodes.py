"""Servers of the example service that answer by znodes of a real ZooKeeper, with an identity of their own there."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.demo.regions_process import KvServer, RegionsProcess
from examples.kv.client import Client
from metadata_store.acl import digest_id
from metadata_store.catalog.unassigned import folder_of, marks_of
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.own import REGIONS
from metadata_store.port import Stat
from testing.embedded.zookeeper import EmbeddedZooKeeper
from tests.kit.deadlines import eventually

LEASE_MS = 40_000
"""Longer than a session of ZooKeeper: a frozen server loses that, and not its regions."""
SESSION_MS = 5_000
TABLE = "t"
KEYS = (b"alice", b"mary", b"zoe")
OPEN_S = 90.0


class Cluster:
    """ZooKeeper, a daemon with an identity, and servers with another one."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper = EmbeddedZooKeeper(folder / "zookeeper", tick_ms=500, session_ms_max=SESSION_MS)
        for name, secret in (("daemon", "regent:secret"), ("servers", "kv:own")):
            (folder / name).write_text(secret + "\n")
        settings = {
            "zookeeper.digest_file": str(folder / "daemon"),
            "regions.servers_identity": f"digest:{digest_id('kv', 'own')}",
            "regions.lease_ms": LEASE_MS,
            "regions.servers_min": 3,
        }
        self.daemon = RegionsProcess(folder / "regent", settings, self.zookeeper.connect)
        identity = "--zookeeper-digest-file", str(folder / "servers")
        self.servers = {name: KvServer(name, folder, self.daemon, identity) for name in ("kv-1", "kv-2", "kv-3")}
        self.client = Client([("127.0.0.1", self.daemon.port)], timeout_s=OPEN_S)
        self.zk = KazooZooKeeper(self.zookeeper.connect, session_timeout_ms=SESSION_MS)

    async def boot(self) -> None:
        await self.zookeeper.boot()
        await self.zk.connect(10.0)
        await self.daemon.boot()
        for server in self.servers.values():
            await server.boot()
        await self.daemon.create(TABLE, splits=["g", "n"])

    async def kill(self) -> None:
        await self.client.close()
        await self.zk.close()
        for process in (*self.servers.values(), self.daemon, self.zookeeper):
            await process.kill()

    async def open(self) -> list[dict[str, Any]]:
        """Waits until all regions are open; returns them."""
        await eventually(lambda: self.daemon.are_open(TABLE), within_s=OPEN_S)
        return await self.daemon.regions(TABLE)

    async def move(self, region: int, to: str) -> None:
        found = await self.daemon.done(f"/v1/regions/{region}/move", {"server": to})
        assert found["state"] == "success", found
        assert {one["id"]: one["server"] for one in await self.open()}[region] == to

    async def stat(self, path: str) -> Stat:
        await self.zk.sync()
        found = await self.zk.exists(path)
        assert found is not None
        return found

    async def written(self, value: bytes) -> None:
        """Writes all keys, and reads the table."""
        for key in KEYS:
            await self.client.put(TABLE, key, value)
        assert [(key, entry.value) async for key, entry in self.client.scan(TABLE)] == [(key, value) for key in KEYS]


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="regent-kv-") as folder:  # the path of a socket has at most 96 bytes
        found = Cluster(Path(folder))
        try:
            await found.boot()
            yield found
        finally:
            await found.kill()


def session_of(server: KvServer) -> str:
    """Returns the latest session of a server, as its log names it."""
    return str(re.findall(r"ZooKeeper session (0x[0-9a-f]+) begins", server.log_text())[-1])


@pytest.mark.timeout(600)
async def test_regions_are_opened_moved_split_and_recovered_by_znodes() -> None:
    async with cluster() as kv:
        assert (await kv.stat(marks_of(REGIONS))).pzxid > (await kv.stat(marks_of(REGIONS))).czxid, "servers made marks"
        await kv.written(b"begin")
        first = (await kv.open())[0]
        to = next(name for name in kv.servers if name != first["server"])
        before = await kv.stat(folder_of(REGIONS))
        await kv.move(first["id"], to)
        assert (await kv.stat(folder_of(REGIONS))).pzxid > before.pzxid
        await kv.written(b"moved")
        split = await kv.daemon.done(f"/v1/regions/{first['id']}/split", {"key": "c"})
        assert (split["state"], len(await kv.open())) == ("success", 4)
        await kv.written(b"split")

        victim = kv.servers[(await kv.open())[0]["server"]]
        await victim.kill()
        await kv.written(b"killed")
        assert victim.name not in {one["server"] for one in await kv.open()}
        assert (await kv.daemon.metric("regent_region_node_faults_total")).get('{cause="refused"}', 0) == 0


@pytest.mark.timeout(600)
async def test_a_server_that_was_frozen_past_its_session_gets_a_new_one_and_moves_regions_again() -> None:
    async with cluster() as kv:
        await kv.written(b"begin")
        first = (await kv.open())[0]
        frozen, to = kv.servers[first["server"]], next(name for name in kv.servers if name != first["server"])
        session = session_of(frozen)
        frozen.pause()

        async def is_over() -> bool:
            text = await kv.zookeeper.query("dump")
            return "Sessions" in text and session not in text

        await eventually(is_over, within_s=60)
        frozen.resume()
        await eventually(lambda: session_of(frozen) != session, within_s=60)
        assert frozen.log_has("the ZooKeeper session has ended")
        await kv.move(first["id"], to)
        await kv.move(first["id"], frozen.name)
        assert frozen.running
        await kv.written(b"end")
        assert not frozen.log_has("is reported"), "its closes were told by znodes of the new session"
