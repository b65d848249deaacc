"""A sample of the kill tests on a real ZooKeeper: daemons die before and after writes, the end is the clean one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from metadata_store.records.zookeeper import ZooKeeperRecords
from tests.contracts.records_zookeeper import opened
from tests.contracts.support import session
from tests.kills.harness import Death, Deaths
from tests.kills.tally import RecordProperty, tally
from tests.kills.test_kills import end_of, in_memory
from tests.zookeeper.real import RealBackend

EVERY = 3
"""One of so many writes is a death."""


@pytest.mark.seed("S2-1", "S2-16", "S2-22", "S2-24")
@pytest.mark.parametrize("name", ["two children", "a child fails"])
async def test_a_procedure_whose_daemon_is_killed_ends_as_the_clean_run(
    name: str, backend: RealBackend, tmp_path: Path, record_property: RecordProperty
) -> None:
    clean = Deaths()
    expected = await end_of(name, in_memory(tmp_path), clean)
    deaths = [Deaths([Death(number, number % 2 == 0)]) for number in range(1, clean.writes + 1, EVERY)]
    for number, one in enumerate([*deaths, Deaths(always=True)]):

        @asynccontextmanager
        async def store(root: str = f"/run-{number}") -> AsyncIterator[ZooKeeperRecords]:
            async with session(backend) as s:
                yield await opened(s, root)

        assert await end_of(name, store, one) == expected
        assert one.killed
    tally(record_property, name, "real zookeeper", len(deaths), doubled=1)
