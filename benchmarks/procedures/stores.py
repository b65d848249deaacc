"""S2 and S3: the SQLite store beside SQLite itself and HBase's stores on the same disk, and its load.

Twenty writers insert and update procedures with a kilobyte of state each; a write is durable before the next one of
its writer. SQLite itself writes rows of the same size with its default settings, durably, in transactions of twenty.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from benchmarks.procedures import hbase
from benchmarks.procedures.plan import REGION_SHARE, Sizes, goal
from benchmarks.procedures.rows import paired
from benchmarks.results import Row, Sample
from controller.procedures.kinds import Kind, Kinds, Step
from controller.procedures.running import Running
from metadata_store.records import codec
from metadata_store.records.sqlite import SqliteRecords
from state_machines.portions import at_once
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Outcome
from state_machines.procedures.record import Record
from state_machines.procedures.recovery import load
from state_machines.procedures.states import State

WRITERS: Final = 20
STATE_BYTES: Final = 1_024
MESSAGE_BYTES: Final = STATE_BYTES * 3 // 4
"""Bytes of the message, which JSON holds as base64."""
LOADED_BYTES: Final = 100
"""State of each loaded record, as in HBase's ``ProcedureWALLoaderPerformanceEvaluation``."""
FILL_AT_ONCE: Final = 1_000
LOADS: Final = 3


class Rate(NamedTuple):
    """Writes a second, and the microseconds of CPU for one."""

    per_s: float
    cpu_us: float


def record(pid: int, step: int, data: bytes) -> Record:
    """Returns a record with a message."""
    return Record(pid, "bench", State.RUNNABLE, step, 1, 2, data=data)


