"""``python -m benchmarks.procedures``: speeds of the scheduler, the engine and the stores of procedures.

The scheduler runs by the method of HBase's ``MasterProcedureSchedulerPerformanceEvaluation``: five tables with ten
regions each, operations drawn from all 55, first all of them enqueued, then all polled, locked and released. The SQLite
store runs beside SQLite itself with groups of the same size on the same disk. Times are of the wall clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from controller.procedures.engine import Engine
from controller.procedures.kinds import Kind, Step
from metadata_store import paths
from metadata_store.fencing.outcome import Fence
from metadata_store.kazoo_adapter.adapter import KazooZooKeeper
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.demand import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Next, Outcome
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.scheduler import Scheduler
from state_machines.procedures.states import State
from testing.embedded.zookeeper import EmbeddedZooKeeper

TABLES, REGIONS = 5, 10
FOLDER: Final = Path("build") if Path("build").is_dir() else None
"""A folder on the project's disk, because temporary folders may be in memory."""
STATE_BYTES: Final = 1_024
WRITERS: Final = 20
STEPS: Final = 10
SESSION_MS: Final = 10_000


def main() -> None:
    """Prints one line for each case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.procedures", description=__doc__)
    parser.add_argument("--ops", type=int, default=1_000_000, help="operations of the scheduler")
    parser.add_argument("--procedures", type=int, default=50_000, help="procedures of the stores")
    chosen = parser.parse_args()
    scheduler(chosen.ops)
    asyncio.run(sqlite_store(chosen.procedures))
    asyncio.run(zookeeper_store(chosen.procedures // 10))


def say(case: str, what: str, count: float, seconds: float) -> float:
    """Prints a rate, and returns it."""
    rate = count / seconds
    print(f"{case:4} {what:60} {rate:12,.0f} per second", flush=True)
    return rate


@contextmanager
def measured(case: str, what: str, count: int) -> Iterator[None]:
    """Prints the rate of a block."""
    began_s = time.perf_counter()
    yield
    say(case, what, count, time.perf_counter() - began_s)


# -- S1


def scheduler(ops: int) -> None:
    """Enqueues and polls operations on tables and regions, drawn at random."""
    demands: list[Demand] = []
    for table in range(TABLES):
        resource = Resource(Scope.TOPIC, f"table{table}")
        demands.append(Demand(resource, exclusive=True))
        demands += [Demand(resource, exclusive=False, parts=(region,)) for region in range(REGIONS)]
    drawn = random.Random(1).choices(demands, k=ops)
    s = Scheduler()
    with measured("S1", "addBack", ops):
        for pid, demand in enumerate(drawn, 1):
            s.add_back(s.entry(pid, demand))
    completed = 0
    with measured("S1", "poll, lock, release", ops):
        while (entry := s.poll()) is not None:
            s.release(entry)
            s.drop(entry)
            completed += 1
    assert completed == ops


# -- S2, S3


def record(pid: int, step: int, data: bytes) -> Record:
    """Returns a record with a message."""
    return Record(pid, "bench", State.RUNNABLE, step, 1, 2, data=data)


async def sqlite_store(procedures: int) -> None:
    """Inserts and updates records from twenty writers, beside SQLite's own bound; then loads them all."""
    data = os.urandom(STATE_BYTES * 3 // 4)  # JSON has base64
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        store = await SqliteRecords.open(Path(folder) / "records.db")
        pids = iter(range(1, procedures + 1))

        async def write() -> None:
            for pid in pids:
                await store.write([record(pid, 0, data)])
                await store.write([record(pid, 1, data)])

        began_s = time.perf_counter()
        await asyncio.gather(*(write() for _ in range(WRITERS)))
        ours = say("S2", f"sqlite store, {WRITERS} writers", 2 * procedures, time.perf_counter() - began_s)
        bound = _sqlite_bound(Path(folder) / "bound.db", procedures, STATE_BYTES + 200)
        print(f"S2   part of SQLite's own bound at groups of {WRITERS}: {ours / bound:.0%}")
        with measured("S3", "load", procedures):
            await store.load()
        await store.close()


def _sqlite_bound(file: Path, procedures: int, body_bytes: int) -> float:
    """Writes rows of the same size in transactions of as many rows as there are writers."""
    bodies = os.urandom(body_bytes), os.urandom(body_bytes)  # the same one again would not be written
    with sqlite3.connect(file, isolation_level=None) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE record (pid INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL)")
        began_s = time.perf_counter()
        for first in range(0, procedures, WRITERS):
            for body in bodies:
                db.execute("BEGIN IMMEDIATE")
                rows = [(pid, 1, body) for pid in range(first, first + WRITERS)]
                db.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", rows)
                db.execute("COMMIT")
        return say("S2", "SQLite itself", 2 * procedures, time.perf_counter() - began_s)


# -- the engine on ZooKeeper


async def zookeeper_store(procedures: int) -> None:
    """Runs procedures of ten steps on a real ZooKeeper, so many at a time."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        server = EmbeddedZooKeeper(Path(folder))
        await server.boot()
        zk = KazooZooKeeper(server.connect, session_timeout_ms=SESSION_MS)
        await zk.connect(10.0)
        version = (await zk.create(paths.CONTROLLER_EPOCH, b"1")).stat.version
        try:
            for at_once in (100, 400):
                await _engine(zk, Fence(version), at_once, procedures)
        finally:
            await zk.close()
            await server.stop()


async def _engine(zk: KazooZooKeeper, fence: Fence, at_once: int, procedures: int) -> None:
    async def step(_: None, one: Record) -> Outcome:
        return Next(one.step + 1, one.data) if one.step < STEPS - 1 else Done()

    async def connected() -> None:
        """Never waits: the server is on this machine."""

    def demand(one: Record) -> Demand:
        return Demand(Resource(Scope.TOPIC, "t"), exclusive=False, parts=(one.data,))

    wanted = asyncio.Event()
    kind: Kind[None] = Kind("bench", (Step("step", step),) * STEPS, demand)
    records = ZooKeeperRecords(zk, fence, f"/bench{at_once}", connected)
    engine: Engine[None] = Engine(None, (kind,), records, wanted=wanted.set, now_ms=lambda: time.time_ns() // 1_000_000)
    await engine.load()

    async def turns() -> None:
        while True:
            await wanted.wait()
            wanted.clear()
            await engine.turn()

    async def client(numbers: Iterator[int]) -> None:
        for number in numbers:
            await engine.result(await engine.submit("bench", b"%d" % number, Caller()))

    consumer = asyncio.ensure_future(turns())
    numbers = iter(range(procedures))
    with measured("S4", f"steps on ZooKeeper, {at_once} procedures at a time", procedures * (STEPS + 1)):
        await asyncio.gather(*(client(numbers) for _ in range(at_once)))
    consumer.cancel()


if __name__ == "__main__":
    main()
