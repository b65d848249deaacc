"""S4: steps per second of the engine on a real ZooKeeper, with so many procedures in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.arena import say
from benchmarks.procedures.plan import Sizes, goal
from benchmarks.procedures.rows import paired
from benchmarks.results import Row
from benchmarks.servers import BenchmarkZooKeeper
from controller.procedures.engine import Engine
from controller.procedures.kinds import Kind, Step
from controller.process.clock import wall_ms
from metadata_store import paths
from metadata_store.fencing.outcome import Fence
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Next, Outcome
from state_machines.procedures.record import Caller, Record

IN_FLIGHT: Final = (100, 400)
STEPS: Final = 10
WRITES: Final = STEPS + 1
"""Of one procedure, with its first record."""
ROUNDS: Final = 3
SESSION_MS: Final = 30_000
HEAP_MB: Final = 1_024


async def measure(sizes: Sizes, folder: Path) -> list[Row]:
    """Plays rounds of each number of procedures in flight in turn, on one ZooKeeper."""
    server = BenchmarkZooKeeper(folder / "zookeeper", HEAP_MB)
    zk = KazooZooKeeper(server.connect, session_timeout_ms=SESSION_MS)
    rates: dict[int, list[tuple[float, float]]] = {in_flight: [] for in_flight in IN_FLIGHT}
    try:
        await server.boot()
        await zk.connect(30.0)
        fence = Fence((await zk.create(paths.CONTROLLER_EPOCH, b"1")).stat.version)
        for number in range(ROUNDS):
            for in_flight, found in rates.items():
                store = ZooKeeperRecords(zk, fence, f"/steps{number}x{in_flight}", _connected)
                found.append(await _played(store, in_flight, sizes.steps))
                say(f"S4, {in_flight} procedures in flight: {found[-1][0]:,.0f} steps per second")
    finally:
        await zk.close()
        await server.kill()
    return [_row(in_flight, found) for in_flight, found in rates.items()]


def _row(in_flight: int, rates: list[tuple[float, float]]) -> Row:
    case = f"S4x{in_flight}"
    what = "steps on ZooKeeper, each durable"
    row = paired(case, f"{in_flight} in flight", what, "per second", [rate for rate, _ in rates], [], goal=goal(case))
    row.phases["regent"] = {"us of CPU for a step": sorted(cpu for _, cpu in rates)[len(rates) // 2]}
    return row


async def _connected() -> None:
    """Never waits: the server is on this machine."""


async def _step(env: None, one: Record) -> Outcome:
    return Next(one.step + 1, one.data) if one.step < STEPS - 1 else Done()


def _demand(one: Record) -> Demand:
    return Demand(Resource(Scope.TOPIC, "t"), exclusive=False, parts=(one.data,))


async def _played(store: ZooKeeperRecords, in_flight: int, procedures: int) -> tuple[float, float]:
    """Runs procedures of ten steps; returns steps per second, and the microseconds of CPU for one."""
    wanted = asyncio.Event()
    kind: Kind[None] = Kind("steps", (Step("step", _step),) * STEPS, _demand)
    engine: Engine[None] = Engine(None, (kind,), store, wanted=wanted.set, now_ms=wall_ms)
    await engine.load()

    async def turns() -> None:
        while True:
            await wanted.wait()
            wanted.clear()
            await engine.turn()

    async def client(numbers: Iterator[int]) -> None:
        for number in numbers:
            await engine.result(await engine.submit("steps", b"%d" % number, Caller()))

    consumer, numbers = asyncio.ensure_future(turns()), iter(range(procedures))
    began_s, cpu_s = time.perf_counter(), time.process_time()
    try:
        await asyncio.gather(*(client(numbers) for _ in range(in_flight)))
    finally:
        consumer.cancel()
    took_s, used_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    return procedures * WRITES / took_s, 1e6 * used_s / (procedures * WRITES)
