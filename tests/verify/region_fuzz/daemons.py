"""Daemons on one of the three stores: two processes on SQLite or ZooKeeper, or one in this process, in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Protocol

import httpx

from cli.demo.regions_process import RegionsProcess
from controller.domain import create_app, running
from controller.http.server import serving
from controller.metrics import registry
from controller.regions.claim import Opened, Opening
from controller.regions.metrics import RegionsCollector
from controller.regions.operator.view import View
from controller.regions.process import domain_of
from controller.regions.transport.nodes import Nodes
from metadata_store.catalog.rows import Catalog
from metadata_store.records.claims import Holder
from metadata_store.records.port import RecordStore, StoreFailed
from regent_agent.connection import Address
from testing.embedded.process import free_port
from testing.embedded.zookeeper import EmbeddedZooKeeper
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.daemon import settings_of

LEASE_MS: Final = 3_000
ANSWER_S_MAX: Final = 20.0
FREEZE_S_MAX: Final = 6.0
ENDED: Final = re.compile(r"regions: the term ends(?!.*session of the regions' domain is over).*")
"""Lines about terms that ended, unless a frozen daemon lost its session with ZooKeeper."""


class Response(Exception):
    """A response that is no success. ``status``: of HTTP; ``text``: the refusal and its remedy."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status, self.text = status, text


class Away(Exception):
    """No daemon is active, or it died meanwhile."""


class Daemons(Protocol):
    """Daemons of one domain."""

    def addresses(self) -> list[Address]:
        """Returns where agents reach them."""
        ...

    async def start(self) -> None:
        """Starts what does not run."""
        ...

    async def fault(self, chance: random.Random) -> str:
        """Kills or freezes a daemon; returns the name of the fault. :meth:`start` ends it."""
        ...

    async def sockets(self) -> list[Path]:
        """Returns the unix sockets of daemons that run."""
        ...

    def ended_terms(self) -> list[str]:
        """Returns lines about terms that ended by faults."""
        ...

    async def stop(self) -> None:
        """Ends all."""
        ...


