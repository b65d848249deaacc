"""A sample of the kill tests on a real ZooKeeper: daemons die before and after writes, the end is the clean one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.regions.zookeeper_store import ZooKeeperOpened
from metadata_store.records.zookeeper import ZooKeeperRecords
from tests.contracts.records_zookeeper import opened
from tests.contracts.support import session
from tests.kills.harness import Death, Deaths
from tests.kills.region_cases import CASES
from tests.kills.region_daemons import Opened
from tests.kills.region_servers import Service
from tests.kills.tally import RecordProperty, tally
from tests.kills.test_kills import end_of, in_memory
from tests.kills.test_regions import end_of as end_of_case
from tests.kills.test_regions import in_memory as regions_in_memory
from tests.real.zookeeper.real import RealBackend

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


@pytest.mark.parametrize("noded", [False, True], ids=["reports", "znodes"])
@pytest.mark.parametrize("name", ["create in pieces", "move", "crash, fence log"])
async def test_a_region_procedure_whose_daemon_is_killed_ends_as_the_clean_run(
    name: str, noded: bool, backend: RealBackend, tmp_path: Path, record_property: RecordProperty
) -> None:
    clean, case = Deaths(), CASES[name]
    expected = await end_of_case(case, regions_in_memory(tmp_path), clean)
    deaths = [Deaths([Death(number, number % 2 == 0)]) for number in range(1, clean.writes + 1, EVERY)]
    for number, one in enumerate([*deaths, Deaths(always=True)]):
        root = f"/regent/run-{number}"

        @asynccontextmanager
        async def domain(root: str = root) -> AsyncIterator[Opened]:
            found = await ZooKeeperOpened.open(backend.client, root=root, noded=noded)
            try:
                yield Opened(found.store, found.catalog, found.epoch, found.nodes)
            finally:
                await found.close()

        service = Service(backend.client if noded else None, root)
        try:
            assert await end_of_case(case, domain, one, service) == expected
        finally:
            for zk in service.sessions:
                await zk.close()
        assert one.killed
    store = "real zookeeper, znodes" if noded else "real zookeeper"
    tally(record_property, f"regions: {name}", store, len(deaths), doubled=1)
