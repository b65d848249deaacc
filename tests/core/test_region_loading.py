"""The load of a term: the loop has turns in between, and the garbage collector waits for the end."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Iterator

import pytest

from controller.regions import loading
from metadata_store.catalog.rows import Content, RegionRow, ServerRow, TableRow
from metadata_store.records.port import StoreFailed
from state_machines.regions.layout import bounds
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, TableKind, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.region_simulation.kit import running, virtual

COUNT = 40
TOGETHER = 4


@pytest.fixture
def collector() -> Iterator[None]:
    """The collector is on, as in a daemon."""
    gc.enable()
    yield
    gc.enable()


def content() -> Content:
    """Two tables whose regions a server has; one of each has an owner that is no member any more."""
    tables = [TableRow(name, TableKind.USER, TableState.ENABLED) for name in ("t", "u")]
    rows = [
        RegionRow(
            first + at + 1,
            table.name,
            *bounds((), COUNT, at),
            RegionState.OPEN,
            "a",
            1 if at else 2,
            first + at + 7,
            at,
        )
        for first, table in ((COUNT, tables[0]), (0, tables[1]))
        for at in range(COUNT)
    ]
    return Content(["default"], tables, rows, [ServerRow("a", 1, "a:1")])


async def test_regions_are_entered_in_pieces_which_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "ROWS_TOGETHER", TOGETHER)
    model, found = Regions(), content()
    wanted = {one.id: one for one in found.regions}
    entering = asyncio.ensure_future(loading.enter(model, found, 5))
    seen: list[int] = []
    while not entering.done():
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
    assert [one.id for one in await loading.lost(model)] == [COUNT + 1, 1], "those without an owner"


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
