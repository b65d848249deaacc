"""Daemon and servers of the example service are replaced by those of this revision, in both orders, without a loss.

All of them are processes, on a store that the earlier revision has made. They come from the history of this clone.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import pytest

from cli.demo.regions_process import KvServer, RegionsProcess
from examples.kv.client import Client
from metadata_store.catalog.sqlite_schema import VERSION
from testing.embedded.process import poll
from tests.verify.former import Revision, unpacked

TABLE: Final = "t"
NAMES: Final = ("kv-1", "kv-2", "kv-3")
REGIONS: Final = 12
KEYS: Final = 240
WITHIN_S: Final = 120.0


class Daemon(RegionsProcess):
    """A daemon of one revision, then of another one, with the same folder and port."""

    def become(self, revision: Revision) -> None:
        """Has the next start run a revision."""
        self._command = [*revision.command, "run", "--config", str(self.config)]


class Server(KvServer):
    """A server of a revision."""

    def __init__(self, name: str, folder: Path, daemon: Daemon, revision: Revision) -> None:
        super().__init__(name, folder, daemon)
        self._command[:1] = revision.python


class Upgraded:
    """One daemon and three servers, each of one revision and then of the other."""

    def __init__(self, folder: Path, revisions: dict[str, Revision]) -> None:
        self._folder = folder
        self._revisions = revisions
        self.daemon = Daemon(folder, {"regions.servers_min": 2})
        self.daemon.become(revisions["former"])
        self.servers = {name: Server(name, folder, self.daemon, revisions["former"]) for name in NAMES}
        self.client = Client([("127.0.0.1", self.daemon.port)], timeout_s=WITHIN_S)
        self.written: dict[bytes, bytes] = {}

    async def begin(self) -> None:
        """Starts all, and creates a table."""
        await self.daemon.boot(WITHIN_S)
        for server in self.servers.values():
            await server.boot(WITHIN_S)
        await self.daemon.create(TABLE, uniform=REGIONS)
        await self.opened()

    async def replace_daemon(self) -> None:
        """Kills the daemon; one of this revision goes on, and brings the store to its own form."""
        await self.daemon.kill()
        assert self._store_version() == 0
        self.daemon.become(self._revisions["present"])
        await self.daemon.boot(WITHIN_S)
        await self.opened()
        assert self._store_version() == VERSION

    def _store_version(self) -> int:
        with closing(sqlite3.connect(self._folder / "state" / "regions.db")) as db:
            return int(db.execute("PRAGMA user_version").fetchone()[0])

    async def replace_servers(self) -> None:
        """Kills one server after the other, while clients write; one of this revision takes its place."""
        for name in NAMES:
            await self.servers[name].kill()
            await self.write(name)
            self.servers[name] = Server(name, self._folder, self.daemon, self._revisions["present"])
            await self.servers[name].boot(WITHIN_S)
            await self.opened()

    async def write(self, word: str) -> None:
        """Writes into all regions."""
        for number in range(KEYS):
            key = b"%08x" % (number * (2**32 // KEYS))
            await self.client.put(TABLE, key, value := f"{word} {number}".encode())
            self.written[key] = value

    async def check(self) -> None:
        """Reads all that was acknowledged."""
        found = {key: entry async for key, entry in self.client.scan(TABLE)}
        assert {key: entry.value for key, entry in found.items()} == self.written

    async def owners(self) -> dict[int, tuple[Any, ...]]:
        """Returns the owner and token of each region."""
        listed = await self.daemon.regions(TABLE)
        return {one["id"]: (one["server"], one["incarnation"], one["token"]) for one in listed}

    async def opened(self) -> None:
        """Waits until all regions are open."""

        async def are_open() -> bool:
            return await self.daemon.are_open(TABLE)

        assert await poll(are_open, WITHIN_S)

    async def end(self) -> None:
        """Ends all processes."""
        await self.client.close()
        for process in (*self.servers.values(), self.daemon):
            await process.kill()


@asynccontextmanager
async def upgraded(revisions: dict[str, Revision]) -> AsyncIterator[Upgraded]:
    """Runs the earlier revision; its folder has a short path, for a socket's has at most 96 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="regent-upgrade-"))
    stage = Upgraded(folder, revisions)
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
@pytest.mark.timeout(900)
@pytest.mark.parametrize("order", ["daemon first", "servers first"])
async def test_daemon_and_servers_are_replaced_in_any_order(revisions: dict[str, Revision], order: str) -> None:
    async with upgraded(revisions) as stage:
        await stage.write("before")
        if order == "daemon first":
            before = await stage.owners()
            await stage.replace_daemon()
            assert await stage.owners() == before, "regions stay where they are, under their tokens"
            await stage.check()
            await stage.replace_servers()
        else:
            await stage.replace_servers()
            await stage.check()
            before = await stage.owners()
            await stage.replace_daemon()
            assert await stage.owners() == before
        await stage.write("after")
        await stage.check()
