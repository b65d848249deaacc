"""Ages of regions in transition: sixty thousand of them cost few readings of clocks, and no long turn of the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import pytest

from controller.regions import ages
from controller.regions.ages import SLICE, Aged, Ages, oldest
from controller.regions.overdue import SHOWN_MAX, tell
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.model import Region, Regions, Table
from state_machines.regions.states import RegionState, TableKind, TableState

COUNT = 60_000
SLICES = COUNT // SLICE
WALL_MS = 1_700_000_000_000
NOW_MS = 90_000
OVERDUE_MS = 60_000


class Looked(dict[int, Record]):
    """Records that count the looks at them in a turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.looks, self.looks_max = 0, 0

    def get(self, pid: int, default: Any = None) -> Any:
        self.looks += 1
        self.looks_max = max(self.looks_max, self.looks)
        return super().get(pid, default)

    async def turns(self) -> NoReturn:
        """Begins to count anew with each turn."""
        while True:
            self.looks = 0
            await asyncio.sleep(0)


def world_of(old: int = 0, count: int = COUNT) -> tuple[Any, Any, Looked]:
    """Returns an environment and an engine with regions whose procedures began a second ago, ``old`` ones long ago."""
    model, records = Regions(), Looked()
    table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    model.add_table(table)
    model.add_regions(table, (Region(at, table, b"%09d" % at, b"", RegionState.OFFLINE) for at in range(1, count + 1)))
    for one in table.regions:
        model.attach(one, 100_000 + one.id)
        began_ms = WALL_MS - (NOW_MS - one.id if one.id <= old else 1_000)
        records[one.pid] = Record(one.pid, "assign", State.WAITING, 1, began_ms, began_ms)
    clocks = {"now_ms": mock.Mock(return_value=NOW_MS), "wall_ms": mock.Mock(return_value=WALL_MS)}
    env: Any = SimpleNamespace(model=model, **clocks)
    return env, SimpleNamespace(records=records), records


def readings(env: Any) -> int:
    return env.now_ms.call_count + env.wall_ms.call_count  # type: ignore[no-any-return]


async def test_a_look_at_many_regions_reads_few_clocks_keeps_none_that_is_not_late_and_goes_in_slices() -> None:
    env, _, records = world_of()
    ticks = asyncio.ensure_future(records.turns())
    with mock.patch.object(ages, "Aged", mock.Mock(side_effect=AssertionError("none of them is late"))):
        assert await tell(env, records, OVERDUE_MS) == 0
    ticks.cancel()
    assert readings(env) == 2 * SLICES
    assert records.looks_max == SLICE


async def test_the_oldest_of_many_regions_come_first_and_the_others_are_counted() -> None:
    env, _, records = world_of(old=2 * SLICE)
    built = mock.Mock(side_effect=Aged)
    with mock.patch.object(ages, "Aged", built):
        found, count = await oldest(env, records, SHOWN_MAX, OVERDUE_MS)
    assert count == 2 * SLICE
    assert [(one.region.id, one.age_ms) for one in found] == [(at, NOW_MS - at) for at in range(1, SHOWN_MAX + 1)]
    assert built.call_count == SHOWN_MAX


async def test_a_region_that_is_no_longer_in_transition_at_the_end_of_a_look_is_not_listed() -> None:
    env, _, records = world_of(old=3)
    look = asyncio.ensure_future(oldest(env, records, SHOWN_MAX, OVERDUE_MS))
    await asyncio.sleep(0)
    region = env.model.regions[2]
    env.model.restate(region, RegionState.CLOSED)
    env.model.detach(region, region.pid)
    assert [one.region.id for one in (await look)[0]] == [1, 3]


async def test_a_scrape_looks_at_none_of_very_many_regions_and_shows_the_latest_count() -> None:
    env, engine, records = world_of(old=7)
    found = Ages(env, engine, OVERDUE_MS)
    ticks = asyncio.ensure_future(records.turns())
    await found.count()
    assert records.looks_max == SLICE
    ticks.cancel()
    region = env.model.regions[COUNT]
    env.model.restate(region, RegionState.CLOSED)
    env.model.detach(region, region.pid)
    records.looks_max = records.looks = 0
    assert found.present() == (COUNT - 1, 7, NOW_MS - 1)
    assert records.looks_max == 0


@pytest.mark.parametrize("count", [0, 1, SLICE])
def test_a_scrape_counts_few_regions_anew(count: int) -> None:
    env, engine, _ = world_of(old=1, count=count)
    assert Ages(env, engine, OVERDUE_MS).present() == (count, min(1, count), (NOW_MS - 1) * min(1, count))
    assert readings(env) == 2


async def test_a_clock_that_was_set_back_hides_no_region() -> None:
    env, engine, records = world_of(old=1, count=2)
    env.wall_ms.return_value = WALL_MS - 200_000
    found, count = await oldest(env, records, SHOWN_MAX)
    assert [one.age_ms for one in found] == [0, 0]
    assert count == 2
    assert Ages(env, engine, OVERDUE_MS).present() == (2, 0, 0)
