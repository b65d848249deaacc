"""Linked lists are written while two daemons and three servers become those of this revision, go back, and again.

The daemons have one store in ZooKeeper, which keeps its level meanwhile. It is raised at the end, and a region split.
The earlier revision comes from the history of this clone.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from cli.demo.regions_process import KvServer, RegionsProcess
from examples.kv.client import Client
from testing.embedded.process import ChildProcess, poll
from testing.embedded.zookeeper import EmbeddedZooKeeper
from tests.verify.former import Revision, unpacked
from tests.verify.region_lists.nodes import TABLE, WAVES, Plan, splits
from tests.verify.region_lists.verification import Verification

PLAN: Final = Plan(200_000, 400.0, 2)
"""At this rate the nodes take longer than all replacements."""
NAMES: Final = ("kv-1", "kv-2", "kv-3")
WITHIN_S: Final = 300.0
ENDED_S_MAX: Final = 1_800.0
SEED: Final = 7


class Daemon(RegionsProcess):
    """A daemon of one revision at a time, with the same folder and port."""

    def become(self, revision: Revision) -> None:
        """Has the next start run a revision."""
        self._command = [*revision.command, "run", "--config", str(self.config)]


class Server(KvServer):
    """A server of a revision, which knows both daemons."""

    def __init__(self, name: str, folder: Path, daemons: list[Daemon], revision: Revision) -> None:
        super().__init__(name, folder, daemons[0])
        self._command[:1] = revision.python
        self._command[self._command.index("--daemons") + 1] = _addresses(daemons)


class Stage:
    """Runs all processes, and prints each replacement with its time."""

    def __init__(self, folder: Path, revisions: dict[str, Revision]) -> None:
        self._folder, self._revisions = folder, revisions
        self._zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        settings = {
            "regions.store": "zookeeper",
            "regions.servers_min": 2,
            "zookeeper.connect": self._zookeeper.connect,
            "zookeeper.session_timeout_ms": 6_000,
            "controller.loop_stall_ms_max": 2_900,
        }
        self.daemons = [
            Daemon(folder / name, {**settings, "controller.id": 1_000_000 + n}) for n, name in ((1, "a"), (2, "b"))
        ]
        for one in self.daemons:
            one.become(revisions["former"])
        self.servers = {name: Server(name, folder, self.daemons, revisions["former"]) for name in NAMES}
        self.writers: list[ChildProcess] = []
        self.client = Client([("127.0.0.1", one.port) for one in self.daemons], timeout_s=WITHIN_S)
        self._began_s = time.monotonic()

    async def begin(self) -> None:
        """Starts all processes, creates the table, and has writers write."""
        await self._zookeeper.boot()
        for daemon in self.daemons:
            await self._boot(daemon)
        for server in self.servers.values():
            await server.boot(WITHIN_S)
        await (await self.active()).create(TABLE, splits=splits())
        await self.opened()
        for number in range(PLAN.writers):
            command = [*self._revisions["present"].python, "-m", "tests.verify.region_lists.writer"]
            command += ["--number", str(number), "--daemons", _addresses(self.daemons), "--seed", str(SEED)]
            command += ["--nodes", str(PLAN.nodes), "--rate", str(PLAN.rate), "--writers", str(PLAN.writers)]
            command += ["--notes", str(self.notes(number))]
            writer = ChildProcess(f"writer {number}", command, self._folder / f"writer-{number}.log")
            self.writers.append(writer)
            await writer.start(_at_once)

    def notes(self, number: int) -> Path:
        """Returns the file with the notes of a writer."""
        return self._folder / f"writer-{number}.notes"

    async def active(self) -> Daemon:
        """Returns the daemon that has the store, once one has it."""
        found: list[Daemon] = []

        async def is_active() -> bool:
            for one in self.daemons:
                status = await one.status() if one.running else None
                if status is not None and status["mode"] == "active":
                    found.append(one)
            return bool(found)

        assert await poll(is_active, WITHIN_S), [one.log_tail() for one in self.daemons]
        return found[-1]

    async def opened(self) -> None:
        """Waits until all regions are open."""

        async def are_open() -> bool:
            return await (await self.active()).are_open(TABLE)

        assert await poll(are_open, WITHIN_S), (await self.active()).log_tail()

    async def replace_servers(self, to: str, *, kills: bool) -> None:
        """Ends one server after the other, by a kill or in order; one of another revision takes its place."""
        for name in NAMES:
            await (self.servers[name].kill() if kills else self.servers[name].stop())
            self.servers[name] = Server(name, self._folder, self.daemons, self._revisions[to])
            await self.servers[name].boot(WITHIN_S)
            await self.opened()
            self._tell(f"{name} is {to}")

    async def replace_daemons(self, to: str, *, kills: bool) -> None:
        """Ends one daemon after the other, the active one first."""
        first = await self.active()
        for daemon in sorted(self.daemons, key=lambda one: one is not first):
            await (daemon.kill() if kills else daemon.stop())
            daemon.become(self._revisions[to])
            await self._boot(daemon)
            await self.opened()
            self._tell(f"daemon {daemon.folder.name} is {to}")

    async def finish(self) -> None:
        """Waits until all writers have ended."""
        for writer in self.writers:
            assert await writer.ended(ENDED_S_MAX), writer.log_tail()
            assert writer.exit_code == 0, writer.log_tail()

    async def end(self) -> None:
        """Kills all."""
        await self.client.close()
        for process in (*self.writers, *self.servers.values(), *self.daemons, self._zookeeper):
            await process.kill()

    async def _boot(self, daemon: Daemon) -> None:
        async def responds() -> bool:
            return await daemon.status() is not None

        await daemon.start(responds, WITHIN_S)

    def _tell(self, what: str) -> None:
        writing = sum(one.running for one in self.writers)
        print(f"{time.monotonic() - self._began_s:8.1f} s  {what}, {writing} writers write")
        assert writing == PLAN.writers, "the writers were done before the last replacement: they have to write longer"


def _addresses(daemons: list[Daemon]) -> str:
    return ",".join(f"127.0.0.1:{one.port}" for one in daemons)


async def _at_once() -> bool:
    return True


@asynccontextmanager
async def staged(revisions: dict[str, Revision]) -> AsyncIterator[Stage]:
    """Runs the former revision; its folder has a short path, for a socket's has at most 96 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="regent-upgrade-"))
    stage = Stage(folder, revisions)
    try:
        await stage.begin()
        yield stage
    finally:
        await stage.end()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def revisions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Revision]:
    """Both revisions, by name."""
    return unpacked(tmp_path_factory.mktemp("former"))


