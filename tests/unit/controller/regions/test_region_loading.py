"""The load of a term, in turns of the loop and before the garbage collector; at its end the model comes apart."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from controller.regions import entering, loading
from controller.regions.operator.counts import stranded
from controller.regions.procedures import assign
from controller.regions.procedures.messages import TRANSIT, Transit
from metadata_store.catalog.rows import Content, RegionRow, ServerRow, TableRow
from metadata_store.records.port import StoreFailed
from state_machines.procedures import recovery
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.layout import ranges
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, TableKind, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.daemon import regions_world, settings_of
from tests.kit.regions.world import creates, ended, running, virtual

COUNT = 40
TOGETHER = 4


@pytest.fixture
def collector() -> Iterator[None]:
    """The collector is on, as in a daemon."""
    gc.enable()
    yield
    gc.enable()


def content() -> Content:
    """Two tables whose regions a server has; one of each has an owner that was fenced, and is no member any more."""
    tables = [TableRow(name, TableKind.USER, TableState.ENABLED) for name in ("t", "u")]
    rows = [
        RegionRow(
            first + at + 1,
            table.name,
            start,
            end,
            RegionState.OPEN,
            "a",
            1 if at else 2,
            first + at + 7,
            at,
        )
        for first, table in ((COUNT, tables[0]), (0, tables[1]))
        for at, (start, end) in enumerate(ranges((), COUNT))
    ]
    return Content(["default"], tables, rows, [ServerRow("a", 1, "a:1")], {"a": 2})


async def test_regions_are_entered_in_pieces_which_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "ROWS_TOGETHER", TOGETHER)
    model, found = Regions(), content()
    wanted = {one.id: one for one in found.regions}
    begun = asyncio.ensure_future(entering.enter(model, found, 5))
    seen = [0]
    while not begun.done():
        await asyncio.sleep(0)
        seen.append(len(model.regions))
        assert len(found.regions) == 2 * COUNT - len(model.regions), "what is entered is held twice no longer than that"
    assert max(after - before for before, after in itertools.pairwise(seen)) <= TOGETHER
    for table in model.tables.values():
        assert [one.start for one in table.regions] == sorted(one.start for one in table.regions)
        assert len(table.regions) == COUNT
    [server] = model.servers.values()
    for region in model.regions.values():
        row = wanted[region.id]
        assert (region.table.name, region.start, region.end) == row[1:4]
        assert (region.token, region.sequence, region.changed_ms, region.opening) == (row.token, row.sequence, 5, 0)
        assert region.doubtful
        owned = row.incarnation == server.incarnation
        assert region.state is (RegionState.OPEN if owned else RegionState.ABNORMALLY_CLOSED)
        assert (region.id in server.regions) is owned
    assert [one.region.id for one in await loading.lost(model)] == [COUNT + 1, 1], "those without an owner"


class Watched(MemoryRegionStore):
    """A store that notes whether the collector is on while it is read, and may fail."""

    was_on: bool | None = None
    fails = False

    async def read(self) -> Content:
        Watched.was_on = gc.isenabled()
        if Watched.fails:
            raise StoreFailed("a test")
        return await super().read()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("fails", [False, True])
def test_the_collector_waits_for_the_end_of_the_load(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "fails", fails)

    @virtual
    async def story() -> None:
        try:
            async with running(RegionDisk(), store=Watched):
                assert gc.isenabled()
        except StoreFailed:
            assert fails

    story()
    assert Watched.was_on is False
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with loading.no_collections():
            pass
        assert not gc.isenabled()
    finally:
        if was_enabled:
            gc.enable()


async def test_the_model_of_an_ended_term_keeps_nothing(tmp_path: Path) -> None:
    """Its regions and tables refer to each other, which the collector does not see: each term would stay in memory."""
    async with regions_world(settings_of(tmp_path), servers=1) as world:
        assert world.domain.term is not None
        model = world.domain.term.env.model
        await ended(world.domain.term, creates(world.domain.term, regions=20))
        [table], [server] = model.tables.values(), model.servers.values()
        assert len(table.regions) == len(server.regions) == 20
    assert not table.regions
    assert not server.regions
    assert not model.regions


async def test_a_model_comes_apart_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "ROWS_TOGETHER", TOGETHER)
    model = Regions()
    await entering.enter(model, content(), 5)
    region = next(iter(model.regions.values()))
    region.table.state = TableState.ENABLED
    model.move(region, RegionState.OPENING, next(iter(model.servers.values())), 5)
    model.attach(region, 1)
    unloading = asyncio.ensure_future(loading.unload(model))
    seen = [len(model.regions)]
    while not unloading.done():
        await asyncio.sleep(0)
        seen.append(len(model.regions))
        assert stranded(model).total() >= 0, "operators may look meanwhile"
    assert max(before - after for before, after in pairwise(seen)) <= TOGETHER
    assert not any(table.regions for table in model.tables.values())


async def test_procedures_of_a_term_before_are_taken_over_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "RECORDS_TOGETHER", TOGETHER)
    async with regions_world(settings_of(tmp_path), servers=1) as world:
        assert world.domain.term is not None
        env = world.domain.term.env
        await ended(world.domain.term, creates(world.domain.term, regions=COUNT))
        records = [
            Record(
                1_000 + at,
                assign.NAME,
                State.RUNNABLE,
                0,
                5,
                5,
                data=TRANSIT.encode(Transit(region.id, "t", "a test")),
                locked=True,
            )
            for at, region in enumerate(env.model.regions.values())
        ]
        resuming, seen = asyncio.ensure_future(loading.resume(env, records, lambda pid, error: None)), [0]
        while not resuming.done():
            await asyncio.sleep(0)
            seen.append(sum(region.pid >= 1_000 for region in env.model.regions.values()))
        assert max(after - before for before, after in pairwise(seen)) == TOGETHER
        assert seen[-1] == COUNT
        for region in list(env.model.regions.values()):
            env.model.detach(region, region.pid)
