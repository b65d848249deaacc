"""The cases: assignment in bulk, the crash of a server, a failover of the daemon, memory."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from benchmarks.arena import say
from benchmarks.procfs import rss_mb
from benchmarks.regions.world import TABLE, World, followers, servers, until, world
from benchmarks.results import Goal, Row, Sample
from controller.regions.procedures.messages import TRANSIT, TableTask, Transit
from metadata_store.catalog.rows import NewRegions, Owner, PutServer, PutTable, RegionRow, ServerRow, TableRow
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.sqlite import SqliteRecords
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from state_machines.regions.layout import ranges
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState
from testing.embedded.process import free_port

LAG_MS_MAX: Final = 250
GOALS: Final = {
    "A1": Goal(least=10_000),
    "A1 lag": Goal(most=LAG_MS_MAX),
    "A2": Goal(most=2.0),
    "A2 lag": Goal(most=LAG_MS_MAX),
    "A3 100,000": Goal(most=2.0),
    "A3 1,000,000": Goal(most=15.0),
    "A4": Goal(most=600.0),
    "A5": Goal(most=2.0),
}
ROUNDS: Final = 3
CRASHED: Final = 10_000
SURVIVORS: Final = 20
FOLLOWED: Final = 5_000
FOLLOWED_SERVERS: Final = 20
FOLLOWERS: Final = (0, 500, 2_000)
QUIET_S: Final = 1.0
"""Time in which connections of followers come to rest."""
CHUNK: Final = 5_000


class Shape(NamedTuple):
    """Regions and the servers that they are assigned to."""

    regions: int
    servers: int

    def __str__(self) -> str:
        return f"{self.regions:,} on {self.servers}"


def _row(case: str, size: str, what: str, unit: str, values: Sequence[float], goal: Goal, *, higher: bool) -> Row:
    return Row(case, size, what, unit, Sample.of(values), goal=goal, higher_is_better=higher, peer_is="-")


async def assigned(shape: Shape, rounds: int = ROUNDS) -> list[Row]:
    """A1: a table is created and all its regions opened, each with its durable steps."""
    rates: list[float] = []
    lags: list[float] = []
    cpus: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="regions-", dir=_disk()) as folder:
            async with world(Path(folder), servers_min=shape.servers) as found:
                with servers(found.port, shape.servers):
                    await found.until(shape.servers)
                    found.lag.take_ms()
                    began_s, cpu_s = time.perf_counter(), time.process_time()
                    await found.create(shape.regions)
                    rates.append(shape.regions / (time.perf_counter() - began_s))
                    cpus.append((time.process_time() - cpu_s) / shape.regions * 1e6)
                    lags.append(found.lag.take_ms())
                    say(f"A1 {shape}: {rates[-1]:,.0f} regions/s, lag {lags[-1]:.0f} ms")
    size = str(shape)
    rate = _row("A1", size, "regions assigned, each step durable", "per second", rates, GOALS["A1"], higher=True)
    rate.phases["regent"] = {"us of CPU for a region": sorted(cpus)[len(cpus) // 2]}
    return [
        rate,
        _row("A1 lag", size, "longest stall of the loop meanwhile, ms", "ms", lags, GOALS["A1 lag"], higher=False),
    ]


async def crashed(rounds: int = ROUNDS) -> list[Row]:
    """A2: the process of a server with many regions is killed; from its fence until all are open elsewhere."""
    times: list[float] = []
    lags: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="regions-", dir=_disk()) as folder:
            async with world(Path(folder)) as found:
                with servers(found.port, 1) as victim:
                    await found.until(1)
                    await found.create(CRASHED)
                    with servers(found.port, SURVIVORS, 1):
                        await found.until(SURVIVORS + 1)
                        victim.kill()
                        found.lag.take_ms()
                        times.append(await _recovered(found))
                        lags.append(found.lag.take_ms())
                        say(f"A2: {times[-1]:.2f} s after the fence, lag {lags[-1]:.0f} ms")
    size = f"{CRASHED:,} on {SURVIVORS}"
    return [
        _row(
            "A2",
            size,
            "regions of a killed server, from its fence until open elsewhere, s",
            "s",
            times,
            GOALS["A2"],
            higher=False,
        ),
        _row("A2 lag", size, "longest stall of the loop meanwhile, ms", "ms", lags, GOALS["A2 lag"], higher=False),
    ]


async def _recovered(found: World) -> float:
    model = found.term.env.model
    victim = next(one for one in model.servers.values() if one.name == "s0")
    await until(lambda: victim.state is ServerState.FENCED)
    began_s = time.perf_counter()
    await until(lambda: victim.key not in model.servers)
    took_s = time.perf_counter() - began_s
    if any(one.state is not RegionState.OPEN for one in model.regions.values()):
        raise RuntimeError("the crash was dealt with, and regions are not open")
    return took_s


async def failed_over(shape: Shape, rounds: int = ROUNDS) -> list[Row]:
    """A3: a daemon opens the store of another one, and its servers come; until it sends the operation under way."""
    with tempfile.TemporaryDirectory(prefix="regions-", dir=_disk()) as name:
        await _stored(Path(name) / "first.db", shape)
        await _pending(Path(name) / "first.db")
        times: list[float] = []
        lags: list[float] = []
        for number in range(rounds):
            folder = Path(name) / str(number)
            folder.mkdir()
            shutil.copy(Path(name) / "first.db", folder / "regions.db")
            port = free_port()
            with servers(port, shape.servers, stored=shape.regions):
                began_s = time.perf_counter()
                async with world(folder, port=port) as found:
                    await until(lambda: found.term.env.dispatcher.sent)
                    times.append(time.perf_counter() - began_s)
                    lags.append(found.lag.take_ms())
                    say(f"A3 {shape}: {times[-1]:.2f} s, lag {lags[-1]:.0f} ms")
    goal = GOALS.get(f"A3 {shape.regions:,}", Goal())
    return [
        _row(
            "A3",
            str(shape),
            "failover of the daemon until the first operation is sent, s",
            "s",
            times,
            goal,
            higher=False,
        ),
        _row(
            "A3 lag", str(shape), "longest stall of the loop meanwhile, ms", "ms", lags, GOALS["A1 lag"], higher=False
        ),
    ]


async def _stored(path: Path, shape: Shape) -> None:
    """Writes a catalog whose regions are open, and one region that is not."""
    store = await SqliteRecords.open(path, SqliteCatalog())
    names = [f"s{number}" for number in range(shape.servers)]
    await store.write((), (), [PutServer(ServerRow(name, 1, f"{name}:1")) for name in names])
    await store.write((), (), [PutTable(TableRow(TABLE, TableKind.USER, TableState.ENABLED))])
    for first in range(0, shape.regions, CHUNK):
        some = range(first, min(first + CHUNK, shape.regions))
        keys = ranges((), shape.regions, first)
        rows = tuple(
            RegionRow(one + 1, TABLE, start, end, RegionState.OFFLINE)
            for one, (start, end) in zip(some, keys, strict=False)
        )
        owners = [Owner(one + 1, RegionState.OPEN, names[one % shape.servers], 1, one + 1, 1) for one in some]
        await store.write((), (), [NewRegions(rows), *owners])
    await store.close()


async def _pending(path: Path) -> None:
    """Leaves an assignment of the first region under way."""
    store = await SqliteRecords.open(path, SqliteCatalog())
    pid = await store.reserve(1)
    record = Record(pid, "assign", State.RUNNABLE, 0, 1, 1, data=TRANSIT.encode(Transit(1, TABLE)), caller=Caller("b"))
    await store.write([record], (), [Owner(1, RegionState.CLOSED, "", 0, 1, 1)])
    await store.close()


async def followed(rounds: int = ROUNDS) -> list[Row]:
    """A5: all regions of a table are assigned while clients follow their routes, and without clients."""
    with tempfile.TemporaryDirectory(prefix="regions-", dir=_disk()) as folder:
        async with world(Path(folder), servers_min=FOLLOWED_SERVERS) as found:
            with servers(found.port, FOLLOWED_SERVERS):
                await found.until(FOLLOWED_SERVERS)
                await found.create(FOLLOWED)
                measured = {count: [await _enabled(found, count) for _ in range(rounds)] for count in FOLLOWERS}
    alone_s = Sample.of([one.cpu_s for one in measured[0]]).median
    rows: list[Row] = []
    for count in FOLLOWERS[1:]:
        size = f"{FOLLOWED:,}, {count:,} followers"
        lags = [one.lag_ms for one in measured[count]]
        parts = [one.cpu_s / alone_s for one in measured[count]]
        row = _row(
            "A5", size, "CPU of the daemon, as a multiple of that without", "times", parts, GOALS["A5"], higher=False
        )
        row.phases["regent"] = {
            "ms of CPU without followers": alone_s * 1_000,
            "ms until all followers have all routes": Sample.of([one.told_s for one in measured[count]]).median * 1_000,
        }
        what = "longest stall of the loop meanwhile, ms"
        rows += [row, _row("A5 lag", size, what, "ms", lags, GOALS["A1 lag"], higher=False)]
    return rows


class Followed(NamedTuple):
    """Costs of the assignment of all regions."""

    cpu_s: float
    lag_ms: float
    told_s: float


async def _enabled(found: World, count: int) -> Followed:
    """Disables the table and enables it; with followers until the last of them has the last change."""
    await found.change("disable_table", TableTask(TABLE))
    with followers(found.port, count) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        await asyncio.to_thread(clients.stdout.readline)
        await asyncio.sleep(QUIET_S)
        found.lag.take_ms()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        await found.change("enable_table", TableTask(TABLE))
        if count:
            clients.stdin.write(f"{found.term.env.routes.change}\n")
            clients.stdin.flush()
            responses = int(await asyncio.to_thread(clients.stdout.readline))
            say(f"A5 {count:,} followers: {responses / count:.1f} responses for each")
        spent = Followed(time.process_time() - cpu_s, found.lag.take_ms(), time.perf_counter() - began_s)
    say(f"A5 {count:,} followers: {spent.cpu_s:.2f} s of CPU, lag {spent.lag_ms:.0f} ms, told in {spent.told_s:.2f} s")
    return spent


async def remembered(shape: Shape) -> list[Row]:
    """A4: memory of a region that is open and that nothing moves, in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        each = await asyncio.get_running_loop().run_in_executor(pool, _measured, shape)
    say(f"A4 {shape}: {each:.0f} bytes")
    return [_row("A4", str(shape), "memory of an idle region, bytes", "bytes", [each], GOALS["A4"], higher=False)]


def _measured(shape: Shape) -> float:
    """Returns the bytes of a region; the process must be new: it would reuse what other cases have freed."""
    return uvloop.run(_grown(shape))


async def _grown(shape: Shape) -> float:
    with tempfile.TemporaryDirectory(prefix="regions-", dir=_disk()) as name:
        folder = Path(name)
        async with world(folder):
            gc.collect()
            before_mb = rss_mb(os.getpid())
        await _stored(folder / "full.db", shape)
        (folder / "full.db").rename(folder / "regions.db")
        async with world(folder):
            gc.collect()
            return (rss_mb(os.getpid()) - before_mb) * 1e6 / shape.regions


def _disk() -> Path:
    """Returns a folder on the project's disk, because temporary folders may be in memory."""
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    return folder
