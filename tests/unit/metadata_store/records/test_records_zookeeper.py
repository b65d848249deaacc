"""The store of procedure records on the in-memory ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from metadata_store.errors import Code
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.fencing.outcome import Fence
from metadata_store.fencing.sizes import write_bytes
from metadata_store.port import ANY_VERSION, Check
from metadata_store.records import zookeeper
from metadata_store.records.port import StoreFailed, Unstorable
from metadata_store.records.zookeeper import ZooKeeperRecords
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import record
from tests.contracts.records_zookeeper import ROOT, ZooKeeperRecordsContract, opened
from tests.contracts.support import NthWrite, session


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


class TestInMemory(ZooKeeperRecordsContract):
    """The contract."""


class TestBehind(ZooKeeperRecordsContract):
    """The same with a server that is behind: it shows what was written before only after a sync."""

    @pytest.fixture
    def backend(self) -> MemoryBackend:
        return MemoryBackend(lags=True)


@pytest.mark.parametrize("code", [Code.NO_AUTH, Code.NOT_READONLY, Code.API_ERROR])
async def test_a_write_that_zookeeper_refuses_fails_with_a_remedy_and_applies_nothing(
    backend: MemoryBackend, code: Code
) -> None:
    """A server without its quorum, or with a quota, refuses writes and goes on to serve reads."""
    async with session(backend) as s:
        store = await opened(s)
        await store.load()
        await store.write([record(1)])
        backend.reply_with(s.zk, code)
        with pytest.raises(StoreFailed, match=r"check its ACLs|check the ACLs"):
            await store.write([record(1, step=1), record(2)])
    async with session(backend) as s:
        store = await opened(s)
        assert list((await store.load()).records) == [record(1)]


async def test_a_record_that_was_weighed_is_written_as_it_is_now(backend: MemoryBackend) -> None:
    """A step that was weighed may fail, and another change of its record is written."""
    async with session(backend) as s:
        store = await opened(s)
        await store.load()
        store.weigh([record(1), record(2)])
        await store.write([record(1, step=5), record(2)])
        store.weigh([record(2, step=3)])
        await store.write([], [2])
        await store.write([record(2, step=4)])
    async with session(backend) as s:
        store = await opened(s)
        assert list((await store.load()).records) == [record(1, step=5), record(2, step=4)]


async def test_what_was_weighed_and_is_never_written_is_not_kept(
    backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "ENCODED_MAX", 5)
    async with session(backend) as s:
        store = await opened(s)
        for pid in range(1, 100):
            store.weigh([record(pid)])
        assert len(store._encoded) <= 5
        large = replace(record(100), data=bytes(zookeeper.ENCODED_BYTES_MAX))
        store.weigh([large])
        assert large.pid not in store._encoded


async def test_a_write_whose_request_is_lost_is_sent_again_before_it_is_acknowledged(backend: MemoryBackend) -> None:
    """Its sender cannot tell it from one whose reply was lost."""
    async with session(backend) as s:
        store = await opened(s)
        await store.load()
        for puts, deletes in (([record(1), record(2)], []), ([record(1, step=1)], [2]), ([record(3)], [])):
            backend.server.lose_requests(s.zk.session_id)
            await store.write(puts, deletes)
        backend.server.lose_requests(s.zk.session_id)
        assert await store.reserve(5) == 1
        assert list((await store.load()).records) == [record(1, step=1), record(3)]
        assert await s.data(ROOT) == b"5"


@pytest.mark.parametrize("code", [Code.TOO_BIG, Code.BAD_ARGUMENTS])
async def test_a_write_whose_content_zookeeper_refuses_fails_alone(backend: MemoryBackend, code: Code) -> None:
    async with session(backend) as s:
        store = await opened(s)
        await store.load()
        await store.write([record(1)])
        backend.reply_with(s.zk, code)
        with pytest.raises(Unstorable):
            await store.write([record(1, step=1)])
        await store.write([record(1, step=2)])
        assert list((await store.load()).records) == [record(1, step=2)]


async def test_writes_that_were_refused_are_not_carried_out_later(backend: MemoryBackend) -> None:
    """Their callers have gone on without them."""
    async with session(backend) as s:
        store = await opened(s)
        await store.load()
        await store.write([record(1)])
        writes = [
            store.write([record(7, data=bytes(1_000_000))]),
            store.write([record(1, step=1)]),
            store.write([], [1]),
        ]
        found = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(one) for one in found] == [Unstorable] * 3
        await store.write([record(2)])
        await store.close()
        assert list((await store.load()).records) == [record(1), record(2)]


async def test_a_multi_has_no_more_operations_than_its_bound_whatever_waits(backend: MemoryBackend) -> None:
    async with session(backend) as s:
        store = await opened(s)
        await store.load()
        await store.write([record(1)])
        s.zk.hooks = seen = NthWrite(at=-1)
        writes = [store.write([record(pid), record(pid + 1), record(pid + 2)]) for pid in range(10, 1_200, 3)]
        await asyncio.gather(*writes)
        assert max(len([op for op in ops if not isinstance(op, Check)]) for ops in seen.writes) <= WRITES_MAX
        assert len(seen.writes) == 3, "as few as the bound allows"
        assert len((await store.load()).records) == 1 + 3 * len(writes)


async def test_a_store_writes_nothing_and_waits_for_nothing_once_its_term_has_ended(backend: MemoryBackend) -> None:
    async with session(backend) as s:
        await opened(s)

        async def connected() -> None:
            raise StoreFailed("the term has ended")

        store = ZooKeeperRecords(s.zk, Fence(0), ROOT, connected)
        for call in (store.write([record(1)]), store.load(), store.count()):
            with pytest.raises(StoreFailed, match="the term has ended"):
                await asyncio.wait_for(call, 5)
        assert await s.zk.exists(ROOT) is None


async def test_deletions_are_weighed_too(backend: MemoryBackend) -> None:
    async with session(backend) as s:
        store = await opened(s)
        await store.load()
        await store.write([record(pid) for pid in range(1, 101)])
        pids = range(1, 101)
        sent = write_bytes(store.ops([record(200)], pids))
        assert sent <= store.weigh([record(200)], pids) <= 2 * sent


async def test_no_pid_is_given_again_where_the_root_was_deleted_by_hand(backend: MemoryBackend) -> None:
    async with session(backend) as s:
        store = await opened(s)
        await store.load()
        assert await store.reserve(5) == 1
        await s.zk.delete(ROOT, ANY_VERSION)
        assert (await store.load()).last_pid == 5
        assert await store.reserve(1) == 6
        assert await s.data(ROOT) == b"6"
