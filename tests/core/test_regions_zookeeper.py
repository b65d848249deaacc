"""The regions' domain on the ZooKeeper in memory."""

from __future__ import annotations

import asyncio

import pytest

from controller.regions.zookeeper_store import ZooKeeperOpened
from testing.memory import MemoryZooKeeper
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import record
from tests.contracts.regions_zookeeper import ZooKeeperRegionsContract
from tests.polling import eventually


class TestInMemory(ZooKeeperRegionsContract):
    """The contract."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()


class TestBehind(ZooKeeperRegionsContract):
    """The same with servers that are behind: each shows what the others wrote only after a sync."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend(lags=True)


@pytest.mark.parametrize("lags", [False, True])
async def test_a_daemon_whose_requests_hang_leads_no_longer_than_its_lease_and_can_stop(lags: bool) -> None:
    """A server that takes requests and never replies ends no connection: only the lease tells."""
    backend = MemoryBackend(lags)
    sessions: list[MemoryZooKeeper] = []

    def connect() -> MemoryZooKeeper:
        sessions.append(backend.client(session_timeout_ms=40_000))
        return sessions[-1]

    first = await ZooKeeperOpened.open(connect)
    assert first.leads()
    hangs: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    backend.server.between(sessions[0].session_id, lambda _: asyncio.shield(hangs))
    writing = asyncio.ensure_future(first.store.write([record(1)]))
    await eventually(lambda: not first.leads())
    assert not writing.done()
    await asyncio.wait_for(first.close(), 20)
    second = await ZooKeeperOpened.open(connect)
    try:
        assert second.epoch == first.epoch + 1
        await second.store.load()
        await second.store.write([record(2)])
        hangs.set_result(None)  # the request of the first one arrives after all
        await asyncio.gather(writing, return_exceptions=True)
        assert [one.pid for one in (await second.store.load()).records] == [2]
    finally:
        await second.close()
