"""Every procedure of the regions' domain, with the daemon killed before and after each write of its store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest

from controller.regions.environment import Options
from controller.regions.kinds import assign, close, many, move, servers
from controller.regions.kinds.messages import CRASH, MOVE, TABLE_TASK, TRANSIT, Crash, Move, TableTask, Transit
from controller.regions.zookeeper_store import ZooKeeperOpened
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.sqlite import SqliteRecords
from regent_agent import protocol
from state_machines.procedures.record import Record
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.contracts.memory import MemoryBackend
from tests.kills.harness import Clock, Death, Deaths
from tests.kills.region_daemons import LEASE_MS, Domains, End, Life, Opened, Story, play
from tests.kills.region_servers import Service
from tests.kills.tally import RecordProperty, tally

TABLE: Final = "t"


# -- what operators do


async def create(life: Life) -> Record:
    task = TableTask(TABLE, splits=(b"g", b"n", b"t"))
    return await life.run("create_table", TABLE_TASK.encode(task))


async def create_and_abort(life: Life) -> Record:
    """Creates a table; the operator aborts once some of its rows are stored."""
    task = TableTask(TABLE, uniform=12)

    def is_half_made(record: Record) -> bool:
        return TABLE in life.term.env.model.tables or record.state.is_final

    return await life.run("create_table", TABLE_TASK.encode(task), aborts=is_half_made)


def changes(kind: str) -> Story:
    async def story(life: Life) -> Record:
        return await life.run(kind, TABLE_TASK.encode(TableTask(TABLE)))

    return story


async def assigns(life: Life) -> Record:
    region = first(life)
    return await life.run(assign.NAME, TRANSIT.encode(Transit(region, TABLE)))


async def fails_once(life: Life) -> Record:
    life.service.failing = {first(life): [protocol.FAILED_OPEN]}
    return await life.run(assign.NAME, TRANSIT.encode(Transit(first(life), TABLE, "fails")))


async def closes(life: Life) -> Record:
    return await life.run(close.NAME, TRANSIT.encode(Transit(first(life), TABLE)))


def moves(*, reopens: bool = False) -> Story:
    async def story(life: Life) -> Record:
        to = "" if reopens else "s3"
        return await life.run(move.NAME, MOVE.encode(Move(first(life), TABLE, to, "", reopens)))

    return story


async def drains(life: Life) -> Record:
    return await life.run(servers.DRAIN, CRASH.encode(Crash("s1", 1)))


async def leaves(life: Life) -> None:
    """A server stops: it repeats its request until it has nothing left."""
    server = life.service.servers["s1", 1]
    while server.alive:
        await life.until(lambda: server.key in life._here)
        response = await life.term.service.handle(protocol.Leave(*server.key, server.epoch))
        if isinstance(response, protocol.Left) and response.regions:
            await life.turns(3)
        else:
            server.dies()


async def crashes(life: Life) -> None:
    life.service.servers["s1", 1].dies()


async def restarts(life: Life) -> None:
    """A process ends, and the next one of the same server comes at once."""
    life.service.servers["s1", 1].dies()
    if ("s1", 2) not in life.service.servers:
        life.service.start("s1", 2)


def crashes_while(story: Story) -> Story:
    """A server crashes while an operator's procedure is under way."""

    async def both(life: Life) -> Record | None:
        life.service.servers["s1", 1].dies()
        return await story(life)

    return both


async def has_a_stray(life: Life) -> None:
    """A server has a region that is another one's, since before this daemon began."""
    owner = life.service.owners[first(life)]
    other = next(one for one in life.service.alive if one is not owner)
    if not life.service.strays:
        other.owned[first(life)] = 1
        life.service.strays.append(other)
    await life.until(lambda: first(life) not in life.service.strays[0].owned)


def first(life: Life) -> int:
    """Returns the id of the table's first region."""
    return life.term.env.model.tables[TABLE].regions[0].id


# -- stories


async def nothing(life: Life) -> None:
    await life.until(lambda: len(life._here) == len(life.service.alive))


class Case(NamedTuple):
    """A story whose daemon is killed, the stories before it, settings, and answers of the first open of a region.

    ``pieces``: one region for each step and batch, and two batches at a time.
    """

    story: Story
    before: tuple[Story, ...] = ()
    options: Mapping[str, Any] = {}
    failing: tuple[str, ...] = ()
    pieces: bool = False


CREATED: Final = (nothing, create)
DISABLED: Final = (*CREATED, changes("disable_table"))
FAILED: Final = (protocol.FAILED_OPEN,)

