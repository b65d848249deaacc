"""Faults, kills and commands of regions at length, on each store: no double owner, nothing left at rest."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import SystemRandom

import pytest

from tests.kills.harness import Death, Deaths
from tests.kills.region_cases import CASES
from tests.kills.tally import RecordProperty
from tests.kills.test_regions import STARTS, ZNODES, end_of, in_memory, killed_everywhere, narrow_end_of
from tests.simulation.regions.situations import SITUATIONS
from tests.simulation.regions.ways_out import ALL, EVENTS, played, played_names
from tests.verify.region_fuzz.stage import FENCES, ROUND_S, STORES, Stage

SECONDS = float(os.environ.get("REGENT_FUZZ_S") or 600)
"""Time on each store."""
LATE = 3


@pytest.mark.timeout(LATE * SECONDS + 900)
@pytest.mark.parametrize("store", STORES)
async def test_nothing_is_left_that_operators_cannot_end_or_see(
    store: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    seed = int(os.environ.get("REGENT_SEED") or SystemRandom().randrange(10**6))
    fence = FENCES[seed % len(FENCES)]
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))  # the path of a socket has at most 96 bytes
    print(f"REGENT_SEED={seed} repeats this run's choices, fence {fence}; its logs are in {folder}")
    stage = Stage(folder, store, fence, seed)
    await stage.run(SECONDS, ROUND_S)
    print(stage.figures())
    assert stage.owners.counts["opens"]
    assert not stage.faults(), "\n".join(stage.faults()[:20])


@pytest.mark.seed("S1-3", "S1-75", "S2-3", "S3-5")
@pytest.mark.parametrize("store", ["sqlite", "zookeeper", ZNODES, STARTS])
@pytest.mark.parametrize("name", CASES)
async def test_a_region_procedure_on_a_durable_store_ends_as_the_clean_run(
    name: str, store: str, tmp_path: Path, record_property: RecordProperty
) -> None:
    await killed_everywhere(name, store, tmp_path, record_property)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.whole])
async def test_a_region_procedure_in_parts_ends_as_the_clean_run(name: str, tmp_path: Path) -> None:
    """A server takes so little that children are born in parts; the daemon dies before and after each write."""
    expected = await end_of(CASES[name], in_memory(tmp_path), Deaths())
    clean = Deaths()
    assert await narrow_end_of(CASES[name], clean) == expected
    for number in range(1, clean.writes + 1):
        for after in (False, True):
            assert await narrow_end_of(CASES[name], Deaths([Death(number, after)])) == expected, (number, after)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_command_has_a_way_out_whatever_happened_in_a_situation(situation: str) -> None:
    failed: dict[str, str] = {}
    for play in ALL:
        if play.situation == situation:
            try:
                played(play)
            except AssertionError as error:
                failed[str(play)] = str(error)[:300]
    assert not failed


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("event", EVENTS)
def test_every_command_that_an_explanation_names_is_accepted_whatever_happened(event: str, situation: str) -> None:
    played_names(situation, event)
