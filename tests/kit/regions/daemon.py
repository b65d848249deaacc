"""A daemon for regions alone, with its surface on a unix socket, and servers of a service that opens at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import uvloop

from configs.loading import load
from configs.settings import Settings
from controller.domain import create_app, running
from controller.http.server import serving
from controller.metrics import registry
from controller.regions.domain import RegionsDomain
from controller.regions.metrics import RegionsCollector
from controller.regions.operator.view import View
from controller.regions.process import domain_of
from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.protocol import INHERIT, PUBLISH, SPLIT_KEY, WORKS, RegionLoad
from regent_agent.service import OpenedRegion, RegionService
from tests.kit.deadlines import eventually

T = TypeVar("T")
COMPACT = "x-compact"
"""Work of the service's own."""


class Opens(RegionService):
    """A service whose regions open and close at once. ``broken``: regions that it cannot open.

    ``sizes``: bytes of regions. ``keys``: at which they are split.
    """

    def __init__(self) -> None:
        self.broken: set[int] = set()
        self.opened: list[OpenedRegion] = []
        self.sizes: dict[int, int] = {}
        self.keys: dict[int, bytes] = {}

    async def open(self, region: OpenedRegion) -> int:
        if region.region in self.broken:
            raise OSError("its file is broken")
        self.opened.append(region)
        return region.sequence + 1

    async def close(self, region: OpenedRegion) -> None:
        """Closes it."""

    def loads(self) -> list[RegionLoad]:
        """Returns the loads of regions whose size the test has set."""
        return [RegionLoad(region, size_bytes=size) for region, size in self.sizes.items()]

    async def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        if data == b"fail":
            raise OSError("no room")
        if what == SPLIT_KEY and region is not None and region.region in self.keys:
            return self.keys[region.region]
        return b"%s of %d" % (what.encode(), 0 if region is None else region.region)


def settings_of(folder: Path, **regions: object) -> Settings:
    """Returns the settings of a daemon for regions alone; it balances nothing by itself unless ``regions`` say so."""
    wanted = {"host": "127.0.0.1", "port": 0, "lease_ms": 3_000, "delay_ms": 5, "balancer_period_ms": 0, **regions}
    environ = {f"REGENT_REGIONS__{name.upper()}": str(value) for name, value in wanted.items()}
    environ |= {"REGENT_STATE__DIRECTORY": str(folder), "REGENT_HTTP__SOCKET": str(folder / "run" / "regent.sock")}
    return load(environ=environ, kafka_optional=True).settings


class RegionsWorld:
    """One daemon, and its servers by name."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.domain: RegionsDomain = domain_of(settings, None)
        self.view = View(self.domain, settings)
        self.services: dict[str, Opens] = {}
        self.agents: dict[str, Agent] = {}
        self.loop = asyncio.get_running_loop()

    async def start(self, name: str, incarnation: int = 1) -> Agent:
        """Starts a process of a server; returns once it has registered."""
        service = self.services.setdefault(name, Opens())
        address = ("127.0.0.1", self.domain.listener.port)
        options = AgentOptions(
            daemons=(address,),
            server=name,
            address=f"{name}:7000",
            software="test 1",
            incarnation=incarnation,
            features=(INHERIT, PUBLISH, COMPACT, *sorted(WORKS)),
        )
        agent = Agent(service, options, load=lambda: {"requests": 7}, region_loads=service.loads)
        self.agents[name] = agent
        await agent.start()
        return agent

    async def kill(self, name: str) -> None:
        """Ends a process of a server at once."""
        await self.agents.pop(name).stop()


@asynccontextmanager
async def regions_world(settings: Settings, servers: int = 2) -> AsyncIterator[RegionsWorld]:
    """Runs a daemon that is active, and servers s1, s2 and so on."""
    world = RegionsWorld(settings)
    metrics = registry(RegionsCollector(world.domain.counters, world.view.region_gauges))
    app = create_app([world.view], metrics)
    async with serving(app, settings.http), running(world.domain):
        await eventually(lambda: world.domain.term is not None)
        for number in range(1, servers + 1):
            await world.start(f"s{number}")
        try:
            yield world
        finally:
            for agent in world.agents.values():
                await agent.stop()


class Blocking:
    """A world in a thread of its own, for the blocking ``regent`` command."""

    def __init__(self, world: RegionsWorld) -> None:
        self.world = world

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the world's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.world.loop).result(60)

    @property
    def socket(self) -> Path:
        return self.world.settings.http.socket


@contextmanager
def world_in_thread(settings: Settings, servers: int = 2) -> Iterator[Blocking]:
    """Runs a world in a thread."""
    serves, over, found = Event(), Event(), list[Blocking]()

    async def serve() -> None:
        async with regions_world(settings, servers) as world:
            found.append(Blocking(world))
            serves.set()
            await asyncio.to_thread(over.wait)

    thread = Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    try:
        assert serves.wait(60)
        yield found[0]
    finally:
        over.set()
        thread.join(60)
