"""Changes of whole tables: their regions are replaced, opened again with other options, stopped and started."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from controller.regions.environment import Options
from controller.regions.operator.progress import progress_of
from controller.regions.procedures import modification, stopping, tables
from controller.regions.procedures.messages import MOVE, TABLE_TASK, Move, TableTask
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import DropRegions
from regent_agent import protocol
from regent_agent.protocol import Operation, Result
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.marks import MarkKind
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    at_rest,
    changes,
    creates,
    ended,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

S, T = RegionState, TableState


class Noting(Server):
    """A server that notes what it opens, with the options, and how many of its regions are away at a time."""

    def __init__(self, term: RegionsTerm, name: str) -> None:
        super().__init__(term, name)
        self.opens: list[tuple[int, dict[str, str]]] = []
        self.holds = 0
        """A region whose open it does only once the test says so."""
        self.held: dict[int, Operation] = {}
        self.away = self.away_max = 0

    async def serve(self) -> None:
        while True:
            operations = await self.poll()
            held = {
                one.region: one for one in operations if isinstance(one, protocol.Open) and one.region == self.holds
            }
            self.held |= held
            if results := [self.do(one) for one in operations if one not in held.values()]:
                await self.report(*results)

    def do_held(self, region: int) -> Result:
        self.holds = 0
        return self.do(self.held.pop(region))

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, protocol.Open):
            self.opens.append((operation.region, operation.options))
            self.away -= self.away > 0
        elif isinstance(operation, protocol.Close):
            self.away += 1
            self.away_max = max(self.away_max, self.away)
        return super().do(operation)


class Gated(MemoryRegionStore):
    """A store whose writes with some rows wait while its gate is shut."""

    def __init__(self, disk: RegionDisk) -> None:
        super().__init__(disk)
        self.shut: Callable[[object], bool] = lambda _: False

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        rows = tuple(rows)
        while any(map(self.shut, rows)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await super().write(puts, deletes, rows)


@asynccontextmanager
async def stage(
    disk: RegionDisk,
    regions: int = 4,
    options: Options = OPTIONS,
    store: Callable[[RegionDisk], MemoryRegionStore] = MemoryRegionStore,
) -> AsyncIterator[tuple[RegionsTerm, Noting, Noting]]:
    """Runs a term with two servers and a table."""
    async with running(disk, options, store=store) as term:
        one, two = Noting(term, "a"), Noting(term, "b")
        async with serving(one, two):
            await ended(term, creates(term, regions=regions))
            yield term, one, two


async def run(term: RegionsTerm, kind: str, **fields: object) -> Record:
    """Runs a change of table t to its end."""
    task = TableTask(**{"table": "t", **fields})  # type: ignore[arg-type]
    return await term.engine.result(await procedure(term, kind, TABLE_TASK.encode(task)))


@pytest.mark.seed("S1-9")
@virtual
async def test_a_truncated_table_has_the_same_keys_and_new_regions() -> None:
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        await ended(term, changes(term, "disable"))
        before = [(region.id, region.start, region.end) for region in regions_of(term)]
        record = await run(term, tables.TRUNCATE, enables=True)
        assert (record.state, record.result) == (State.SUCCESS, b"0")
        after = [(region.id, region.start, region.end) for region in regions_of(term)]
        assert [keys for _, *keys in after] == [keys for _, *keys in before]
        assert min(id_ for id_, *_ in after) > max(id_ for id_, *_ in before), "no id is used twice"
        assert {(region.state, region.sequence) for region in regions_of(term)} == {(S.OPEN, 1)}
        assert {*one.has, *two.has} == {id_ for id_, *_ in after} == disk.regions.keys()
        assert disk.tables["t"].state == T.ENABLED
        await at_rest(term)


@virtual
async def test_a_table_is_truncated_to_one_region_and_stays_disabled() -> None:
    disk = RegionDisk()
    async with stage(disk) as (term, one, two):
        await ended(term, changes(term, "disable"))
        term.env.rows_max = 2
        record = await run(term, tables.TRUNCATE, drops_splits=True)
        assert record.state is State.SUCCESS
        assert [(row.start, row.end, row.state) for row in disk.regions.values()] == [(b"", b"", S.OFFLINE)]
        assert (disk.tables["t"].state, one.has, two.has) == (T.DISABLED, {}, {})
        assert await ended(term, changes(term, "enable")) == b"0"
        await at_rest(term)


@virtual
async def test_an_ended_truncation_leaves_a_table_that_is_truncated_again_or_deleted() -> None:
    """Once it has begun nothing is undone: its data may be gone. No client sees the table until it is whole."""
    disk = RegionDisk()
    gated = Gated(disk)
    async with stage(disk, store=lambda _: gated) as (term, one, _):
        assert (await run(term, tables.TRUNCATE)).error == "truncate_table: table 't' is enabled, and must be disabled"
        await ended(term, changes(term, "disable"))
        term.env.rows_max = 2
        gated.shut = lambda row: isinstance(row, DropRegions) and len(regions_of(term)) == 2
        pid = await procedure(term, tables.TRUNCATE, TABLE_TASK.encode(TableTask("t", drops_splits=True)))
        await until(lambda: len(regions_of(term)) == 2)
        record = term.engine.records[pid]
        assert progress_of(record, term.env, term.engine) == "2 regions left to make way for one"
        bypassed = asyncio.ensure_future(term.engine.bypass(pid))
        await asyncio.sleep(0.1)
        gated.shut = lambda _: False
        await bypassed
        assert (await term.engine.result(pid)).bypassed
        found = await one.ask(protocol.ListRoutes("t"))
        assert isinstance(found, protocol.Refused)
        assert found.code == protocol.UNKNOWN_TABLE
        assert "must be disabled" in (await term.engine.result(await changes(term, "enable"))).error
        assert "truncate it to one region, or delete it" in (await run(term, tables.TRUNCATE)).error
        assert (await run(term, tables.TRUNCATE, drops_splits=True, enables=True)).result == b"0"
        assert [region.state for region in regions_of(term)] == [S.OPEN]
        await at_rest(term)


@virtual
async def test_regions_get_the_changed_options_of_their_table_some_at_a_time() -> None:
    disk = RegionDisk()
    async with stage(disk, regions=12, options=Options(lease_ms=3_000, startup_wait_ms=0, reopen_per_server=2)) as (
        term,
        one,
        two,
    ):
        owners = {region.id: region.server for region in regions_of(term)}
        for server in (one, two):
            server.opens.clear()
        record = await run(term, modification.NAME, options={"ttl": "60", "codec": "lz4"})
        assert record.state is State.SUCCESS
        opened = [found for server in (one, two) for found in server.opens]
        assert Counter(region for region, _ in opened) == Counter(list(owners)), "each was opened again once"
        assert all(options == {"ttl": "60", "codec": "lz4"} for _, options in opened)
        assert one.away_max == two.away_max == 2, "regions.reopen_per_server"
        assert {region.id: region.server for region in regions_of(term)} == owners, "each where it was"
        assert (disk.tables["t"].options, disk.tables["t"].version) == ((("codec", "lz4"), ("ttl", "60")), 1)
        assert {row.version for row in disk.regions.values()} == {1}
        await ended(term, creates(term, name="a", regions=2))
        assert (await run(term, modification.NAME, table="a", options={"ttl": "1"})).state is State.SUCCESS
        await run(term, modification.NAME, removed=("ttl",))
        assert disk.tables["t"].options == (("codec", "lz4"),)
        await at_rest(term)


@virtual
async def test_what_moved_meanwhile_is_not_opened_again_and_a_disable_ends_the_rest() -> None:
    disk = RegionDisk()
    async with stage(disk, regions=6) as (term, one, two):
        pid = await procedure(
            term, modification.NAME, TABLE_TASK.encode(TableTask("t", options={"ttl": "60"}, together=1))
        )
        await until(lambda: any(region.version for region in regions_of(term)))
        assert "of 6 regions reopened" in progress_of(term.engine.records[pid], term.env, term.engine)
        await ended(term, changes(term, "disable"))
        record = await term.engine.result(pid)
        assert record.result.startswith(b"superseded by procedure ")
        assert (disk.tables["t"].state, disk.tables["t"].version) == (T.DISABLED, 1)
        opened = len(one.opens) + len(two.opens)
        await ended(term, changes(term, "enable"))
        assert len(one.opens) + len(two.opens) == opened + 6, "they open with the new options now"
        assert {row.version for row in disk.regions.values()} == {1}
        await at_rest(term)


@virtual
async def test_an_open_that_was_sent_with_former_options_is_done_again() -> None:
    """The change of options waits for a region that moves meanwhile, and looks at what it was opened with."""
    disk = RegionDisk()
    async with stage(disk, regions=3) as (term, one, two):
        region = next(region for region in regions_of(term) if region.id in one.has)
        two.holds = region.id
        moving = await procedure(term, "move", MOVE.encode(Move(region.id, "t", "b")))
        await until(lambda: region.id in two.held)
        pid = await procedure(term, modification.NAME, TABLE_TASK.encode(TableTask("t", options={"ttl": "60"})))
        await until(lambda: sum(other.version for other in regions_of(term)) == 2)
        await asyncio.sleep(2)
        assert not term.engine.records[pid].state.is_final, "it waits for the region"
        await two.report(two.do_held(region.id))
        assert (await term.engine.result(moving)).result == b"open"
        assert (await term.engine.result(pid)).state is State.SUCCESS
        assert [options for id_, options in two.opens if id_ == region.id] == [{}, {"ttl": "60"}]
        await at_rest(term)


@virtual
async def test_a_failover_goes_on_with_the_regions_that_have_former_options() -> None:
    disk = RegionDisk()
    async with stage(disk, regions=6) as (term, _, _two):
        await procedure(term, modification.NAME, TABLE_TASK.encode(TableTask("t", options={"ttl": "60"}, together=1)))
        await until(lambda: sum(region.version for region in regions_of(term)) == 2)
    done = {row.id for row in disk.regions.values() if row.version}
    async with running(disk) as term:
        one, two = Noting(term, "a"), Noting(term, "b")
        for server in (one, two):
            server.has = {row.id: row.token for row in disk.regions.values() if row.server == server.name}
            await server.register(*(protocol.Owned(id_, token) for id_, token in server.has.items()))
        tasks = [asyncio.ensure_future(server.serve()) for server in (one, two)]
        await until(lambda: all(row.version for row in disk.regions.values()))
        await at_rest(term)
        assert done.isdisjoint({region for server in (one, two) for region, _ in server.opens}), "these were done"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.seed("S3-4")
@virtual
async def test_all_tables_stop_and_start_and_regions_return_to_their_servers() -> None:
    disk = RegionDisk()
    async with stage(disk, regions=5) as (term, one, two):
        await ended(term, creates(term, name="m", regions=2))
        await ended(term, creates(term, name="off", regions=1))
        await ended(term, procedure(term, "disable_table", TABLE_TASK.encode(TableTask("off"))))
        first = min(one.has)
        moved = Move(first, term.env.model.regions[first].table.name, "b")
        await ended(term, procedure(term, "move", MOVE.encode(moved)))
        had = [dict(one.has), dict(two.has)]
        assert await ended(term, procedure(term, stopping.STOP, stopping.STOP_TASK.encode(stopping.StopTask()))) == b"2"
        assert (one.has, two.has) == ({}, {})
        assert [(mark.kind, mark.subject) for mark in term.env.model.marks if mark.kind is not MarkKind.LEVEL] == [
            (MarkKind.STOPPED, "m"),
            (MarkKind.STOPPED, "t"),
        ]
        assert {row.state for row in disk.tables.values()} == {T.DISABLED}
        assert {row.former for row in disk.regions.values()} == {"a", "b"}
    async with running(disk) as term:
        one, two = Noting(term, "a"), Noting(term, "b")
        two.incarnation = 2
        async with serving(one, two):
            start = stopping.STOP_TASK.encode(stopping.StopTask())
            assert await ended(term, procedure(term, stopping.START, start)) == b"2"
            assert [server.has.keys() for server in (one, two)] == [has.keys() for has in had], "each where it was"
            assert [mark.kind for mark in term.env.model.marks] == [MarkKind.LEVEL]
            assert {name: row.state for name, row in disk.tables.items()} == {
                "m": T.ENABLED, "off": T.DISABLED, "t": T.ENABLED,
            }  # fmt: skip
            await at_rest(term)
