"""Every ending of a procedure, and random families: the daemon is killed at any write, each step runs twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from controller.procedures.engine import Engine
from controller.procedures.kinds import Kind, Step
from metadata_store.records.port import RecordStore
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Retry, Wait, Yield
from state_machines.procedures.record import Caller, Record, child
from state_machines.procedures.states import State
from testing.memory.region_store import Disk, MemoryRecords
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import Stores
from tests.contracts.records_zookeeper import opened
from tests.contracts.support import session
from tests.kills.harness import Death, Deaths, Notes, fails, last, pauses, play, raises, spreads, step, topic, twice
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


FAMILIES = 4
STEPS_MAX = 5


class KillsWorld:
    """What steps have done, by message and step, and what each of them is going to return.

    A message is the path of a procedure from its root. Sets of effects are made good with the parent's undo.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.effects: set[tuple[bytes, int]] = set()
        self.under_way: set[bytes] = set()
        self.plans: dict[tuple[bytes, int], Outcome] = {}

    async def execute(self, record: Record) -> Outcome:
        """Executes a step: the same outcome however often it is repeated, unless it was in vain."""
        assert record.data not in self.under_way, "one procedure runs twice at once"
        self.under_way.add(record.data)
        await asyncio.sleep(0)
        self.effects.add((record.data, record.step))
        key = record.data, record.step
        outcome = self.plans.setdefault(key, self._plan(record))
        if isinstance(outcome, Retry | Wait | Yield | Failed):
            del self.plans[key]
        self.under_way.discard(record.data)
        return outcome

    async def undo(self, record: Record) -> Outcome:
        """Undoes the latest step; what its children had done goes, too."""
        if self.dice.random() < 0.2:
            in_vain: list[Outcome] = [Retry("away"), Wait(record.updated_ms + 700, record.data), Yield()]
            return self.dice.choice(in_vain)
        below = record.data + b"/"
        self.effects = {one for one in self.effects if not one[0].startswith(below)} - {(record.data, record.done[-1])}
        return Done()

    def _plan(self, record: Record) -> Outcome:
        step, depth = record.step, record.data.count(b"/")
        onwards = Next(min(step + 1, STEPS_MAX - 1), record.data)
        if step >= STEPS_MAX - 1:
            return Done(b"ok")
        choices: list[Outcome] = [Retry("away"), Wait(record.updated_ms + 900, record.data), Yield()]
        choices += [onwards] * 3
        if step:
            choices += [Done(b"ok")] * 4
        if depth < 2:
            count = self.dice.randint(0, 3)
            kinds = [self.dice.choice(["keeps", "frees", "commits"]) for _ in range(count)]
            family = tuple(child(kind, record.data + b"/%d.%d" % (step, n)) for n, kind in enumerate(kinds))
            choices.append(Children(family, step + 1, record.data))
        if self.dice.random() < 0.3:
            choices += [Failed("broken")] * 2
        return self.dice.choice(choices)


def demand(record: Record) -> Demand:
    """Demands a part of the topic of its depth: a child never demands what comes before its parent's locks."""
    return Demand(Resource(Scope.TOPIC, f"t{record.data.count(b'/')}"), exclusive=False, parts=(record.data[-1],))


STEP = Step("step", KillsWorld.execute, KillsWorld.undo)
FAMILY_KINDS = (
    Kind("frees", (STEP,) * STEPS_MAX, demand),
    Kind("keeps", (STEP,) * STEPS_MAX, demand, holds_locks=True),
    Kind("commits", (STEP,) * STEPS_MAX, demand, no_return=2),
)


SEEDS = {"memory": 150, "sqlite": 20, "zookeeper": 20}
RUNS = [(store, seed) for store, count in SEEDS.items() for seed in range(count)]


@pytest.mark.parametrize(("store_name", "seed"), RUNS)
async def test_every_family_ends_as_a_whole_or_leaves_nothing(
    store_name: str, seed: int, tmp_path: Path, record_property: RecordProperty
) -> None:
    world, stores = KillsWorld(seed), STORES[store_name](tmp_path)
    deaths = Deaths([Death(world.dice.randrange(1, 60), after=world.dice.random() < 0.5) for _ in range(6)])

    @asynccontextmanager
    async def store() -> AsyncIterator[RecordStore]:
        world.under_way.clear()
        async with stores() as found:
            yield found

    async def family(engine: Engine[KillsWorld], number: int) -> Record:
        kind = FAMILY_KINDS[number % 3].name
        pid = await engine.submit(kind, b"r%d" % number, Caller(nonce=f"{number}"))
        if world.dice.random() < 0.3:
            await asyncio.sleep(0)
            await engine.abort(pid)
        return await engine.result(pid)

    async def scenario(engine: Engine[KillsWorld]) -> list[Record]:
        found = await asyncio.gather(*(family(engine, number) for number in range(FAMILIES)))
        assert sorted(engine.records) == sorted(record.pid for record in found), "only roots are kept"
        return found

    for record in await play(store, world, FAMILY_KINDS, scenario, deaths):
        left = {step for path, step in world.effects if path == record.data}
        if record.state is State.SUCCESS:
            assert left == set(record.done)
        else:
            assert record.state is State.ROLLEDBACK
            assert not any(path.split(b"/")[0] == record.data for path, _ in world.effects), "something was not undone"
    tally(record_property, "random families", store_name, deaths.killed)
