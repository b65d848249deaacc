"""A daemon's regions in this process with a real ZooKeeper as their store, and servers beside it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.regions.agents import Written
from benchmarks.regions.world import LEASE_MS, NODE_TIMEOUT_MS, Child, MeasuredRegions, module, world
from benchmarks.servers import BenchmarkZooKeeper
from controller.regions.claim import Opened, Opening
from controller.regions.transport.nodes import Nodes
from controller.regions.zookeeper_store import ZooKeeperOpened
from metadata_store.kazoo_adapter import KazooZooKeeper
from state_machines.regions.unassigned import Node

HEAP_MB: Final = 1_024
SESSION_MS: Final = 60_000
CONNECT_S: Final = 30.0


class Store:
    """A ZooKeeper whose daemons and servers have a new chroot in each round. ``written``: counts znodes of daemons."""

    def __init__(self, zookeeper: BenchmarkZooKeeper, zk: KazooZooKeeper) -> None:
        self._zookeeper, self._zk = zookeeper, zk
        self._numbers = count(1)
        self.written = Written()
        self._nodes: Nodes | None = None

    def nodes(self) -> list[Node | None]:
        """Returns the znodes of regions in transition that the daemon knows; None: one that cannot be read."""
        return [] if self._nodes is None else [one.node for one in self._nodes.known.values()]

    async def chroot(self) -> int:
        """Makes the next chroot."""
        number = next(self._numbers)
        await self._zk.create(f"/{number}", None)
        return number

    async def transactions(self) -> int:
        """Returns how many transactions ZooKeeper has had: a multi is one, however many znodes it writes."""
        found = re.search(r"^Zxid: (0x[0-9a-f]+)$", await self._zookeeper.query("srvr"), re.MULTILINE)
        assert found is not None
        return int(found[1], 16)

    def address(self, chroot: int) -> str:
        """Returns the connect string of a chroot."""
        return f"{self._zookeeper.connect}/{chroot}"

    @asynccontextmanager
    async def daemon(
        self,
        folder: Path,
        chroot: int,
        *,
        noded: bool,
        servers_min: int,
        port: int = 0,
        node_timeout_ms: int = NODE_TIMEOUT_MS,
        lease_ms: int = LEASE_MS,
        fence: str = "lease",
    ) -> AsyncIterator[MeasuredRegions]:
        """Runs a daemon on this store. ``folder``: of its journal."""

        async def opening(attempt: Opening) -> Opened:
            opened = await ZooKeeperOpened.open(lambda: self._session(chroot), attempt, lease_ms=lease_ms, noded=noded)
            self._nodes = opened.nodes
            return opened

        running = world(
            folder,
            opening=opening,
            servers_min=servers_min,
            port=port,
            lease_ms=lease_ms,
            fence=fence,
            node_timeout_ms=node_timeout_ms,
        )
        async with running as found:
            yield found

    def _session(self, chroot: int) -> KazooZooKeeper:
        zk = KazooZooKeeper(self.address(chroot), session_timeout_ms=SESSION_MS)
        zk.hooks = self.written
        return zk

    def servers(
        self, port: int, servers: int, chroot: int, *, noded: bool, held: bool = False
    ) -> AbstractAsyncContextManager[Child]:
        """Runs servers, see :mod:`benchmarks.regions.agents`."""
        return module("agents", port, servers, self._zookeeper.port if noded else 0, chroot, int(held))


@asynccontextmanager
async def store(folder: Path) -> AsyncIterator[Store]:
    """Runs a ZooKeeper."""
    zookeeper = BenchmarkZooKeeper(folder, HEAP_MB)
    zk = KazooZooKeeper(zookeeper.connect, session_timeout_ms=SESSION_MS)
    try:
        await zookeeper.boot()
        await zk.connect(CONNECT_S)
        yield Store(zookeeper, zk)
    finally:
        await zk.close()
        await zookeeper.kill()
