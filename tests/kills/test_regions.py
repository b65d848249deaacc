"""Procedures of the regions' domain: the daemon is killed at each write, operators come in any turn of a crash."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

from controller.procedures.kinds import Effect, Execute, Kind
from controller.regions import fencing
from controller.regions.environment import Options, RegionsEnv
from controller.regions.procedures import assign, close, crash, every, many, move, table_work
from controller.regions.procedures.every import KINDS
from controller.regions.procedures.messages import MOVE, TRANSIT, Move, Transit
from controller.regions.zookeeper_store import ZooKeeperOpened
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.sqlite import SqliteRecords
from state_machines.procedures.outcome import Outcome
from state_machines.procedures.record import Record
from testing.memory import MemoryZooKeeper
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.contracts.memory import MemoryBackend
from tests.kills.harness import Clock, Death, Deaths
from tests.kills.region_cases import CASES, CREATED, Case
from tests.kills.region_daemons import LEASE_MS, Domains, End, Life, Opened, play
from tests.kills.region_servers import Service
from tests.kills.region_stories import TABLE
from tests.kills.tally import RecordProperty, tally

# -- stores

NARROW_BYTES: Final = 1_600
NODE_TIMEOUT_MS: Final = 2_000


def in_memory(_: Path) -> Domains:
    disk = RegionDisk()

    @asynccontextmanager
    async def domain() -> AsyncIterator[Opened]:
        store = MemoryRegionStore(disk)
        yield Opened(store, store, store.epoch)

    return domain


def on_sqlite(folder: Path) -> Domains:
    @asynccontextmanager
    async def domain() -> AsyncIterator[Opened]:
        rows = SqliteCatalog()
        store = await SqliteRecords.open(folder / "regions.db", rows)
        try:
            yield Opened(store, rows.of(store), store.epoch)
        finally:
            await store.close()

    return domain


class Narrow(MemoryZooKeeper):
    """A session with a server that takes little: two children of a batch at a time."""

    write_bytes_max = NARROW_BYTES


class NarrowBackend(MemoryBackend):
    """Sessions with such a server."""

    def client(self, down: bool = False, **options: Any) -> MemoryZooKeeper:
        """Makes a session."""
        self.server.down = down
        return Narrow(self.server, **options)


def on_zookeeper(_: Path) -> Domains:
    return on_zookeeper_of(MemoryBackend())


def on_zookeeper_of(backend: MemoryBackend, *, noded: bool = False) -> Domains:
    @asynccontextmanager
    async def domain() -> AsyncIterator[Opened]:
        found = await ZooKeeperOpened.open(backend.client, noded=noded)
        try:
            yield Opened(found.store, found.catalog, found.epoch, found.nodes)
        finally:
            await found.close()

    return domain


STORES: dict[str, Callable[[Path], Domains]] = {
    "memory": in_memory,
    "sqlite": on_sqlite,
    "zookeeper": on_zookeeper,
}

ZNODES: Final = "znodes"
"""The transport by znodes, on ZooKeeper's store."""
STARTS: Final = "znodes, each term a start"
"""The same with servers that have no ephemeral znode."""

SOME = list(CASES)[::5]
"""Families that are killed on SQLite, and with znodes, here; ``tests/verify/test_regions_at_length.py`` has all."""


async def end_of(case: Case, domains: Domains, deaths: Deaths, service: Service | None = None) -> End:
    """Plays a case; only the daemons of its last story die."""
    service, clock = service or Service(), Clock()
    pieces = mock.patch.multiple(many, TOGETHER=1, BATCHES_MAX=2) if case.pieces else nullcontext()
    works = mock.patch.object(table_work, "TOGETHER", 1) if case.pieces else nullcontext()
    with pieces, works, mock.patch.object(fencing, "run_command", service.run_command):
        return await _end_of(case, domains, deaths, service, clock)


async def noded_end_of(case: Case, deaths: Deaths, *, appears: bool = True) -> End:
    """Plays a case whose servers answer by znodes; no znode is left at its end."""
    backend = MemoryBackend()
    service = Service(backend.client, appears=appears)
    return await end_of(case, on_zookeeper_of(backend, noded=True), deaths, service)


async def end_on(store: str, case: Case, folder: Path, deaths: Deaths) -> End:
    """Plays a case on a store, or with answers by znodes on one of them."""
    if store in (ZNODES, STARTS):
        return await noded_end_of(case, deaths, appears=store == ZNODES)
    return await end_of(case, STORES[store](folder), deaths)


async def narrow_end_of(case: Case, deaths: Deaths, service: Service | None = None) -> End:
    """Plays a case on a server that takes little: rows of one region, and a few children, fit into a write."""
    service = service or Service()
    domains = on_zookeeper_of(NarrowBackend())
    with mock.patch.object(fencing, "run_command", service.run_command):
        return await _end_of(case._replace(pieces=True), domains, deaths, service, Clock())


async def _end_of(case: Case, domains: Domains, deaths: Deaths, service: Service, clock: Clock) -> End:
    for name in ("s1", "s2", "s3"):
        service.start(name)
    options = Options(lease_ms=LEASE_MS, fence_command=("/fence",), node_timeout_ms=NODE_TIMEOUT_MS, **case.options)
    for story in case.before:
        await play(domains, service, clock, options, story, Deaths(), pieces=case.pieces)
    if case.failing:
        service.failing = {min(service.tokens, default=0): list(case.failing)}
    return await play(domains, service, clock, options, case.story, deaths, pieces=case.pieces)


