"""Plays ``regent demo regions``: servers and their daemon die, regions are split and merged, and no row is lost."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
from rich.console import Console
from rich.markup import escape

from cli.demo.region_load import PERIOD_S, RegionLoad
from cli.demo.regions_process import KvServer, RegionsProcess
from cli.demo.telling import DemoFailed, Stage, Telling
from examples.kv.server import LEFT
from regent_agent.protocol import NODES
from testing.embedded.process import ChildProcess
from testing.embedded.zookeeper import EmbeddedZooKeeper

TABLE: Final = "orders"
REGIONS: Final = 60
HOT: Final = "clicks"
"""A table that begins with one region, and gets more as rows come."""
HOT_WORKERS: Final = 30
ROW_BYTES: Final = 1_000
SPLIT_BYTES: Final = 256 * 1024
GROWN: Final = 4
REST_MS: Final = 1_000
"""Time for which a region rests that a split has made; the default is 10 minutes."""
FLOWING_S: Final = 1.0
"""Longest wait of a call once regions are served again."""
SHOWN: Final = 10


class RegionsStory(Telling):
    """Plays the steps on running servers and prints them."""

    def __init__(self, console: Console, regent: RegionsProcess, servers: Mapping[str, KvServer]) -> None:
        super().__init__(console, regent)
        self._regent = regent
        self._servers = servers

    async def play(self) -> bool:
        """Plays the whole story; returns whether it ended well."""
        took_s = await self._regent.boot()
        store = "in ZooKeeper" if self._regent.zookeeper else "a file"
        self.line(f"regent assigns regions, {took_s:.1f} s after the daemon's start; its store is {store}")
        for server in self._servers.values():
            await server.boot()
        self.line(f"{len(self._servers)} servers of the example service (examples/kv) have registered")
        took_s = await self._created(TABLE, uniform=REGIONS)
        self.line(
            f"table '{TABLE}' has {REGIONS} regions, open {took_s:.1f} s after the request: {await self._spread()}"
        )
        await self._created(HOT, options={"regent.split_size_bytes": str(SPLIT_BYTES)})
        well = await self._loaded(RegionLoad(self._address, TABLE, REGIONS), self._steps)
        well = await self._loaded(RegionLoad(self._address, HOT, HOT_WORKERS, ROW_BYTES), self._grown) and well
        self.line(await self._transport())
        return self.judged() and well

    async def _transport(self) -> str:
        """Says how servers answered, by what they have told the daemon and what it reads."""
        servers = (await self._regent.get("/v1/regions/servers"))["items"]
        noded = sum(NODES in one["features"] for one in servers if one["state"] == "online")
        if not self._regent.zookeeper:
            return 'servers answered by reports (regions.transport = "poll")'
        return f'{noded} servers answered by znodes (regions.transport = [bold]"zookeeper"[/])'

    @property
    def _address(self) -> tuple[str, int]:
        return "127.0.0.1", self._regent.port

    async def _loaded(self, load: RegionLoad, steps: Callable[[RegionLoad], Awaitable[None]]) -> bool:
        """Plays steps while rows are written and read; returns whether no row is lost, and no read was wrong."""
        try:
            async with load.running():
                await steps(load)
            lost = await load.lost()
        finally:
            await load.client.close()
        self.line(
            f"{len(load.acknowledged)} rows acknowledged, [bold]{len(lost)} lost[/]; "
            f"{load.reads} reads, [bold]{len(load.wrong)} wrong[/]"
        )
        for text in [*map(repr, lost[:SHOWN]), *load.wrong[:SHOWN]]:
            self.line(f"[red]{escape(text)}[/]")
        return not lost and not load.wrong

    async def _created(self, table: str, **layout: object) -> float:
        began = time.monotonic()
        try:
            await self._regent.create(table, **layout)
        except httpx.HTTPError as error:
            raise DemoFailed(f"table '{table}' is not created: {error}\n{self._regent.log_tail()}") from error
        return time.monotonic() - began

    async def _steps(self, load: RegionLoad) -> None:
        """Plays deaths and a planned restart, each printed when all regions are served again."""
        self.line(f"{REGIONS / PERIOD_S:.0f} rows a second are written and read from now on, in all regions")
        _, victim, leaver = self._servers.values()
        async with self._step(load) as report:
            had = await self._count(victim)
            await victim.kill()
            took_s = await self.until(lambda: self._taken_over(victim), f"the regions of {victim.name} are elsewhere")
            report(
                f"{victim.name} was killed (kill -9): another server fenced and split its log, and its {had} regions "
                f"are open elsewhere {took_s:.1f} s after the kill"
            )
        async with self._step(load) as report:
            took_s = await victim.boot()
            report(
                f"{victim.name} is back as a new incarnation, {took_s:.1f} s after its start: {await self._spread()}"
            )
        async with self._step(load) as report:
            await self._regent.kill()
            down_s = await self._regent.boot()
            epoch = (await self._regent.status() or {}).get("epoch")
            report(
                f"regent itself was killed (kill -9) and restarted: it assigns regions again after {down_s:.1f} s, at "
                f"epoch {epoch}; servers and clients went on"
            )
        async with self._step(load) as report:
            had = await self._count(leaver)
            took_s = await leaver.stop()
            how = "it ended" if leaver.exit_code == LEFT else f"it ended with {leaver.exit_code}"
            await self._all_open()
            report(
                f"{leaver.name} was stopped (SIGTERM): its {had} regions moved beforehand, {how} after {took_s:.1f} s"
            )
        async with self._step(load) as report:
            took_s = await leaver.boot()
            report(f"{leaver.name} is back, {took_s:.1f} s after its start: {await self._spread()}")

    async def _grown(self, load: RegionLoad) -> None:
        """Has one region take all rows of a table until regent has split it, and what it became, again and again."""
        self.line(
            f"table '{HOT}' has one region: {HOT_WORKERS / PERIOD_S:.0f} rows of {ROW_BYTES} bytes are written into it "
            f"a second, and from {SPLIT_BYTES // 1024} KB on regent splits a region by itself"
        )
        async with self._step(load) as report:
            took_s = await self.until(self._has_grown, f"table '{HOT}' has {GROWN} regions")
            report(f"table '{HOT}' has {GROWN} regions after {took_s:.1f} s: {await self._spread(HOT)}; no call failed")
        async with self._step(load) as report:
            low, high = (await self._regent.regions(HOT))[:2]
            await self._regent.done("/v1/regions/merge", {"regions": [low["id"], high["id"]]})
            report(f"regions {low['id']} and {high['id']} are merged on request ('regent regions merge')")

    async def _has_grown(self) -> bool:
        return len(await self._regent.regions(HOT)) >= GROWN and await self._regent.are_open(HOT)

    @asynccontextmanager
    async def _step(self, load: RegionLoad) -> AsyncIterator[Callable[[str], None]]:
        lines: list[str] = []
        load.take(FLOWING_S)
        yield lines.append

        async def flows() -> bool:
            return load.flows(FLOWING_S)

        await self.until(flows, "rows are written and read at once again")
        wait = load.take(FLOWING_S)
        for text in lines:
            self.line(
                f"{text} [dim](longest wait {wait.longest_s:.2f} s; {wait.ranges} of {wait.of} ranges of keys waited "
                f"for longer than {FLOWING_S:g} s)[/]"
            )

    async def _all_open(self) -> float:
        return await self.until(lambda: self._regent.are_open(TABLE), f"all regions of table '{TABLE}' are open")

    async def _taken_over(self, server: KvServer) -> bool:
        return await self._regent.are_open(TABLE) and not await self._count(server)

    async def _count(self, server: KvServer) -> int:
        return sum(region["server"] == server.name for region in await self._regent.regions(TABLE))

    async def _spread(self, table: str = TABLE) -> str:
        """Says how many regions of a table each server has."""
        had = Counter(region["server"] for region in await self._regent.regions(table))
        return ", ".join(f"{name} has {had[name]}" for name in self._servers)


SERVERS: Final = 3


@asynccontextmanager
async def on_regions(console: Console, *, noded: bool = False) -> AsyncIterator[Stage]:
    """Holds the processes; where the block fails, their folder stays, and the exception names it.

    ``noded``: servers answer by znodes of a ZooKeeper that is one of the processes.
    """
    logging.getLogger("regent_agent").setLevel(logging.ERROR)  # it warns while the daemon is down
    folder = Path(tempfile.mkdtemp(prefix="regent-"))
    processes: list[ChildProcess] = []

    async def stay() -> None:
        _print_addresses(console, folder, regent)
        await asyncio.Event().wait()

    kept = False
    try:
        connect = None
        if noded:
            processes.append(zookeeper := EmbeddedZooKeeper(folder / "zookeeper"))
            await zookeeper.boot()
            connect = zookeeper.connect
        regent = RegionsProcess(folder / "regent", {"regions.split_rest_ms": REST_MS}, connect)
        servers = {f"kv-{number}": KvServer(f"kv-{number}", folder, regent) for number in range(1, SERVERS + 1)}
        processes += [regent, *servers.values()]
        yield Stage(RegionsStory(console, regent, servers), "all processes", stay)
    except Exception as error:
        error.add_note(f"the logs of all processes are kept in {folder}")
        kept = True
        raise
    finally:
        await asyncio.gather(*(process.kill() for process in processes))
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _print_addresses(console: Console, folder: Path, regent: RegionsProcess) -> None:
    console.print("Left up until Ctrl-C, which removes all of it, the logs too:")
    for name, value in (
        ("regent", f".venv/bin/regent --config {regent.config} regions list --table {TABLE}"),
        *((("ZooKeeper", regent.zookeeper),) if regent.zookeeper else ()),
        ("rows", f".venv/bin/python -m examples.kv.client --daemons 127.0.0.1:{regent.port} --table {TABLE} scan"),
        ("logs", str(folder)),
    ):
        console.print(f"  {name:<10} {value}", soft_wrap=True)
