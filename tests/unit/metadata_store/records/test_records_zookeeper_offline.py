"""A store of procedures in ZooKeeper without a daemon: what a repair finds, moves aside, and leaves where it doubts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from metadata_store import paths
from metadata_store.errors import MultiFailed
from metadata_store.port import ANY_VERSION
from metadata_store.records import zookeeper_offline
from metadata_store.records.found import Content
from state_machines.procedures.faults import Fault
from tests.contracts.memory import MemoryBackend
from tests.contracts.records import record
from tests.contracts.records_zookeeper import QUARANTINE, ROOT, opened
from tests.contracts.support import Session, session

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