CASES: dict[str, Case] = {
    "create": Case(create, (nothing,)),
    "create in pieces": Case(create, (nothing,), pieces=True),
    "create in pieces and abort": Case(create_and_abort, (nothing,), pieces=True),
    "disable in pieces": Case(changes("disable_table"), CREATED, pieces=True),
    "enable in pieces": Case(changes("enable_table"), DISABLED, pieces=True),
    "delete in pieces": Case(changes("delete_table"), DISABLED, pieces=True),
    "create a table that exists": Case(
        lambda life: life.run("create_table", TABLE_TASK.encode(TableTask(TABLE, uniform=2))), CREATED
    ),
    "create and no server comes at first": Case(create),
    "disable": Case(changes("disable_table"), CREATED),
    "enable": Case(changes("enable_table"), DISABLED),
    "delete": Case(changes("delete_table"), DISABLED),
    "delete an enabled table": Case(changes("delete_table"), CREATED),
    "assign": Case(assigns, (*CREATED, closes)),
    "assign after three failures": Case(assigns, (*CREATED, closes), failing=3 * FAILED),
    "assign that nobody can": Case(assigns, (*CREATED, closes), {"open_attempts_max": 2}, failing=2 * FAILED),
    "assign what failed before": Case(assigns, (*CREATED, closes, fails_once), {"open_attempts_max": 1}),
    "assign to busy servers": Case(assigns, (*CREATED, closes), failing=(protocol.BUSY, protocol.NOT_RUNNING)),
    "assign what is open": Case(assigns, CREATED),
    "close": Case(closes, CREATED),
    "close what is closed": Case(closes, (*CREATED, closes)),
    "move": Case(moves(), CREATED),
    "move what is closed": Case(moves(), (*CREATED, closes)),
    "reopen": Case(moves(reopens=True), CREATED),
    "drain": Case(drains, CREATED),
    "leave": Case(leaves, CREATED),
    "stray": Case(has_a_stray, CREATED),
    **{f"crash, fence {fence}": Case(crashes, CREATED, {"fence": fence}) for fence in ("lease", "log")},
    **{f"restart, fence {fence}": Case(restarts, CREATED, {"fence": fence}) for fence in ("lease", "log")},
    **{
        f"crash while {name}": Case(crashes_while(story), before, {"fence": fence})
        for name, story, before, fence in (
            ("moving", moves(), CREATED, "lease"),
            ("reopening", moves(reopens=True), CREATED, "log"),
            ("closing", closes, CREATED, "lease"),
            ("assigning", assigns, CREATED, "lease"),
            ("draining", drains, CREATED, "log"),
            ("disabling", changes("disable_table"), CREATED, "lease"),
            ("enabling", changes("enable_table"), DISABLED, "log"),
            ("creating", create, (nothing,), "lease"),
        )
    },
}


# -- stores


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


def on_zookeeper(_: Path) -> Domains:
    backend = MemoryBackend()

    @asynccontextmanager
    async def domain() -> AsyncIterator[Opened]:
        found = await ZooKeeperOpened.open(backend.client)
        try:
            yield Opened(found.store, found.catalog, found.epoch)
        finally:
            await found.close()

    return domain


STORES: dict[str, Callable[[Path], Domains]] = {"memory": in_memory, "sqlite": on_sqlite, "zookeeper": on_zookeeper}


async def end_of(case: Case, domains: Domains, deaths: Deaths) -> End:
    """Plays a case; only the daemons of its last story die."""
    service, clock = Service(), Clock()
    with mock.patch.multiple(many, TOGETHER=1, BATCHES_MAX=2) if case.pieces else nullcontext():
        return await _end_of(case, domains, deaths, service, clock)


async def _end_of(case: Case, domains: Domains, deaths: Deaths, service: Service, clock: Clock) -> End:
    for name in ("s1", "s2", "s3"):
        service.start(name)
    options = Options(lease_ms=LEASE_MS, **case.options)
    for story in case.before:
        await play(domains, service, clock, options, story, Deaths(), pieces=case.pieces)
    service.failing = {min(service.tokens, default=0): list(case.failing)} if case.failing else {}
    return await play(domains, service, clock, options, case.story, deaths, pieces=case.pieces)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", CASES)
async def test_a_region_procedure_whose_daemon_is_killed_at_any_write_ends_as_the_clean_run(
    name: str, store: str, tmp_path: Path, record_property: RecordProperty
) -> None:
    clean, case = Deaths(), CASES[name]
    expected = await end_of(case, in_memory(tmp_path), clean)
    print(expected, clean.writes)
    deaths = [Deaths([Death(number, after)]) for number in range(1, clean.writes + 1) for after in (False, True)]
    for number, one in enumerate([*deaths, Deaths(always=True)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert await end_of(case, STORES[store](folder), one) == expected, one._deaths
        assert one.killed, "the run had fewer writes than the clean one"
    tally(record_property, f"regions: {name}", store, len(deaths), doubled=1)
