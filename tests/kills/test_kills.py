"""Every ending of a procedure, with the daemon killed before and after each write, and with each step run twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from controller.procedures.engine import Engine
from controller.procedures.kinds import Kind
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State
from testing.memory.records import Disk, MemoryRecords
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import Stores
from tests.contracts.records_zookeeper import opened
from tests.contracts.support import session
from tests.kills.harness import Death, Deaths, play
from tests.kills.kinds import Notes, fails, last, pauses, raises, spreads, step, topic, twice
from tests.kills.tally import RecordProperty, tally

CALLER = Caller(principal="User:ops", nonce="n")

KINDS: dict[str, tuple[Kind[Notes], ...]] = {
    "three steps": (Kind("root", (step(), step(), step(last)), topic),),
    "three steps that hold their locks": (Kind("root", (step(), step(), step(last)), topic, holds_locks=True),),
    "a step that fails for now and a pause": (Kind("root", (step(twice), step(pauses), step(last)), topic),),
    "the last step fails": (Kind("root", (step(), step(), step(fails)), topic, holds_locks=True),),
    "a step always raises": (Kind("root", (step(), step(raises)), topic),),
    "two children": (
        Kind("root", (step(spreads("part", 2)), step(last)), topic, holds_locks=True),
        Kind("part", (step(), step(last)), topic),
    ),
    "children of children": (
        Kind("root", (step(spreads("part", 2)), step(last)), topic),
        Kind("part", (step(), step(spreads("leaf", 2)), step(last)), topic, holds_locks=True),
        Kind("leaf", (step(last),), topic),
    ),
    "a child fails": (
        Kind("root", (step(), step(spreads("part", 1)), step(last)), topic, holds_locks=True),
        Kind("part", (step(), step(spreads("leaf", 1)), step(fails)), topic),
        Kind("leaf", (step(), step(pauses), step(fails)), topic),
    ),
    "a step fails behind the point of no return": (
        Kind("root", (step(), step(), step(twice), step(last)), topic, no_return=1),
    ),
}


class End(NamedTuple):
    """What a client sees, and what steps have left behind."""

    state: State
    result: bytes
    error: str
    there: frozenset[tuple[str, bytes, int]]


async def end_of(name: str, stores: Stores, deaths: Deaths) -> End:
    notes = Notes()

    async def scenario(engine: Engine[Notes]) -> End:
        pid = await engine.submit("root", b"t", CALLER)
        record = await engine.result(pid)
        assert list(engine.records) == [pid], "a record was left behind, or the procedure ran under two pids"
        return End(record.state, record.result, record.error, frozenset(notes.there))

    return await play(stores, notes, KINDS[name], scenario, deaths)


def in_memory(_: Path) -> Stores:
    disk = Disk()

    @asynccontextmanager
    async def store() -> AsyncIterator[MemoryRecords]:
        yield MemoryRecords(disk)

    return store


def on_sqlite(folder: Path) -> Stores:
    @asynccontextmanager
    async def store() -> AsyncIterator[SqliteRecords]:
        found = await SqliteRecords.open(folder / "records.db")
        try:
            yield found
        finally:
            await found.close()

    return store


def on_zookeeper(_: Path) -> Stores:
    backend = MemoryBackend()

    @asynccontextmanager
    async def store() -> AsyncIterator[ZooKeeperRecords]:
        async with session(backend) as s:
            yield await opened(s)

    return store


STORES = {"memory": in_memory, "sqlite": on_sqlite, "zookeeper": on_zookeeper}


@pytest.mark.seed("S2-10", "S2-26", "S2-48", "S3-15")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", KINDS)
async def test_a_procedure_whose_daemon_is_killed_at_any_write_ends_as_the_clean_run(
    name: str, store: str, tmp_path: Path, record_property: RecordProperty
) -> None:
    clean = Deaths()
    expected = await end_of(name, in_memory(tmp_path), clean)
    deaths = [Deaths([Death(number, after)]) for number in range(1, clean.writes + 1) for after in (False, True)]
    for number, one in enumerate([*deaths, Deaths(always=True)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert await end_of(name, STORES[store](folder), one) == expected
        assert one.killed, "the run had fewer writes than the clean one"
    tally(record_property, name, store, len(deaths), doubled=1)
