"""The kill tests of regions on the third store, whose double of ZooKeeper takes as long as the other two together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills.region_cases import CASES
from tests.kills.tally import RecordProperty
from tests.kills.test_regions import killed_everywhere


@pytest.mark.seed("S1-3", "S1-75", "S2-3", "S3-5")
@pytest.mark.parametrize("name", CASES)
async def test_a_region_procedure_on_zookeeper_ends_as_the_clean_run(
    name: str, tmp_path: Path, record_property: RecordProperty
) -> None:
    await killed_everywhere(name, "zookeeper", tmp_path, record_property)
