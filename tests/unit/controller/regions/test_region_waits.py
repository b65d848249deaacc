"""What operators see of waits: ages of regions in transition, overdue ones, and what fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import pytest

from controller.http.procedures import Procedure
from controller.regions import in_transition
from controller.regions.endings import Causes
from controller.regions.environment import Options
from controller.regions.in_transition import SHOWN_MAX, SLICE, Aged, Ages, counted, oldest, tell_overdue, wait_of
from controller.regions.operator.progress import Failing, failing_of, with_failures
from controller.regions.operator.ways import failures_of
from controller.regions.procedures.messages import LOG_TASK, TRANSIT, LogTask, Transit
from state_machines.procedures.kernel import STUCK_ATTEMPTS
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState
from tests.kit.regions.term import Log, stage

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
    with mock.patch.object(in_transition, "Aged", mock.Mock(side_effect=AssertionError("none of them is late"))):
        assert await tell_overdue(env, records, OVERDUE_MS) == 0
    ticks.cancel()
    assert readings(env) == 2 * SLICES
    assert records.looks_max == SLICE


async def test_the_oldest_of_many_regions_come_first_and_the_others_are_counted() -> None:
    env, _, records = world_of(old=2 * SLICE)
    built = mock.Mock(side_effect=Aged)
    with mock.patch.object(in_transition, "Aged", built):
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


def test_a_region_that_no_procedure_opens_waits_for_an_operator() -> None:
    """Its server has nothing to do for it, whatever state an ended procedure left."""
    env, _, _ = world_of(count=1)
    [region] = env.model.regions.values()
    region.server = Server("a", 1, "a:1", "", ServerState.ONLINE, {})
    env.unplaced, env.claimants = frozenset(), SimpleNamespace(held=frozenset())
    for state in (RegionState.OPENING, RegionState.CLOSING):
        region.state, region.pid = state, 7
        assert "expire a" in wait_of(region, env).remedy
        region.pid = 0
        assert wait_of(region, env) == ("a procedure begins", f"have it assigned: 'regent regions assign {region.id}'")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


@pytest.mark.seed("S1-13")
async def test_a_region_in_transition_for_long_is_named_with_its_wait_and_the_remedy(tmp_path: Path, log: Log) -> None:
    options = Options(lease_ms=20_000, startup_wait_ms=0, transit_warning_ms=50, transit_check_ms=100)
    async with stage(tmp_path, options=options) as s:
        silent = await s.join("kv-1", 1795)
        silent.answers = False
        s.submit_table("kv", 1)
        await s.until(lambda: bool(log.whole(" is OPENING for ")))
        [region] = s.term.env.model.regions.values()
        assert region.state is RegionState.OPENING, "nothing is assigned anew for it"
        line = log.whole(" is OPENING for ")[0]
    assert line.startswith(f"pid=3 ppid=2 assign: region=kv#{region.id} is OPENING for ")
    assert ", server=kv-1,1795; it waits until kv-1,1795 has opened it: see its log" in line


@pytest.mark.seed("S1-13")
async def test_of_many_regions_in_transition_some_are_named_and_the_others_counted(tmp_path: Path, log: Log) -> None:
    async with stage(tmp_path, options=Options(lease_ms=20_000, startup_wait_ms=0)) as s:
        silent = await s.join("kv-1", 1795)
        silent.answers = False
        s.submit_table("kv", 50)
        transit = s.term.env.model.transit
        await s.until(lambda: [one.state for one in transit.values()] == [RegionState.OPENING] * 50)
        records = s.term.engine.records
        assert await oldest(s.term.env, records, 50, 60_000) == ([], 0)
        await s.until(lambda: counted(s.term.env, records, transit.values(), 5).overdue == 50)
        assert await tell_overdue(s.term.env, records, 5) == 50
    assert len(log.whole("it waits until")) == SHOWN_MAX
    [rest] = log.whole("more regions are in transition")
    assert rest.startswith("30 more regions are in transition for over 0 s")


def assign(pid: int, retries: int, state: State = State.WAITING) -> Record:
    """Returns a part of the part 2 of the procedure 1, whose opens have failed so often."""
    data = TRANSIT.encode(Transit(100 + pid, "t", retries=retries))
    return Record(pid, "assign", state, 1, 0, 0, data=data, parent=2, ancestors=(2, 1))


def engine_of(*records: Record) -> Any:
    live = [one for one in records if not one.state.is_final]
    return SimpleNamespace(records={one.pid: one for one in records}, live=lambda: iter(live))


def test_the_attempts_of_a_procedure_are_those_of_the_part_that_has_most_and_the_cause_is_the_latest() -> None:
    causes = Causes()
    engine = engine_of(assign(3, 4), assign(4, 9), assign(5, 2), assign(6, 99, State.SUCCESS))
    for pid in (3, 4, 5, 6):
        causes.noted(pid, 100 + pid, f"said {pid}")
    env: Any = SimpleNamespace(causes=causes, model=SimpleNamespace(regions={}))
    found = failing_of(env, engine)
    assert found.keys() == {1, 2, 3, 4, 5}, "what has ended fails no more"
    assert found[1] == found[2] == Failing(3, 9, "on 105: said 5")
    assert found[4] == Failing(1, 9, "on 104: said 4")


def test_an_item_that_goes_on_has_the_attempts_of_its_parts_and_is_stuck_from_a_number_on() -> None:
    def item(attempts: int = 0, **fields: Any) -> Procedure:
        return with_failures(
            Procedure(pid=1, kind="create_table", state="waiting", attempts=attempts, **fields), {1: failing}
        )

    failing = Failing(3, STUCK_ATTEMPTS - 1, "on 105: said 5")
    assert (item().attempts, item().stuck) == (STUCK_ATTEMPTS - 1, False)
    assert (item(STUCK_ATTEMPTS).attempts, item(STUCK_ATTEMPTS).stuck) == (STUCK_ATTEMPTS, True)
    assert item().error.endswith("3 parts fail, the last one on 105: said 5")
    assert item(error="its own").error == "its own"
    failing = failing._replace(attempts=STUCK_ATTEMPTS)
    assert item().stuck
    ended = item(ended=True)
    assert (ended.attempts, ended.stuck, ended.error) == (0, False, "")


def test_of_many_parts_of_a_log_some_are_named_and_the_others_counted() -> None:
    def log(pid: int, failed: str) -> Record:
        data = LOG_TASK.encode(LogTask("a", 1, part=f"p{pid}", failed=failed))
        return Record(pid, "split_log", State.WAITING, 1, 0, 0, data=data)

    parts = [log(pid, "the disk is full") for pid in (3, 4, 5, 6)]
    found = failures_of(("a", 1), engine_of(*parts, log(7, "")))
    assert [one.partition(" (")[0] for one in found] == ["procedure 3", "procedure 4", "procedure 5", "and 1 more"]
    assert len(failures_of(("a", 1), engine_of(*parts[:3]))) == 3
    assert failures_of(("a", 2), engine_of(*parts)) == []