@pytest.mark.seed("S1-18", "S1-97", "S3-19")
@pytest.mark.timeout(2 * ENDED_S_MAX)
async def test_no_node_is_lost_while_all_processes_are_upgraded_go_back_and_are_upgraded_again(
    revisions: dict[str, Revision],
) -> None:
    async with staged(revisions) as stage:
        await stage.replace_daemons("present", kills=False)
        await stage.replace_servers("present", kills=True)
        await stage.replace_servers("former", kills=False)
        await stage.replace_daemons("former", kills=True)
        await stage.replace_servers("present", kills=False)
        await stage.replace_daemons("present", kills=False)
        daemon = await stage.active()
        region = (await daemon.regions(TABLE))[0]["id"]
        with pytest.raises(httpx.HTTPStatusError) as refused:
            await daemon.done(f"/v1/regions/{region}/split", {})
        assert "level 2" in refused.value.response.text
        raised = await daemon.done("/v1/regions/upgrade", {"reason": "all are upgraded"})
        assert raised["state"] == "success", raised
        split = await daemon.done(f"/v1/regions/{region}/split", {})
        assert split["state"] == "success", split
        await stage.finish()
        await stage.opened()
        verification = Verification(stage.notes(number) for number in range(PLAN.writers))
        await verification.run(stage.client)
        print(f"{verification.nodes} nodes, {verification.repeated} batches repeated, {dict(verification.faults)}")
        assert not verification.faults, "\n".join(verification.shown)
        assert verification.nodes == PLAN.writers * PLAN.lists * WAVES * PLAN.width
