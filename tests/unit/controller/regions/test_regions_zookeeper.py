"""The regions' domain on the ZooKeeper in memory."""

from __future__ import annotations

import asyncio

import pytest

from controller.regions import zookeeper_store
from controller.regions.claim import Opening
from controller.regions.zookeeper_claim import ROOT
from controller.regions.zookeeper_store import ZooKeeperOpened
from controller.role.lease import Lease
from metadata_store.closing import Closed
from metadata_store.errors import Code, ZkError
from metadata_store.port import ANY_VERSION, ConnectionState
from metadata_store.records.port import Above, StoreFailed
from testing.memory import MemoryZooKeeper
from tests.contracts.closing import CLOSING
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import record
from tests.contracts.regions_levels import LevelsContract
from tests.contracts.regions_zookeeper import ZooKeeperRegionsContract
from tests.contracts.support import Backend, session
from tests.kit.deadlines import eventually


class TestInMemory(ZooKeeperRegionsContract, LevelsContract):
    """The contract."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend()


class TestBehind(ZooKeeperRegionsContract, LevelsContract):
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
        sessions.append(backend.client(session_timeout_ms=5_000))
        return sessions[-1]

    first = await ZooKeeperOpened.open(connect)
    assert first.leads()
    hangs: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    backend.server.between(sessions[0].session_id, lambda _: asyncio.shield(hangs))
    writing = asyncio.ensure_future(first.store.write([record(1)]))
    await eventually(lambda: not first.leads())
    assert not writing.done()
    await asyncio.wait_for(first.close(), 60)
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


class Never(Lease):
    """A lease that no heartbeat renews."""

    def valid(self) -> bool:
        return False


async def test_a_daemon_that_stops_before_it_may_write_leaves_nothing_that_waits() -> None:
    before = asyncio.all_tasks()
    opening = asyncio.ensure_future(
        ZooKeeperOpened.open(MemoryBackend().client, new_lease=lambda timeout_s, _: Never(timeout_s))
    )
    await eventually(lambda: len(asyncio.all_tasks() - before) >= 4)
    opening.cancel()
    await asyncio.wait({opening})
    assert opening.cancelled()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_walk_that_closes_znodes_and_is_refused_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else says that what was open stays open."""
    walks: list[int | None] = []

    async def refused(*_: object, depth: int | None = None, **__: object) -> Closed:
        walks.append(depth)
        if depth is None:
            raise ZkError(Code.INVALID_ACL, "/regent/regions/servers")
        return Closed()

    monkeypatch.setattr(zookeeper_store, "close_tree", refused)
    backend: Backend = MemoryBackend()
    found = await ZooKeeperOpened.open(lambda: backend.client(**CLOSING))
    await eventually(lambda: "are not closed before the next term: INVALID_ACL at" in found.complaint())
    assert found.leads(), "the term goes on"
    assert walks == [zookeeper_store.PARENTS, None]
    await found.close()


async def test_what_zookeeper_reports_of_the_session_counts_at_once() -> None:
    sessions: list[MemoryZooKeeper] = []
    leases: list[Lease] = []

    def connect() -> MemoryZooKeeper:
        sessions.append(MemoryBackend().client())
        return sessions[-1]

    def new_lease(timeout_s: float, fraction: float) -> Lease:
        leases.append(Lease.of_session(timeout_s, fraction))
        return leases[-1]

    found = await ZooKeeperOpened.open(connect, new_lease=new_lease)
    [zk], [lease] = sessions, leases
    zk.session_timeout_ms //= 2
    assert zk.on_state is not None
    assert zk.on_state_thread is not None
    zk.on_state(ConnectionState.CONNECTED)
    assert lease.session_timeout_s == zk.session_timeout_ms / 1000, "it was negotiated anew"
    assert found.leads()
    zk.on_state_thread(ConnectionState.LOST)
    assert not found.leads(), "the loop may be busy for a while"
    with pytest.raises(StoreFailed, match="is over"):
        await found.store.write([record(1)])
    await found.close()


async def test_a_claim_that_was_not_looked_at_for_long_leads_nothing() -> None:
    """The session may live on while another client has deleted the claim."""
    found = await ZooKeeperOpened.open(MemoryBackend().client, lease_ms=3_000)
    assert found.leads()
    await eventually(lambda: not found.leads())
    assert not found.suspended(), "the lease holds"
    lost = asyncio.ensure_future(found.lost())
    await eventually(found.leads)
    lost.cancel()
    await asyncio.wait({lost})
    await found.close()


async def test_an_epoch_is_above_what_servers_have_seen() -> None:
    """The domain may have been restored from a copy."""
    backend = MemoryBackend()
    for above, epoch in ((Above(9, 0), 10), (Above(3, 0), 11)):
        found = await ZooKeeperOpened.open(backend.client, Opening(above))
        assert found.epoch == epoch
        await found.close()


async def test_a_claim_that_another_session_has_made_anew_is_lost() -> None:
    backend = MemoryBackend()
    found = await ZooKeeperOpened.open(backend.client)
    await found._prove()
    async with session(backend) as s:
        await s.zk.delete(f"{ROOT}/daemon", ANY_VERSION)
        await s.zk.create(f"{ROOT}/daemon", b"", ephemeral=True)
        with pytest.raises(StoreFailed, match="was deleted or made anew under this daemon"):
            await found._prove()
    await found.close()
