"""The store of procedure records on the in-memory ZooKeeper, in a term and without a daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from metadata_store import paths
from metadata_store.errors import Code, MultiFailed
from metadata_store.fencing.bounds import write_bytes
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.fencing.outcome import Fence
from metadata_store.port import ANY_VERSION, Check
from metadata_store.records import codec, znodes, zookeeper, zookeeper_offline
from metadata_store.records.port import Content, StoreFailed, Unstorable
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.record import Fault
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import record
from tests.contracts.records_zookeeper import QUARANTINE, ROOT, ZooKeeperRecordsContract, opened
from tests.contracts.support import NthWrite, Session, session


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


async def test_a_look_beside_the_active_daemon_leaves_out_what_that_deletes_meanwhile(
    backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended procedures are deleted all the time: none of them is one that cannot be read."""
    async with session(backend) as s, session(backend) as other:
        store = await opened(s)
        await store.load()
        await store.write([record(1), record(2), record(3)])
        read_many = other.zk.read_many

        async def late(paths: Sequence[str], *more: Any) -> Any:
            if place(2) in paths:  # they are listed by now
                await store.write([], [2])
            return await read_many(paths, *more)

        monkeypatch.setattr(other.zk, "read_many", late)
        found = await ZooKeeperRecords(other.zk, Fence(0, lambda: False), ROOT, never).load_once()
        assert ([one.pid for one in found.records], found.damaged) == ([1, 3], [])


async def never() -> None:
    """Does not wait."""


async def test_large_records_are_decoded_few_at_a_time(backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(znodes, "BYTES_TOGETHER", 4_000)
    decoded, together, unsealed = [0], list[int](), codec.unsealed

    def counted(*given: Any) -> Any:
        decoded[-1] += 1
        return unsealed(*given)

    async with session(backend) as s:
        store = await opened(s)
        await store.load()
        await store.write([record(pid, data=bytes(1_000)) for pid in range(1, 6)])
        monkeypatch.setattr(codec, "unsealed", counted)
        loading = asyncio.ensure_future(store.load())
        while not loading.done():
            await asyncio.sleep(0)
            if decoded[-1]:
                together.append(decoded[-1])
                decoded.append(0)
    assert together == [2, 2, 1]


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
                await asyncio.wait_for(call, 60)
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


PIDS = (1, 2, 3)


@pytest.fixture
async def s() -> AsyncIterator[Session]:
    """A session on a store with three records, of which a daemon has reserved ten pids."""
    async with session(MemoryBackend()) as found:
        store = await opened(found)
        await store.load()
        await store.reserve(10)
        await store.write([record(pid) for pid in PIDS])
        yield found


def place(pid: int) -> str:
    return f"{ROOT}/{pid:010}"


async def read(s: Session) -> Content:
    return await zookeeper_offline.read(s.zk, ROOT)


async def moved(s: Session, content: Content, *pids: int) -> None:
    entries = [one for pid in pids for one in content.entries if one.pid == pid]
    await zookeeper_offline.move_aside(s.zk, QUARANTINE, content, entries)


async def test_a_daemon_that_was_elected_meanwhile_keeps_its_records(s: Session) -> None:
    found = await read(s)
    await s.zk.set(paths.CONTROLLER_EPOCH, b"2", ANY_VERSION)
    with pytest.raises(MultiFailed):
        await moved(s, found, 1)
    with pytest.raises(MultiFailed):
        await zookeeper_offline.replace(s.zk, paths.CONTROLLER_EPOCH, found, [record(1, step=9)])
    assert [one.record for one in (await read(s)).entries] == [record(pid) for pid in PIDS]


async def test_a_record_that_changed_meanwhile_is_not_moved_and_those_with_lower_pids_are(s: Session) -> None:
    found = await read(s)
    await s.zk.set(place(2), b"written since", ANY_VERSION)
    with pytest.raises(MultiFailed):
        await moved(s, found, 3, 2, 1)
    assert await s.names(ROOT) == ["0000000002", "0000000003"], "parents go first, so no child is left without"
    await moved(s, await read(s), 3, 2)
    assert await s.names(ROOT) == []
    assert await s.data(ROOT) == b"10", "pids are not given again"


async def test_a_pid_is_moved_aside_again_beside_what_was_moved_before(s: Session) -> None:
    await s.zk.set(place(1), b"first", ANY_VERSION)
    await moved(s, await read(s), 1)
    await s.zk.create(place(1), b"")
    for content in (b"", b"", b"second"):
        await s.zk.set(place(1), content, ANY_VERSION)
    await moved(s, await read(s), 1)
    assert [await s.data(f"{QUARANTINE}/{name}") for name in await s.names(QUARANTINE)] == [b"first", b"second"]


async def test_a_store_whose_fence_was_never_made_is_repaired_without_it(s: Session) -> None:
    await s.zk.delete(paths.CONTROLLER_EPOCH, ANY_VERSION)
    found = await read(s)
    await zookeeper_offline.replace(s.zk, paths.CONTROLLER_EPOCH, found, [record(2, step=9)])
    await moved(s, await read(s), 1)
    assert [one.record for one in (await read(s)).entries] == [record(2, step=9), record(3)]


@pytest.mark.parametrize(
    ("data", "last_pid", "fault"),
    [(b"2", 3, "holds 2, and pid 3 is in use"), (b"x", 3, "holds 'x' and no number"), (b"3", 3, ""), (b"4", 4, "")],
)
async def test_a_mark_that_does_not_cover_the_pids_in_use_is_named(
    s: Session, data: bytes, last_pid: int, fault: str
) -> None:
    await s.zk.set(ROOT, data, ANY_VERSION)
    found = await read(s)
    assert found.last_pid == last_pid
    assert [fault in one for one in found.faults] == ([True] if fault else [])
    if data == b"2":
        assert (await (await opened(s)).load()).last_pid == 3, "a daemon goes on from that"


async def test_a_znode_whose_name_is_no_pid_of_regent_is_named_and_no_pid(s: Session) -> None:
    for name in ("7", "00000000007", "notes", "\u0661" * 10):
        await s.zk.create(f"{ROOT}/{name}", b"by hand")
    found = await read(s)
    strange = [one for one in found.entries if not one.pid]
    assert len(strange) == 4
    assert {one.unusable.fault for one in strange if one.unusable} == {Fault.UNREADABLE}
    assert found.last_pid == 10
