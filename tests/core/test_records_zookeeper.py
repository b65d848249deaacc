"""The store of procedure records on the in-memory ZooKeeper."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata_store.errors import Code
from metadata_store.records import zookeeper
from metadata_store.records.port import StoreFailed
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import record
from tests.contracts.records_zookeeper import ZooKeeperRecordsContract, opened
from tests.contracts.support import session


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
