"""Carries on what an earlier revision left at each of its writes: all moments of ``tests/stories/upgrade``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.deadlines import in_exact_time
from tests.stories.upgrade import test_kafka as kafka
from tests.stories.upgrade import test_regions as regions


@pytest.mark.parametrize("name", kafka.CASES)
@in_exact_time
async def test_a_procedure_ends_alike_after_each_write(name: str) -> None:
    await kafka.end_alike(name, kafka.CASES[name].moments)


@pytest.mark.parametrize("name", regions.ON_ZOOKEEPER.cases)
async def test_a_region_procedure_ends_alike_after_each_write(name: str) -> None:
    await regions.end_alike(name, regions.ON_ZOOKEEPER.cases[name].moments)


@pytest.mark.parametrize("name", regions.ON_SQLITE.cases)
async def test_a_region_procedure_in_a_file_ends_alike_after_each_write(name: str, tmp_path: Path) -> None:
    await regions.end_alike_in_files(name, regions.ON_SQLITE.cases[name].moments, tmp_path)
