"""The kill tests of regions on the stores that take long: all families on SQLite, and on a double of ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills.harness import Death, Deaths
from tests.kills.region_cases import CASES
from tests.kills.tally import RecordProperty
from tests.kills.test_regions import end_of, in_memory, killed_everywhere, narrow_end_of


@pytest.mark.seed("S1-3", "S1-75", "S2-3", "S3-5")
@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
@pytest.mark.parametrize("name", CASES)
async def test_a_region_procedure_on_a_durable_store_ends_as_the_clean_run(
    name: str, store: str, tmp_path: Path, record_property: RecordProperty
) -> None:
    await killed_everywhere(name, store, tmp_path, record_property)


@pytest.mark.parametrize("name", CASES)
async def test_a_region_procedure_in_parts_ends_as_the_clean_run(name: str, tmp_path: Path) -> None:
    """A server takes so little that children are born in parts; the daemon dies before and after each write."""
    expected = await end_of(CASES[name], in_memory(tmp_path), Deaths())
    clean = Deaths()
    assert await narrow_end_of(CASES[name], clean) == expected
    for number in range(1, clean.writes + 1):
        for after in (False, True):
            assert await narrow_end_of(CASES[name], Deaths([Death(number, after)])) == expected, (number, after)
