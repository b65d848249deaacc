"""Some procedures on regions that an earlier revision began are carried on in a real ZooKeeper, from their middle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

from controller.regions.zookeeper_claim import ROOT
from controller.regions.zookeeper_store import ZooKeeperOpened
from tests.contracts.support import session
from tests.kills.region_daemons import Opened
from tests.kit.journals import Book
from tests.real.zookeeper.real import RealBackend
from tests.stories.upgrade.golden import SOME, Moment
from tests.stories.upgrade.test_regions import ON_ZOOKEEPER, carried_on


async def test_region_procedures_that_an_earlier_revision_began_end_as_its_own(backend: RealBackend) -> None:
    for number, (name, case) in islice(enumerate(ON_ZOOKEEPER.cases.items()), None, None, SOME):
        moment, root = case.moments[len(case.moments) // 2], f"/regent/run-{number}"
        await written(backend, moment, root)

        @asynccontextmanager
        async def domain(root: str = root) -> AsyncIterator[Opened]:
            found = await ZooKeeperOpened.open(backend.client, root=root)
            try:
                yield Opened(found.store, found.catalog, found.epoch)
            finally:
                await found.close()

        assert await carried_on(name, case.nonces, moment, domain, Book()) == case.end, (name, moment.when)


async def written(backend: RealBackend, moment: Moment, root: str) -> None:
    """Writes the recorded znodes below a root; those of the killed daemon are gone with its session."""
    async with session(backend) as s:
        if await s.zk.exists("/regent") is None:
            await s.zk.create("/regent", None)
        for path in sorted(path for path in moment.store if path.startswith(ROOT)):
            data, owner, *_ = moment.store[path]
            if not owner:
                await s.zk.create(root + path.removeprefix(ROOT), None if data is None else data.encode("latin-1"))