async def call(daemons: Daemons, method: str, path: str, **request: Any) -> dict[str, Any]:
    """Sends a request to the active daemon; raises :class:`Response` and :class:`Away`."""
    away = "no daemon runs"
    for path_of_socket in await daemons.sockets():
        transport = httpx.AsyncHTTPTransport(uds=str(path_of_socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://regent", timeout=ANSWER_S_MAX) as client:
            try:
                [status] = (await client.get("/v1/regions")).json()["items"]
                if status["mode"] != "active":
                    away = f"{status['mode']}: {status['why']}"
                    continue
                found = await client.request(method, path, **request)
            except (httpx.HTTPError, ValueError) as error:
                away = f"{type(error).__name__}: {error}"
                continue
        if found.is_success:
            return dict(found.json())
        if found.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            raise Response(found.status_code, found.text)
        away = found.text
    raise Away(away)


class Processes:
    """Two daemons, each a process."""

    def __init__(self, folder: Path, store: str, fence: str, settings: Mapping[str, object]) -> None:
        self._zookeeper = EmbeddedZooKeeper(folder / "zookeeper") if store == "zookeeper" else None
        where: dict[str, object] = {"regions.store": store}
        if self._zookeeper is not None:
            where |= {"zookeeper.connect": self._zookeeper.connect, "zookeeper.session_timeout_ms": 4_000}
        else:
            where["regions.file"] = str(folder / "regions.db")
        base = {
            **where,
            "regions.fence": fence,
            "regions.lease_ms": LEASE_MS,
            "controller.loop_stall_ms_max": 1_900,
            **settings,
        }
        self._all = [
            RegionsProcess(folder / name, {**base, "controller.id": 1_000_000 + n}) for n, name in ((1, "a"), (2, "b"))
        ]
        self._frozen: set[RegionsProcess] = set()

    def addresses(self) -> list[Address]:
        """Returns the addresses of both."""
        return [("127.0.0.1", one.port) for one in self._all]

    async def start(self) -> None:
        """Starts the daemons that do not run, and has frozen ones go on."""
        if self._zookeeper is not None and not self._zookeeper.running:
            await self._zookeeper.boot()
        for one in self._frozen:
            one.resume()
        self._frozen.clear()
        for one in self._all:
            if not one.running:
                await one.start(_responds(one))

    async def fault(self, chance: random.Random) -> str:
        """Kills one daemon or both, or freezes one for a while."""
        victim = chance.choice(self._all)
        drawn = chance.choice(["kill of a daemon", "kill of a daemon", "kill of both daemons", "freeze of a daemon"])
        if drawn == "freeze of a daemon" and victim.running:
            self._frozen.add(victim)
            victim.pause()
            await asyncio.sleep(chance.random() * FREEZE_S_MAX)
            victim.resume()
            self._frozen.discard(victim)
        else:
            for one in self._all if drawn == "kill of both daemons" else [victim]:
                await one.kill()
        return drawn

    async def sockets(self) -> list[Path]:
        """Returns the sockets of those that run."""
        return [one.socket for one in self._all if one.running]

    def ended_terms(self) -> list[str]:
        """Returns lines of both logs."""
        logs = [one.log.read_text(errors="replace") for one in self._all if one.log.exists()]
        return [line for log in logs for line in ENDED.findall(log)]

    async def stop(self) -> None:
        """Kills all."""
        for one in self._all:
            await one.kill()
        if self._zookeeper is not None:
            await self._zookeeper.kill()


def _responds(daemon: RegionsProcess) -> Any:
    async def responds() -> bool:
        return await daemon.status() is not None

    return responds


class MemoryOpened:
    """A store in memory, as a domain opens it."""

    def __init__(self, disk: RegionDisk) -> None:
        store = MemoryRegionStore(disk)
        self.store: RecordStore = store
        self.catalog: Catalog = store
        self.epoch = store.epoch
        self.nodes: Nodes | None = None

    def leads(self) -> bool:
        """Returns True: there is one daemon."""
        return True

    def look(self) -> asyncio.Event:
        """Returns what is set: nothing is to be looked at."""
        over = asyncio.Event()
        over.set()
        return over

    def suspended(self) -> str:
        return ""

    def complaint(self) -> str:
        return ""

    async def daemons(self) -> Sequence[Holder]:
        return ()

    async def lost(self) -> None:
        """Waits for ever."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Does nothing: the disk outlives daemons."""


class InProcess:
    """One daemon of this process, on a disk in memory; a kill ends it wherever it is."""

    def __init__(self, folder: Path, fence: str, settings: Mapping[str, object]) -> None:
        self._disk = RegionDisk()
        own = {name.partition(".")[2]: value for name, value in settings.items() if name.startswith("regions.")}
        self._port = free_port()
        self._settings = settings_of(folder, port=self._port, lease_ms=LEASE_MS, fence=fence, **own)
        self._life: AsyncExitStack | None = None
        self._domain: asyncio.Future[None] | None = None
        self._ended: list[str] = []

    def addresses(self) -> list[Address]:
        """Returns its address."""
        return [("127.0.0.1", self._port)]

    async def start(self) -> None:
        """Starts a daemon where none runs; one whose start is broken off, as a round ends, has not begun."""
        if self._life is not None:
            return
        async with AsyncExitStack() as life:
            await self._begin(life)
            self._life = life.pop_all()

    async def _begin(self, life: AsyncExitStack) -> None:
        domain = domain_of(self._settings, None)

        async def opened(_: Opening) -> Opened:
            return MemoryOpened(self._disk)

        domain._open = opened
        become = domain._become

        def became(mode: Any, why: str) -> None:
            if mode == "failing":
                self._ended.append(why)
            become(mode, why)

        domain._become = became  # type: ignore[method-assign]
        view = View(domain, self._settings)
        app = create_app([view], registry(RegionsCollector(domain.counters, view.region_gauges)))
        await life.enter_async_context(serving(app, self._settings.http))
        (self._domain,) = await life.enter_async_context(running(domain))

    async def fault(self, chance: random.Random) -> str:
        """Kills the daemon."""
        await asyncio.sleep(chance.random() * 0.1)
        await self.stop()
        return "kill of a daemon"

    async def sockets(self) -> list[Path]:
        """Returns its socket."""
        return [self._settings.http.socket] if self._life is not None else []

    def ended_terms(self) -> list[str]:
        """Returns reasons of terms that ended by faults."""
        return list(self._ended)

    async def stop(self) -> None:
        """Ends it."""
        life, self._life = self._life, None
        if life is not None:
            with contextlib.suppress(StoreFailed):
                await life.aclose()
