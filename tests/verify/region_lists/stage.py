"""Runs a daemon, servers of the example service, and writers, each a process of its own with a log.

Where servers answer by znodes, an ensemble of ZooKeeper runs besides.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from cli.demo.regions_process import KvServer, RegionsProcess
from examples.kv.client import Client
from metadata_store.catalog.unassigned import folder_of, marks_of
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.own import REGIONS as ROOT
from testing.embedded.process import ChildProcess, poll
from testing.embedded.zookeeper import EmbeddedZooKeeper, ensemble, in_sync
from tests.verify.region_lists.nodes import TABLE, Plan, splits

SERVERS: Final = 4
LEASE_MS: Final = 4_000
STALL_MS_MAX: Final = 3_000
"""A daemon that was frozen for longer ends its process."""
START_S_MAX: Final = 180.0
OPEN_S_MAX: Final = 900.0
"""Longest wait for open regions; a slow machine reads and writes 5 million nodes in it."""
ZOOKEEPERS: Final = 3
ENSEMBLE: Final = {"tick_ms": 500, "session_ms_max": 20_000}
SESSION_MS: Final = 8_000
"""Longer than an election of the ensemble, and than two stalls of the daemon."""
SIDE: Final = "side"
"""A table that is disabled and enabled again and again."""
SIDE_ROWS: Final = 200
SETTINGS: Final = {
    "regions.lease_ms": LEASE_MS,
    "regions.servers_min": 2,
    "regions.startup_wait_ms": 5_000,
    "regions.balancer_period_ms": 30_000,
    "regions.balancer_joins_ms": 3_000,
    "controller.loop_stall_ms_max": STALL_MS_MAX,
}


class Stage:
    """Holds the processes. ``folder``: of logs and notes; data is elsewhere, and is removed at a good end.

    ``zookeepers``: the ensemble where servers answer by znodes; none where they report.
    """

    def __init__(self, folder: Path, short: Path, *, noded: bool = False) -> None:
        self.folder = folder
        self.zookeepers: list[EmbeddedZooKeeper] = []
        settings, connect = dict[str, object](SETTINGS), None
        if noded:
            self.zookeepers = ensemble(short / "zookeeper", ZOOKEEPERS, **ENSEMBLE)
            connect = ",".join(one.connect for one in self.zookeepers)
            settings["zookeeper.session_timeout_ms"] = SESSION_MS
        self.daemon = RegionsProcess(short, settings, connect)
        self.data = short / "data"
        self._short = short
        self.servers = {f"kv-{n}": KvServer(f"kv-{n}", short, self.daemon) for n in range(1, SERVERS + 1)}
        self._replaced: list[KvServer] = []
        self.writers: list[ChildProcess] = []
        self.client = Client([("127.0.0.1", self.daemon.port)], timeout_s=OPEN_S_MAX)

    async def start(self) -> None:
        """Starts the daemon and all servers, and creates both tables."""
        await self.start_zookeepers()
        await self.daemon.boot(START_S_MAX)
        await self.start_servers()
        await self.daemon.create(TABLE, splits=splits())
        await self.daemon.create(SIDE, splits=list("12345678"))
        await self.all_open(TABLE, SIDE)
        await self.client.put_many(SIDE, {b"%08d" % (n * 1_234_567 % 10**8): b"%d" % n for n in range(SIDE_ROWS)})

    async def start_zookeepers(self) -> None:
        """Starts the servers of the ensemble that do not run, and waits until any single one may go."""
        await asyncio.gather(*(one.boot() for one in self.zookeepers if not one.running))
        if self.zookeepers:
            assert await poll(lambda: in_sync(self.zookeepers), START_S_MAX), "the ensemble is not in sync"

    async def start_servers(self) -> None:
        """Starts all servers that do not run."""
        await asyncio.gather(*(server.boot(START_S_MAX) for server in self.servers.values() if not server.running))

    def replace(self, server: KvServer) -> KvServer:
        """Returns a new process of a server, which is not started yet; the old one may live."""
        self._replaced.append(server)
        new = self.servers[server.name] = KvServer(server.name, self._short, self.daemon)
        return new

    async def all_open(self, *tables: str, within_s: float = OPEN_S_MAX) -> None:
        """Waits until all regions of tables are open."""

        async def are_open() -> bool:
            return all([await self.daemon.are_open(table) for table in tables])

        assert await poll(are_open, within_s), f"not open within {within_s:g} s: {await self.not_open()}"

    async def enable(self, table: str) -> None:
        """Enables a table, which may be enabled, or in the middle of a change that has to end before."""

        async def is_enabled() -> bool:
            begun = await self.act(f"/v1/regions/tables/{table}/enable", {})
            return begun is not None or await self.daemon.are_open(table)

        assert await poll(is_enabled, OPEN_S_MAX), f"table {table} is not enabled within {OPEN_S_MAX:g} s"

    async def all_discarded(self) -> None:
        """Waits until each heir is independent, and nothing is left of the regions that were split or merged."""

        async def are_discarded() -> bool:
            return not (await self.daemon.get("/v1/regions/parents"))["items"]

        assert await poll(are_discarded, OPEN_S_MAX), await self.daemon.get("/v1/regions/parents")
        live = {str(one["id"]) for table in (TABLE, SIDE) for one in await self.daemon.regions(table)}
        assert {path.parent.name for path in self.data.glob("regions/*/*.sqlite")} == live

    async def znodes(self) -> tuple[list[str], bool]:
        """Returns the znodes of regions that are left, and whether a server has ever answered by one."""
        zk = KazooZooKeeper(str(self.daemon.zookeeper), session_timeout_ms=SESSION_MS)
        await zk.connect(START_S_MAX)
        try:
            names, _ = await zk.children(folder_of(ROOT)) or ((), None)
            marks = await zk.exists(marks_of(ROOT))
            return list(names), marks is not None and marks.pzxid > marks.czxid
        finally:
            await zk.close()

    async def not_open(self) -> list[dict[str, Any]]:
        """Returns the regions in transition."""
        return list((await self.daemon.get("/v1/regions/transitions"))["items"])

    async def start_writers(self, plan: Plan, seed: int) -> None:
        """Starts all writers."""
        for number in range(plan.writers):
            command = [sys.executable, "-m", "tests.verify.region_lists.writer", "--number", str(number)]
            command += ["--daemons", f"127.0.0.1:{self.daemon.port}", "--seed", str(seed), "--nodes", str(plan.nodes)]
            command += ["--rate", str(plan.rate), "--writers", str(plan.writers)]
            command += ["--notes", str(self.notes(number))]
            writer = ChildProcess(f"writer {number}", command, self.folder / f"writer-{number}.log")
            self.writers.append(writer)
            await writer.start(_at_once)

    async def all_write(self) -> None:
        """Waits until each writer has noted a batch: before that it needs the daemon for each region."""

        async def noted() -> bool:
            notes = [self.notes(number) for number in range(len(self.writers))]
            return all(one.exists() and one.stat().st_size for one in notes)

        assert await poll(noted, START_S_MAX), [writer.log_tail() for writer in self.writers]

    def notes(self, number: int) -> Path:
        """Returns the file with the notes of a writer."""
        return self.folder / f"writer-{number}.notes"

    async def kill_all(self) -> None:
        """Kills every process."""
        processes = [self.daemon, *self.servers.values(), *self._replaced, *self.writers, *self.zookeepers]
        await asyncio.gather(*(process.kill() for process in processes))

    async def act(self, path: str, body: dict[str, object]) -> dict[str, Any] | None:
        """Requests a change; returns its procedure, None where the daemon refuses or does not respond."""
        try:
            [found] = (await self.daemon.post(path, body))["items"]
        except httpx.HTTPError:
            return None
        return dict(found)


async def _at_once() -> bool:
    return True


def _keep(short: Path, folder: Path, *, well: bool) -> None:
    """Keeps logs and the daemon's files; where the run failed, all data and the writers' notes, too."""
    for log in short.glob("*.log"):
        shutil.copy(log, folder)
    for log in short.glob("zookeeper/*/zookeeper.log"):
        shutil.copy(log, folder / f"zookeeper-{log.parent.name}.log")
    for name in ("state",) if well else ("state", "data"):
        if (short / name).exists():
            shutil.move(short / name, folder)
    for notes in folder.glob("*.notes") if well else ():
        notes.unlink()
    shutil.rmtree(short)


@asynccontextmanager
async def staged(folder: Path, *, noded: bool = False) -> AsyncIterator[Stage]:
    """Runs a stage inside the block; logs of all processes stay in ``folder``. ``noded``: servers answer by znodes."""
    short = Path(tempfile.mkdtemp(prefix="regent-lists-"))  # the path of a socket has at most 96 bytes
    stage = Stage(folder, short, noded=noded)
    well = False
    try:
        await stage.start()
        yield stage
        well = True
    finally:
        await stage.client.close()
        await stage.kill_all()
        _keep(short, folder, well=well)
