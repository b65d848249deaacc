"""Measures real servers (A1r): key-value servers of ``examples/kv``, beside whole clusters of HBase."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from benchmarks.regions import hbase
from benchmarks.regions.assigning import DELAY_MS
from benchmarks.regions.plan import ROUNDS, Shape, disk, goal
from benchmarks.regions.world import TABLE, MeasuredRegions, world
from benchmarks.results import Row, Sample
from controller.regions.procedures.messages import TableTask
from testing.embedded.process import ProcessFailed

SHAPE: Final = Shape(1_000, 3)
WARM_UP: Final = 100
"""Regions of the table before the rounds."""
CHANGES: Final = ("create", "disable", "enable")


class Rival(NamedTuple):
    """A cluster of HBase. ``label``: the end of the case's name. ``by_zookeeper``: how its regions are assigned."""

    label: str
    version: hbase.Version
    by_zookeeper: bool

    def __str__(self) -> str:
        return f"{self.version.name}, assignment by ZooKeeper" if self.by_zookeeper else self.version.name


RIVALS: Final = (
    Rival("", hbase.NEW, by_zookeeper=False),
    Rival(" 1.7", hbase.OLD, by_zookeeper=False),
    Rival(" 1.7 zk", hbase.OLD, by_zookeeper=True),
)

Rates = dict[str, list[float]]
"""Regions per second of each change, one for each round."""


class Clusters:
    """HBase's clusters. Each plays its rounds once, for all cases that are set beside it."""

    def __init__(self, shape: Shape = SHAPE, rounds: int = ROUNDS) -> None:
        self._shape, self._rounds = shape, rounds
        self._rates: dict[Rival, Rates] = {}

    async def rates(self, rival: Rival) -> Rates:
        """Returns the rates of a cluster."""
        if rival not in self._rates:
            with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as name:
                self._rates[rival] = await _theirs(rival, Path(name), self._shape, self._rounds)
        return self._rates[rival]


async def compared(shape: Shape = SHAPE, rounds: int = ROUNDS, *, clusters: Clusters | None) -> list[Row]:
    """A1r: a table is created, disabled and enabled; one contestant after the other."""
    what = "regions by real servers"
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as name:
        ours = await _ours(Path(name), shape, rounds)
    if clusters is None:
        return rows("A1r", what, shape, ours, None, None)
    made: list[Row] = []
    for rival in RIVALS:
        made += rows("A1r", what, shape, ours, rival, await clusters.rates(rival))
    return made


def rows(case: str, what: str, shape: Shape, ours: Rates, rival: Rival | None, theirs: Rates | None) -> list[Row]:
    """Returns the rows of all changes. ``theirs``: those of the rival."""
    return [_row(case, f"{what}: {change}", shape, change, ours, rival, theirs) for change in CHANGES]


def _row(
    case: str, what: str, shape: Shape, change: str, ours: Rates, rival: Rival | None, theirs: Rates | None
) -> Row:
    return Row(
        f"{case}{rival.label if rival else ''} {change}",
        str(shape),
        what,
        "per second",
        Sample.of(ours[change]),
        Sample.of(theirs[change]) if theirs else None,
        goal(case, shape),
        higher_is_better=True,
        peer_is=str(rival) if rival else "-",
    )


async def _ours(folder: Path, shape: Shape, rounds: int) -> Rates:
    async with world(folder, servers_min=shape.servers, fence="log") as found, AsyncExitStack() as stack:
        for number in range(shape.servers):
            await stack.enter_async_context(kv_server(f"kv-{number}", folder / "data", found.port))
        await found.until(shape.servers)
        return await rates_of("A1r regent", found, shape, rounds)


async def rates_of(name: str, found: MeasuredRegions, shape: Shape, rounds: int) -> Rates:
    """Returns the rates of a daemon with servers, after a table for the warm-up."""
    rates: Rates = {change: [] for change in CHANGES}
    await _played(found, WARM_UP)
    for _ in range(rounds):
        for change, took_s in (await _played(found, shape.regions)).items():
            rates[change].append(shape.regions / took_s)
        _say(name, rates)
    return rates


async def _played(found: MeasuredRegions, regions: int) -> dict[str, float]:
    took_s: dict[str, float] = {}
    for change in CHANGES:
        began_s = time.perf_counter()
        await found.change(f"{change}_table", TableTask(TABLE, uniform=regions if change == "create" else 0))
        took_s[change] = time.perf_counter() - began_s
    for change in ("disable", "delete"):
        await found.change(f"{change}_table", TableTask(TABLE))
    return took_s


@asynccontextmanager
async def kv_server(name: str, data: Path, port: int, *options: str) -> AsyncIterator[None]:
    """Runs a server process; it has registered once the block begins."""
    command = (sys.executable, "-m", "examples.kv.server", "--name", name, "--data", str(data))
    log = data.with_name(f"{name}.log")
    with log.open("w") as out:
        process = await asyncio.create_subprocess_exec(
            *command, "--daemons", f"127.0.0.1:{port}", *options, stdout=asyncio.subprocess.PIPE, stderr=out
        )
    try:
        assert process.stdout is not None
        if not await process.stdout.readline():
            raise ProcessFailed(f"{name} ended\n{log.read_text()[-2_000:]}")
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _theirs(rival: Rival, folder: Path, shape: Shape, rounds: int) -> Rates:
    by_zookeeper = str(rival.by_zookeeper).lower()
    program = hbase.cluster_of(rival.version)
    async with hbase.running(program, folder, shape.servers, DELAY_MS, by_zookeeper) as cluster:
        await cluster.play(WARM_UP)
        rates: Rates = {change: [] for change in CHANGES}
        for _ in range(rounds):
            found = await cluster.play(shape.regions)
            for change in CHANGES:
                rates[change].append(shape.regions / found[change])
            _say(f"A1r {rival}", rates)
    return rates


def _say(contestant: str, rates: Rates) -> None:
    say(f"{contestant}: " + ", ".join(f"{change} {found[-1]:,.0f}/s" for change, found in rates.items()))
