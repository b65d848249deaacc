"""Regions that are in transition for long: a line for each names its wait and the remedy, and nothing is done to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.regions.ages import counted, oldest
from controller.regions.environment import Options
from controller.regions.overdue import SHOWN_MAX, tell
from state_machines.regions.states import RegionState
from tests.kit.regions_kit import Log, stage


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
        assert await tell(s.term.env, records, 5) == 50
    assert len(log.whole("it waits until")) == SHOWN_MAX
    [rest] = log.whole("more regions are in transition")
    assert rest.startswith("30 more regions are in transition for over 0 s")
