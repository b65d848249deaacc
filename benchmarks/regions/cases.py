"""Measures a crash of a server (A2), a failover of the daemon (A3), memory (A4), a restart of all servers (A6)."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.arena import say
from benchmarks.procfs import rss_mb
from benchmarks.regions.plan import ROUNDS, Shape, disk, lag, row
from benchmarks.regions.world import TABLE, MeasuredRegions, servers, until, world
from benchmarks.results import Row
from controller.regions.procedures.messages import TRANSIT, Transit
from metadata_store.catalog.rows import NewRegions, Owner, PutServer, PutTable, RegionRow, ServerRow, TableRow
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.sqlite import SqliteRecords
from regent_agent.protocol import LOADS_MAX, RegionLoad
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from state_machines.regions.layout import ranges
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState
from testing.embedded.process import free_port

CRASHED: Final = 10_000
SURVIVORS: Final = 20
CHUNK: Final = 5_000


async def crashed(rounds: int = ROUNDS) -> list[Row]:
    """A2: the process of a server with many regions is killed; from its fence until all are open elsewhere."""
    times: list[float] = []
    lags: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as folder:
            async with world(Path(folder)) as found, servers(found.port, 1) as victim:
                await found.until(1)
                await found.create(CRASHED)
                async with servers(found.port, SURVIVORS, 1):
                    await found.until(SURVIVORS + 1)
                    victim.kill()
                    found.lag.take_ms()
                    times.append(await _recovered(found))
                    lags.append(found.lag.take_ms())
                    say(f"A2: {times[-1]:.2f} s after the fence, lag {lags[-1]:.0f} ms")
    size = f"{CRASHED:,} on {SURVIVORS}"
    what = "regions of a killed server, from its fence until open elsewhere"
    return [row("A2", size, what, "s", times), lag("A2", size, lags)]


async def _recovered(found: MeasuredRegions) -> float:
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
    times: list[float] = []
    lags: list[float] = []
    async for folder in _copies(shape, rounds):
        port = free_port()
        async with servers(port, shape.servers, stored=shape.regions):
            began_s = time.perf_counter()
            async with world(folder, port=port) as found:
                await until(partial(_has_sent, found))
                times.append(time.perf_counter() - began_s)
                lags.append(found.lag.take_ms())
                say(f"A3 {shape}: {times[-1]:.2f} s, lag {lags[-1]:.0f} ms")
    what = "failover of the daemon until the first operation is sent"
    return [row("A3", shape, what, "s", times), lag("A3", shape, lags)]


async def restarted(shape: Shape, rounds: int = ROUNDS) -> list[Row]:
    """A6: the process of all servers is killed and started again; until all regions are open."""
    times: list[float] = []
    lags: list[float] = []
    async for folder in _copies(shape, rounds):
        port = free_port()
        async with world(folder, port=port, placement="retain") as found:
            async with servers(port, shape.servers, stored=shape.regions):
                await until(partial(_all_open, found, shape))
            began_s = time.perf_counter()
            async with servers(port, shape.servers):
                await found.lag.settle()
                await until(partial(_all_open, found, shape, above=1))
                times.append(time.perf_counter() - began_s)
            lags.append(found.lag.take_ms())
            kept = sum(
                one.server is not None and one.server.name == _first_owner(one.id, shape)
                for one in found.term.env.model.regions.values()
            )
            say(f"A6 {shape}: {times[-1]:.2f} s, lag {lags[-1]:.0f} ms, {kept:,} regions where they were")
    what = "all servers killed and started again, until all regions are open"
    return [row("A6", shape, what, "s", times), lag("A6", shape, lags)]


def _has_sent(found: MeasuredRegions) -> bool:
    return bool(found.term.env.dispatcher.sent)


def _all_open(found: MeasuredRegions, shape: Shape, above: int = 0) -> bool:
    """Checks whether all regions are open, at processes with an incarnation above this one, and no other is known."""
    model = found.term.env.model
    if len(model.servers) != shape.servers or model.tables[TABLE].count(RegionState.OPEN) != shape.regions:
        return False
    return all(one.state is ServerState.ONLINE and one.incarnation > above for one in model.servers.values())


def _first_owner(region: int, shape: Shape) -> str:
    """Returns the server that has a region in a stored catalog."""
    return f"s{(region - 1) % shape.servers}"


async def _copies(shape: Shape, rounds: int) -> AsyncIterator[Path]:
    """Yields folders with the same store: all regions are open, and the first one is being assigned."""
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as name:
        first = Path(name) / "first.db"
        await stored(first, shape)
        await _pending(first)
        for number in range(rounds):
            folder = Path(name) / str(number)
            folder.mkdir()
            shutil.copy(first, folder / "regions.db")
            yield folder


async def stored(path: Path, shape: Shape) -> None:
    """Writes a catalog whose regions are open, and one region that is not."""
    store = await SqliteRecords.open(path, SqliteCatalog())
    names = [_first_owner(one + 1, shape) for one in range(shape.servers)]
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


async def remembered(shape: Shape) -> list[Row]:
    """A4: memory of a region that is open, has a load and is not moved, in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        each = await asyncio.get_running_loop().run_in_executor(pool, _measured, shape)
    say(f"A4 {shape}: {each:.0f} bytes")
    return [row("A4", shape, "memory of an idle region", "bytes", [each])]


def _measured(shape: Shape) -> float:
    """Returns the bytes of a region; the process must be new: it would reuse what other cases have freed."""
    return uvloop.run(_grown(shape))


def report_loads(found: MeasuredRegions) -> None:
    """Has each server report a load of each of its regions."""
    env = found.term.env
    for server in env.model.servers.values():
        ids = list(server.regions)
        for at in range(0, len(ids), LOADS_MAX):
            env.loads.take(server, [RegionLoad(one, at, at, one, 3) for one in ids[at : at + LOADS_MAX]])


async def _grown(shape: Shape) -> float:
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as name:
        folder = Path(name)
        async with world(folder):
            gc.collect()
            before_mb = rss_mb(os.getpid())
        await stored(folder / "full.db", shape)
        (folder / "full.db").rename(folder / "regions.db")
        async with world(folder) as found:
            report_loads(found)
            gc.collect()
            return (rss_mb(os.getpid()) - before_mb) * 1e6 / shape.regions