MARKS: Final = {
    "assign after three failures": [pytest.mark.seed("S1-70")],
    "assign that nobody can": [pytest.mark.seed("S1-70")],
    "crash while assigning": [pytest.mark.seed("S1-70")],
    "disable": [pytest.mark.seed("S0-34")],
    "enable": [pytest.mark.seed("S0-34")],
}


@pytest.mark.seed("S1-3", "S1-75", "S2-3", "S2-47", "S3-5")
@pytest.mark.parametrize(
    ("name", "store"),
    [
        *(pytest.param(name, "memory", marks=MARKS.get(name, [])) for name in CASES),
        *(
            pytest.param(name, store, marks=MARKS.get(name, []))
            for store in ("sqlite", ZNODES, STARTS)
            for name in SOME
        ),
    ],
)
async def test_a_region_procedure_whose_daemon_is_killed_at_any_write_ends_as_the_clean_run(
    name: str, store: str, tmp_path: Path, record_property: RecordProperty
) -> None:
    await killed_everywhere(name, store, tmp_path, record_property)


async def killed_everywhere(name: str, store: str, tmp_path: Path, record_property: RecordProperty) -> None:
    """Kills the daemon before and after each write, at all of them, and runs each step twice."""
    clean, case = Deaths(), CASES[name]
    expected = await end_of(case, in_memory(tmp_path), Deaths())
    assert await end_on(store, case, _folder(tmp_path, "clean"), clean) == expected
    print(expected, clean.writes)
    deaths = [Deaths([Death(number, after)]) for number in range(1, clean.writes + 1) for after in (False, True)]
    for number, one in enumerate([*deaths, Deaths(always=True)]):
        assert await end_on(store, case, _folder(tmp_path, str(number)), one) == expected, one._deaths
        assert one.killed, "the run had fewer writes than the clean one"
    if not case.takes:
        with mock.patch.object(every, "KINDS", tuple(map(doubled, KINDS))):
            assert await end_on(store, case, _folder(tmp_path, "twice"), Deaths()) == expected, "each step ran twice"
    tally(record_property, f"regions: {name}", store, len(deaths), doubled=1 + (not case.takes))


def _folder(above: Path, name: str) -> Path:
    found = above / name
    found.mkdir()
    return found


def doubled(kind: Kind[RegionsEnv]) -> Kind[RegionsEnv]:
    """Returns a kind each of whose steps runs twice, as after a crash before its write."""

    def again(execute: Execute[RegionsEnv]) -> Execute[RegionsEnv]:
        async def executed(env: RegionsEnv, record: Record) -> Outcome | Effect:
            await execute(env, record)
            return await execute(env, record)

        return executed

    steps = (step._replace(execute=again(step.execute), undo=step.undo and again(step.undo)) for step in kind.steps)
    return kind._replace(steps=tuple(steps))


async def test_every_kind_is_killed_at_every_write(tmp_path: Path) -> None:
    kinds: set[str] = set()

    def noting(kind: Kind[RegionsEnv]) -> Kind[RegionsEnv]:
        def noted(execute: Execute[RegionsEnv]) -> Execute[RegionsEnv]:
            async def executed(env: RegionsEnv, record: Record) -> Outcome | Effect:
                kinds.add(record.kind)
                return await execute(env, record)

            return executed

        return kind._replace(steps=tuple(step._replace(execute=noted(step.execute)) for step in kind.steps))

    with mock.patch.object(every, "KINDS", tuple(map(noting, KINDS))):
        for case in CASES.values():
            await end_of(case, in_memory(tmp_path), Deaths())
    assert kinds == {kind.name for kind in KINDS}


TURNS_MAX = 60

BEGUN: dict[str, Callable[[int], tuple[str, bytes]]] = {
    "move": lambda region: (move.NAME, MOVE.encode(Move(region, TABLE, "s3"))),
    "reopen": lambda region: (move.NAME, MOVE.encode(Move(region, TABLE, reopens=True))),
    "assign": lambda region: (assign.NAME, TRANSIT.encode(Transit(region, TABLE))),
    "close": lambda region: (close.NAME, TRANSIT.encode(Transit(region, TABLE))),
}


def is_crash(record: Record) -> bool:
    return record.kind == crash.NAME


@pytest.mark.parametrize("fence", ["lease", "log"])
@pytest.mark.parametrize("what", BEGUN)
async def test_what_begins_in_any_turn_of_a_crash_opens_no_region_twice(what: str, fence: str, tmp_path: Path) -> None:
    over: list[int] = []
    for turn in range(TURNS_MAX):
        domains, service, clock = in_memory(tmp_path), Service(), Clock()
        for name in ("s1", "s2", "s3"):
            service.start(name)
        options = Options(lease_ms=LEASE_MS, fence=fence)
        for story in CREATED:
            await play(domains, service, clock, options, story, Deaths())

        async def begins(life: Life, turn: int = turn) -> None:
            await life.turns(1)
            mine = list(life.term.env.model.servers["s1", 1].regions)
            life.service.servers["s1", 1].dies()
            await life.until(lambda: any(map(is_crash, life.term.engine.records.values())))
            await life.turns(turn)
            if not any(map(is_crash, life.term.engine.live())):
                over.append(turn)
            for region in mine:
                life.term.manager.start(*BEGUN[what](region), f"{what} {region}")

        await play(domains, service, clock, options, begins, Deaths())
        if over:
            break
    assert over, "the crash lasts longer than that"
