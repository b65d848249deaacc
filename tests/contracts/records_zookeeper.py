"""The contract of the store of procedure records in ZooKeeper: that of all stores, and what ZooKeeper adds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl, digest_acl
from metadata_store.errors import Code, NotConnected, OutcomeUnknown, ZkError
from metadata_store.fencing.fenced import submit
from metadata_store.fencing.outcome import Fence
from metadata_store.own import Access
from metadata_store.port import ANY_VERSION, ConnectionState, Create, SetData
from metadata_store.records import zookeeper_offline
from metadata_store.records.port import Content, Damaged, Fenced, Found, StoreFailed, Unstorable
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.record import Fault, Record
from tests.contracts.records import RecordsContract, Stores, record
from tests.contracts.support import Backend, NthWrite, Session, session
from tests.kit.deadlines import eventually

ROOT = "/regent/procedures"
QUARANTINE = "/regent/procedures_quarantine"


LOCK = (digest_acl("regent", "secret"), Acl(READ, "world", "anyone"))


async def opened(s: Session, root: str = ROOT) -> ZooKeeperRecords:
    """Opens the store of a term; the first one creates ``/controller_epoch``."""
    node = await s.zk.get(paths.CONTROLLER_EPOCH)
    version = node.stat.version if node is not None else (await s.zk.create(paths.CONTROLLER_EPOCH, b"1")).stat.version

    return _store(s, Fence(version), root)


def _store(s: Session, fence: Fence, root: str) -> ZooKeeperRecords:
    async def connected() -> None:
        await eventually(lambda: s.zk.state is ConnectionState.CONNECTED)

    return ZooKeeperRecords(s.zk, fence, root, connected)


class ZooKeeperRecordsContract(RecordsContract):
    """Runs on a ``backend``."""

    @pytest.fixture
    def stores(self, backend: Backend) -> Stores:
        @asynccontextmanager
        async def store() -> AsyncIterator[ZooKeeperRecords]:
            async with session(backend) as s:
                found = await opened(s)
                yield found
                await found.close()

        return store

    async def test_another_term_fences_the_one_before(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = await opened(s)
            await store.load()
            await s.zk.set(paths.CONTROLLER_EPOCH, b"2", 0)
            with pytest.raises(Fenced, match="another controller was elected"):
                await asyncio.gather(store.write([record(1)]), store.write([record(2)]))
            with pytest.raises(Fenced):
                await store.reserve(1)
            assert await s.zk.exists(ROOT) is None

    async def test_writes_that_wait_behind_one_that_fails_are_refused(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = await opened(s)
            await store.load()
            await store.write([record(1)])
            await s.zk.set(paths.CONTROLLER_EPOCH, b"2", 0)
            writes = [store.write([record(1, step)]) for step in range(1, 4)]  # of one record, so one after the other
            found = await asyncio.wait_for(asyncio.gather(*writes, return_exceptions=True), 60)
            assert [type(one) for one in found] == [Fenced] * 3

    async def test_a_reservation_that_is_repeated_undoes_no_later_one(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = await opened(s)
            await store.load()
            await store.reserve(1)
            s.zk.hooks = NthWrite(at=0, after=OutcomeUnknown("the reply to the first one is lost"))
            assert await asyncio.gather(*(store.reserve(count) for count in (3, 4, 5))) == [2, 5, 9]
            assert await s.data(ROOT) == b"13"
            assert (await (await opened(s)).load()).last_pid == 13

    async def test_a_write_whose_reply_is_lost_is_repeated_once_the_connection_is_back(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = await opened(s)
            await store.load()
            for puts, deletes in (([record(1), record(2)], []), ([record(1, step=1)], [2]), ([], [1])):
                backend.lose_reply(s.zk)
                await store.write(puts, deletes)
            backend.lose_reply(s.zk)
            assert await store.reserve(5) == 1
            assert await s.names(ROOT) == []
            assert await store.reserve(1) == 6

    async def test_a_record_rides_in_the_multi_of_another_change(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = await opened(s)
            await store.load()
            await store.reserve(1)
            await s.zk.create("/topic", b"old")
            puts = [record(1)]
            fence = Fence(0)
            assert await submit(s.zk, fence, [SetData("/topic", b"new", 0), *store.ops(puts)]) is None
            store.written(puts)
            failed = await submit(s.zk, fence, [SetData("/topic", b"newer", 0), *store.ops([record(1, step=9)])])
            assert failed is not None, "the topic has version 1"
            assert list((await store.load()).records) == [record(1)]
            await store.write([record(1, step=2)], deletes=[])
            assert list((await store.load()).records) == [record(1, step=2)]

    async def test_records_are_counted_without_being_read(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = await opened(s)
            assert await store.count() == 0
            await store.load()
            await store.write([record(1), record(2)])
            assert await store.count() == 2
            assert await (await opened(s)).count() == 2

    async def test_another_domain_fences_its_records_by_its_own_epoch(self, backend: Backend) -> None:
        async with session(backend) as s:
            await opened(s)
            await s.zk.create("/regions", None)
            epoch = (await s.zk.create("/regions/epoch", b"1")).stat.version
            mine = _store(s, Fence(epoch, path="/regions/epoch"), "/regions/procedures")
            await mine.load()
            await s.zk.set(paths.CONTROLLER_EPOCH, b"9", -1)
            await mine.write([record(1)])
            await s.zk.set("/regions/epoch", b"2", -1)
            with pytest.raises(Fenced, match="/regions/epoch has no longer version 0"):
                await mine.write([record(2)])
            assert list((await mine.load()).records) == [record(1)]

    async def test_a_companion_with_an_unknown_outcome_is_found_out(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = await opened(s)
            await store.load()
            await store.reserve(2)
            backend.lose_reply(s.zk)
            with pytest.raises((OutcomeUnknown, NotConnected)):
                await submit(s.zk, Fence(0), store.ops([record(1)]))
            await eventually(lambda: s.zk.state is ConnectionState.CONNECTED)
            await store.find_out([1, 2])
            await store.write([record(1, step=3), record(2)])
            assert list((await store.load()).records) == [record(1, step=3), record(2)]

    async def test_records_stand_only_as_they_are_here(self, backend: Backend) -> None:
        """After a lost reply this alone says whether the effect that goes with them was applied."""
        async with session(backend) as s:
            store = await opened(s)
            await store.load()
            await store.reserve(3)
            before, after = [record(1), record(2)], [record(1, step=1), record(2)]
            await store.write(before)
            assert (await store.stands(before), await store.stands(after)) == (True, False)
            backend.lose_reply(s.zk)
            with pytest.raises((OutcomeUnknown, NotConnected)):
                await submit(s.zk, Fence(0), store.ops(after))
            await eventually(lambda: s.zk.state is ConnectionState.CONNECTED)
            assert (await store.stands(before), await store.stands(after)) == (False, True)
            assert not await store.stands([*after, record(3)]), "one of them was never written"
            await store.write((), deletes=[2])
            assert not await store.stands(after)

    async def test_damaged_records_are_reported_and_stay(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = await opened(s)
            await store.load()
            await store.write([record(1), record(2)])
            await s.zk.set(store.path(1), b'{"pid":1', 0)
            await s.zk.apply([Create(f"{ROOT}/notes", b"by hand"), Create(store.path(3), b'{"version":9}')])
            found = await store.load()
            assert list(found.records) == [record(2)]
            assert [one.pid for one in found.damaged] == [1, 3, 0]
            newer = "format 9 is newer than this daemon's (1): upgrade the daemon"
            assert found.damaged[1] == Damaged(3, newer, Fault.NEWER)
            assert await s.names(ROOT) == ["0000000001", "0000000002", "0000000003", "notes"]

    @pytest.mark.parametrize("data", [b"", b"many", b"-1", b"12345678901", b"9" * 5_000])
    async def test_a_root_without_a_number_is_refused(self, backend: Backend, data: bytes) -> None:
        async with session(backend) as s:
            store = await opened(s)
            await store.reserve(1)
            await s.zk.set(ROOT, data, ANY_VERSION)
            with pytest.raises(StoreFailed, match="and no number: write the highest pid that was ever used"):
                await store.load()

    async def test_no_stranger_changes_or_deletes_closed_records(self, backend: Backend) -> None:
        closed = {"credentials": "regent:secret", "own_acls": {Access.RECORDS: LOCK}}
        async with session(backend, **closed) as s, session(backend) as stranger:
            store = await opened(s)
            await store.load()
            await store.reserve(5)
            await store.write([record(1, step=1), record(2)])
            await stranger.zk.sync()
            for attempt in (
                stranger.zk.set(store.path(1), b"", ANY_VERSION),
                stranger.zk.delete(store.path(2), ANY_VERSION),
                stranger.zk.set(ROOT, b"0", ANY_VERSION),
                stranger.zk.create(store.path(9), b"{}"),
                stranger.zk.set_acls(store.path(1), OPEN, ANY_VERSION),
            ):
                with pytest.raises(ZkError) as failed:
                    await attempt
                assert failed.value.code is Code.NO_AUTH
            assert len((await zookeeper_offline.read(stranger.zk, ROOT)).entries) == 2, "any client may read"
            await store.write([record(1, step=2)], deletes=[2])
            assert list((await store.load()).records) == [record(1, step=2)]

    async def test_a_record_that_no_request_can_hold_is_refused(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = await opened(s)
            await store.load()
            with pytest.raises(Unstorable, match="the write of pid 7 has more than 1000000 bytes"):
                await store.write([record(7, data=bytes(1_000_000))])


class ZooKeeperShelf:
    """A store in ZooKeeper, for :class:`tests.contracts.records_damaged.DamagedContract`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ZooKeeperRecords]:
        async with session(self._backend) as s:
            store = await opened(s)
            yield store
            await store.close()

    async def body(self, pid: int) -> bytes:
        async with session(self._backend) as s:
            return await s.data(f"{ROOT}/{pid:010}") or b""

    async def overwrite(self, pid: int, body: bytes) -> None:
        async with session(self._backend) as s:
            await s.zk.set(f"{ROOT}/{pid:010}", body, ANY_VERSION)

    async def content(self) -> Content:
        async with session(self._backend) as s:
            await s.zk.sync()
            return await zookeeper_offline.read(s.zk, ROOT)

    async def move_aside(self, content: Content, entries: list[Found]) -> None:
        async with session(self._backend) as s:
            await zookeeper_offline.move_aside(s.zk, QUARANTINE, content, entries)

    async def replace(self, content: Content, records: list[Record]) -> None:
        async with session(self._backend) as s:
            await zookeeper_offline.replace(s.zk, paths.CONTROLLER_EPOCH, content, records)

    async def quarantined(self) -> list[bytes]:
        async with session(self._backend) as s:
            return [await s.data(f"{QUARANTINE}/{name}") or b"" for name in await s.names(QUARANTINE)]
