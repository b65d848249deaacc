"""Keys that no region has go to empty regions: once no process can have them, and never while a row may be there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from controller.http.documents import NotFound, ViewRefused
from controller.http.procedures import Procedure
from controller.regions.domain import RegionsDomain
from controller.regions.operator.progress import progress_of
from controller.regions.operator.records import procedure_item
from controller.regions.operator.report import ReportView
from controller.regions.operator.requests import Change
from controller.regions.procedures import clones, fixing, snapshots, tables
from controller.regions.procedures.messages import SNAPSHOT_TASK, TABLE_TASK, SnapshotTask, TableTask
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Owned
from state_machines.procedures.outcome import Failed
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.findings import Scope
from state_machines.regions.references import keys_lost
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import Inheriting, splits
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    at_rest,
    changes,
    creates,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

S = RegionState
LONG = replace(OPTIONS, lease_ms=100_000)
COUNT = 5


def view_on(term: RegionsTerm) -> RegionsDomain:
    return cast("RegionsDomain", SimpleNamespace(term=term))


async def fixes(term: RegionsTerm, *, dry_run: bool = False, table: str = "t") -> Procedure:
    """Requests what the report names."""
    changes = view_of(view_on(term)).table_changes
    return await changes.fix_keys(table, Change(reason="its row is lost", dry_run=dry_run), "ops")


async def counts_of(term: RegionsTerm) -> dict[str, int]:
    return (await ReportView(view_on(term)).report(Scope())).counts


@asynccontextmanager
async def with_holes(disk: RegionDisk, *positions: int) -> AsyncIterator[tuple[RegionsTerm, list[Owned]]]:
    """Runs a term on a store that has lost rows of regions; server a had all of them, and has what it listed before."""
    async with running(disk, LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=COUNT))
        owned = lists(regions_of(term))
        rows = sorted(disk.regions.values(), key=lambda one: one.start)
    for at in positions:
        del disk.regions[rows[at].id]
    async with running(disk, LONG) as term:
        yield term, owned


async def registers(term: RegionsTerm, owned: list[Owned]) -> tuple[Server, asyncio.Task[None]]:
    """Has server a register with what it has; it serves then, and does what is wanted."""
    server = Server(term, "a")
    server.has = {one.region: one.token for one in owned}
    await server.register(*owned)
    return server, asyncio.ensure_future(server.serve())


@pytest.mark.seed("S1-96")
@pytest.mark.parametrize("gone", [(0,), (2,), (4,), (1, 2), (0, 2, 4), (0, 1, 2, 3, 4)])
def test_keys_without_a_region_get_an_empty_one_that_is_opened(gone: tuple[int, ...]) -> None:
    @virtual
    async def story() -> None:
        async with with_holes(RegionDisk(), *gone) as (term, owned):
            _, task = await registers(term, owned)
            found = (await ReportView(view_on(term)).report(Scope())).findings
            assert {one.kind for one in found} == {"hole"}
            assert all("'regent tables fix-keys t' gives the keys to an empty region" in one.mend for one in found)
            planned = await fixes(term, dry_run=True)
            assert (planned.pid, len(regions_of(term))) == (0, COUNT - len(gone))
            assert f"{len(found)} empty region" in planned.detail
            record = await term.engine.result((await fixes(term)).pid)
            assert (record.state, record.result) == (State.SUCCESS, b"0")
            stored = procedure_item(record).result.partition("; ")[0]
            new = sorted({one.id for one in regions_of(term)} - {one.region for one in owned})
            first, last = f"#{new[0]}", f"#{new[0]} to #{new[-1]}"
            assert stored == (f"1 region stored, {first}" if len(new) == 1 else f"{len(new)} regions stored, {last}")
            await at_rest(term)
            assert await counts_of(term) == {}
            regions = regions_of(term)
            assert [one.start for one in regions[1:]] == [one.end for one in regions[:-1]]
            assert {one.state for one in regions} == {S.OPEN}
            assert not term.env.model.damages.gaps, "clients get routes to the keys again"
            routes = await Server(term, "c").ask(protocol.Locate("t", b"0"))
            assert isinstance(routes, protocol.Routes), routes
            task.cancel()

    story()


@virtual
async def test_a_process_that_has_a_region_without_a_row_closes_it_before_its_keys_go_to_another() -> None:
    disk = RegionDisk()
    async with with_holes(disk, 2) as (term, owned):
        pid = (await fixes(term)).pid
        await asyncio.sleep(2)
        assert (len(regions_of(term)), term.engine.records[pid].step) == (COUNT - 1, fixing.FIND)
        told = progress_of(term.engine.records[pid], term.env, term.engine)
        assert "it waits: a,1 did not list their regions since the daemon started" in told
        server = Server(term, "a")
        await server.register(*owned)
        await asyncio.sleep(2)
        assert len(regions_of(term)) == COUNT - 1, "the server serves the keys still"
        told = progress_of(term.engine.records[pid], term.env, term.engine)
        assert f"it waits: a,1 has region {owned[2].region}, of which no row tells, and is to close it" in told
        close = await server.operation()
        assert isinstance(close, protocol.Close)
        assert close.region == owned[2].region
        await server.report(server.do(close))
        opened = await server.operation()
        assert isinstance(opened, protocol.Open)
        assert opened.region not in {one.region for one in owned}
        await server.report(server.do(opened))
        assert (await term.engine.result(pid)).state is State.SUCCESS
        await at_rest(term)


@virtual
async def test_of_two_repairs_at_once_one_fills_the_keys_and_the_other_finds_none() -> None:
    async with with_holes(RegionDisk(), 1, 3) as (term, owned):
        _, task = await registers(term, owned)
        data = TABLE_TASK.encode(TableTask("t"))
        pids = [await procedure(term, fixing.NAME, data) for _ in range(2)]
        records = [await term.engine.result(pid) for pid in pids]
        assert [one.state for one in records] == [State.SUCCESS, State.SUCCESS]
        assert [TABLE_TASK.decode(one.data).made for one in records] == [2, 0]
        assert await counts_of(term) == {}
        task.cancel()


def test_keys_that_are_too_many_for_one_repair_are_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixing, "FILLED_MAX", 2)

    @virtual
    async def story() -> None:
        async with with_holes(RegionDisk(), 0, 2, 4) as (term, owned):
            _, task = await registers(term, owned)
            for left in ({"hole": 1}, {}):
                assert (await term.engine.result((await fixes(term)).pid)).state is State.SUCCESS
                await at_rest(term)
                assert await counts_of(term) == left
            task.cancel()

    story()


@virtual
async def test_a_repair_waits_until_a_split_of_the_table_has_ended() -> None:
    async with with_holes(RegionDisk(), 4) as (term, owned):
        server = Inheriting(term, "a")
        await server.register(*owned)
        first = regions_of(term)[0]
        await until(lambda: not term.env.claimants.processes)
        split = await splits(term, first, b"1")
        await until(lambda: first.pid)
        repair = await procedure(term, fixing.NAME, TABLE_TASK.encode(TableTask("t")))
        await asyncio.sleep(2)
        assert not term.engine.records[repair].locked
        task = asyncio.ensure_future(server.serve())
        for pid in (split, repair):
            assert (await term.engine.result(pid)).state is State.SUCCESS
        await at_rest(term)
        assert [one.start for one in regions_of(term)[1:]] == [one.end for one in regions_of(term)[:-1]]
        task.cancel()


@virtual
async def test_keys_of_a_disabled_table_get_a_region_that_stays_closed() -> None:
    async with with_holes(RegionDisk(), 2) as (term, owned):
        _, task = await registers(term, owned)
        await ended(term, changes(term, "disable"))
        assert (await term.engine.result((await fixes(term)).pid)).result == b"0"
        assert {one.state for one in regions_of(term)} == {S.CLOSED}
        await ended(term, changes(term, "enable"))
        assert {one.state for one in regions_of(term)} == {S.OPEN}
        task.cancel()


@virtual
async def test_a_repair_that_has_nothing_to_do_or_may_take_keys_from_a_region_is_refused() -> None:
    disk = RegionDisk()
    async with running(disk, LONG) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=COUNT))
        with pytest.raises(ViewRefused, match="each key of table 't' has a region"):
            await fixes(term)
        with pytest.raises(NotFound, match="table 'w' does not exist"):
            await fixes(term, table="w")
        term.env.model.tables["t"].state = TableState.ENABLING
        with pytest.raises(ViewRefused, match="table 't' is enabling, and must be enabled or disabled"):
            await fixes(term)
        record = await term.engine.result(await procedure(term, fixing.NAME, TABLE_TASK.encode(TableTask("w"))))
        assert (record.state, record.error) == (State.ROLLEDBACK, "fix_keys: table 'w' does not exist")
    bad = min(disk.regions.values(), key=lambda one: one.start)
    disk.regions[bad.id] = bad._replace(state=99)
    async with running(disk, LONG) as term:
        with pytest.raises(
            ViewRefused, match=f"may have a region for its keys: region {bad.id}: state is 99"
        ) as refused:
            await fixes(term)
        assert "'regent regions report' names what mends them" in refused.value.remedy
        record = await term.engine.result(await procedure(term, fixing.NAME, TABLE_TASK.encode(TableTask("t"))))
        assert record.state is State.ROLLEDBACK


@pytest.mark.seed("S1-96")
@pytest.mark.parametrize("at", [snapshots.STAGE, snapshots.LIST])
def test_no_snapshot_is_made_of_a_table_that_has_lost_keys_be_it_meanwhile(at: int) -> None:
    @virtual
    async def story() -> None:
        async with with_holes(RegionDisk(), 2) as (term, owned):
            server, task = await registers(term, owned)
            server.features = (*server.features, *snapshots.NEEDED)
            wanted = "have no region: 'regent regions report --table t' names what mends that"
            assert wanted in (snapshots.problem_of(term.env, "s", "t") or "")
            assert wanted in (keys_lost(term.env.model, "t") or "")
            step = {snapshots.STAGE: snapshots.stage, snapshots.LIST: snapshots.list_regions}[at]
            data = SNAPSHOT_TASK.encode(SnapshotTask("s", "t", id="7-1"))
            outcome = await step(term.env, Record(7, snapshots.MAKE, State.RUNNABLE, at, 0, 0, data=data))
            assert isinstance(outcome, Failed)
            assert wanted in outcome.error
            await ended(term, changes(term, "disable"))
            clone = TABLE_TASK.encode(TableTask("c", source="t"))
            record = await term.engine.result(await procedure(term, tables.CLONE, clone))
            assert (record.state, wanted in record.error) == (State.ROLLEDBACK, True)
            task.cancel()

    story()


@pytest.mark.parametrize("gone", [2, 4])
def test_a_clone_ends_whose_source_has_lost_a_region_since_it_began(gone: int) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk, LONG) as term, serving(Server(term, "a")):
            await ended(term, creates(term, regions=COUNT))
            await ended(term, changes(term, "disable"))
            rows = sorted(disk.regions.values(), key=lambda one: one.start)
            first = await term.env.reserve(COUNT)
        del disk.regions[rows[gone].id]
        async with running(disk, LONG) as term:
            for made in (0, COUNT - 1):
                task = TableTask("c", source="t", first_id=first, count=COUNT, made=made)
                data = TABLE_TASK.encode(task)
                outcome = await clones.metadata(term.env, Record(7, tables.CLONE, State.RUNNABLE, 1, 0, 0, data=data))
                assert isinstance(outcome, Failed), outcome

    story()