async def measure(sizes: Sizes, folder: Path, *, peer: bool) -> list[Row]:
    """Plays rounds of all stores in turn, then loads what the last one left."""
    rates: dict[str, list[Rate]] = {"regent": [], "sqlite": [], "wal": [], "region": []}
    peer = peer and _ready()
    for number, procedures in enumerate(sizes.writes):
        here = folder / f"round{number}"
        here.mkdir()
        rates["regent"].append(await written(here / "records.db", procedures))
        rates["sqlite"].append(bound(here / "bound.db", procedures))
        (here / "bound.db").unlink()
        if peer:
            rates["wal"].append(await _peer(hbase.WAL_STORE, here / "wal", procedures))
            rates["region"].append(await _peer(hbase.REGION_STORE, here / "region", procedures // REGION_SHARE))
        shown = ", ".join(f"{name} {found[-1].per_s:,.0f}" for name, found in rates.items() if found)
        say(f"S2, {procedures:,} procedures: {shown} writes per second")
    small = await loads(folder / "small.db", sizes.load, LOADED_BYTES)
    return [*_rows(rates), *small, *await loads(folder / "large.db", sizes.load, STATE_BYTES)]


def _ready() -> bool:
    why_not = hbase.too_early()
    if why_not:
        say(why_not)
    return why_not is None


def _rows(rates: dict[str, list[Rate]]) -> list[Row]:
    made = [
        _row("S2", rates, "sqlite", "SQLite itself in groups of as many"),
        _row("S2w", rates, "wal", f"{hbase.VERSION}, WAL store, hsync"),
        _row("S2r", rates, "region", f"{hbase.VERSION}, region store, hsync"),
    ]
    return [row for row in made if row.peer is not None]


def _row(case: str, rates: dict[str, list[Rate]], peer: str, peer_is: str) -> Row:
    ours, theirs = rates["regent"], rates[peer]
    row = paired(
        case,
        f"{WRITERS} writers",
        "sqlite store: 1 KB inserted and updated",
        "per second",
        [one.per_s for one in ours],
        [one.per_s for one in theirs],
        goal=goal(case),
        peer_is=peer_is,
        higher_is_better=True,
    )
    for name, found in (("regent", ours), ("peer", theirs)):
        if found:
            row.phases[name] = {"us of CPU for a write": Sample.of([one.cpu_us for one in found]).median}
    return row


async def written(file: Path, procedures: int) -> Rate:
    """Writes procedures into a new store."""
    store = await SqliteRecords.open(file)
    pids, data = iter(range(1, procedures + 1)), os.urandom(MESSAGE_BYTES)

    async def write() -> None:
        for pid in pids:
            await store.write([record(pid, 0, data)])
            await store.write([record(pid, 1, data)])

    began_s, cpu_s = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(WRITERS):
            group.create_task(write())
    found = _rate(2 * procedures, began_s, cpu_s)
    await store.close()
    return found


def bound(file: Path, procedures: int) -> Rate:
    """Writes rows of the same size with SQLite, in transactions of as many rows as there are writers."""
    size = len(codec.encode(record(1, 1, bytes(MESSAGE_BYTES))))
    bodies = os.urandom(size), os.urandom(size)  # the same one again would not be written
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE record (pid INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL)")
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for first in range(0, procedures, WRITERS):
        for body in bodies:
            db.execute("BEGIN IMMEDIATE")
            rows = [(pid, 1, body) for pid in range(first, first + WRITERS)]
            db.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", rows)
            db.execute("COMMIT")
    found = _rate(2 * procedures, began_s, cpu_s)
    db.close()
    return found


async def _peer(main: str, folder: Path, procedures: int) -> Rate:
    run = await hbase.store(main, folder, procedures, state_bytes=STATE_BYTES, threads=WRITERS)
    seconds = run.number("total_time_ms") / 1e9  # its name says ms, and the unit is ns
    return Rate(2 * procedures / seconds, 1e6 * run.cpu_s / (2 * procedures))


def _rate(count: int, began_s: float, cpu_s: float) -> Rate:
    took_s, used_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    return Rate(count / took_s, 1e6 * used_s / count)


# -- S3


async def loads(file: Path, records: int, state_bytes: int) -> list[Row]:
    """Loads records several times: from the store alone, and until all of them are queued."""
    store = await SqliteRecords.open(file)
    await _filled(store, records, os.urandom(state_bytes * 3 // 4))
    read: list[Rate] = []
    ready: list[Rate] = []
    for _ in range(LOADS):
        began_s, cpu_s = time.perf_counter(), time.process_time()
        stored = await store.load()
        read.append(_rate(records, began_s, cpu_s))
        running = Running(Kinds([BENCH]), lambda: 3, lambda: 3, lambda: None)
        at_once(running.restore(load(stored.records, Kinds([BENCH]).unfit)))
        ready.append(_rate(records, began_s, cpu_s))
        assert len(running.procedures.records) == records
        del stored, running
        say(f"S3, {state_bytes} B: {read[-1].per_s:,.0f} records per second, {ready[-1].per_s:,.0f} until queued")
    await store.close()
    size, case = f"{records:,} of {state_bytes} B", "S3" if state_bytes == LOADED_BYTES else "S3k"
    return [
        _load_row(case, size, "sqlite store: records read and decoded", read),
        _load_row(f"{case}q", size, "records read, judged, and queued with their locks", ready),
    ]


async def _filled(store: SqliteRecords, records: int, data: bytes) -> None:
    for first in range(1, records + 1, FILL_AT_ONCE):
        await store.write([record(pid, 1, data) for pid in range(first, min(first + FILL_AT_ONCE, records + 1))])


def _load_row(case: str, size: str, what: str, rates: list[Rate]) -> Row:
    row = paired(case, size, what, "per second", [one.per_s for one in rates], [], goal=goal(case))
    row.phases["regent"] = {"us of CPU for a record": Sample.of([one.cpu_us for one in rates]).median}
    return row


async def _never(env: None, one: Record) -> Outcome:
    return Done()


def _demand(one: Record) -> Demand:
    return Demand(Resource(Scope.TOPIC, f"table{one.pid % 1_000}"), exclusive=False, parts=(one.pid,))


BENCH: Final[Kind[None]] = Kind("bench", (Step("first", _never), Step("second", _never)), _demand)
