"""Damaged records: every byte of one record, and the contract of damaged stores on a file and on ZooKeeper."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest

from metadata_store.records import codec, sqlite_offline
from metadata_store.records.port import Content, Found, StoreFailed, read
from metadata_store.records.sqlite import SqliteRecords
from state_machines.procedures.record import Ending, Fault, Record, Unusable
from state_machines.procedures.recovery import load, moved_aside
from state_machines.procedures.states import State
from tests.contracts.memory import MemoryBackend
from tests.contracts.records_damaged import ALL, FAMILY, NEWER, DamagedContract
from tests.contracts.records_zookeeper import ZooKeeperShelf


class SqliteShelf:
    """A file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SqliteRecords]:
        store = await SqliteRecords.open(self.path)
        try:
            yield store
        finally:
            await store.close()

    async def body(self, pid: int) -> bytes:
        with closing(sqlite3.connect(self.path)) as db:
            [body] = db.execute("SELECT body FROM record WHERE pid = ?", (pid,)).fetchone()
        return bytes(body)

    async def overwrite(self, pid: int, body: bytes) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("UPDATE record SET body = ? WHERE pid = ?", (body, pid))

    async def content(self) -> Content:
        return sqlite_offline.read(self.path)

    async def move_aside(self, content: Content, entries: list[Found]) -> None:
        sqlite_offline.move_aside(self.path, entries, "a test", 1)

    async def replace(self, content: Content, records: list[Record]) -> None:
        sqlite_offline.replace(self.path, content, records)

    async def quarantined(self) -> list[bytes]:
        with closing(sqlite3.connect(self.path)) as db:
            return [body for [body] in db.execute("SELECT body FROM quarantine")]


class TestSqlite(DamagedContract):
    """The contract on a file."""

    @pytest.fixture
    def shelf(self, tmp_path: Path) -> SqliteShelf:
        return SqliteShelf(tmp_path / "records.db")

    async def test_the_record_of_another_pid_is_named(self, filled: SqliteShelf) -> None:  # type: ignore[override]
        with closing(sqlite3.connect(filled.path)) as db, db:
            db.execute("UPDATE record SET (body, crc) = (SELECT body, crc FROM record WHERE pid = 3) WHERE pid = 4")
        found = await self.judged(filled)
        assert list(found.unusable.values()) == [(Fault.OTHER_PID, "it is the record of pid 3")]

    async def test_no_record_is_moved_while_a_daemon_has_the_file(self, filled: SqliteShelf) -> None:
        await filled.overwrite(4, b"{")
        found = await self.judged(filled)
        async with filled.open():
            with pytest.raises(StoreFailed, match="stop the daemon that has"):
                await filled.move_aside(found.content, list(found.aside))
        assert await filled.body(4) == b"{"

    async def test_a_daemon_that_lived_before_a_repair_is_fenced(self, filled: SqliteShelf) -> None:
        before = sqlite_offline.read(filled.path).epoch
        await filled.overwrite(4, b"{")
        found = await self.judged(filled)
        await filled.move_aside(found.content, list(found.aside))
        assert sqlite_offline.read(filled.path).epoch == before + 1

    async def test_nothing_is_moved_where_a_record_changed_since_it_was_read(self, filled: SqliteShelf) -> None:
        await filled.overwrite(3, b"{")
        await filled.overwrite(4, b"{")
        found = await self.judged(filled)
        await filled.overwrite(4, b"{}")
        with pytest.raises(StoreFailed, match="pid 4 has changed since it was read: nothing was changed"):
            await filled.move_aside(found.content, list(found.aside))
        assert await filled.body(3) == b"{"

    @pytest.mark.seed("S3-45")
    async def test_rows_on_both_sides_of_a_damaged_page_are_read(self, filled: SqliteShelf) -> None:
        async with filled.open() as store:
            await store.load()
            await store.write([FAMILY[1].__class__(pid, "gone", State.SUCCESS, 0, 1, 2) for pid in range(10, 900)])
        content = bytearray(filled.path.read_bytes())
        middle = len(content) // 2 // 4096 * 4096
        content[middle : middle + 4096] = bytes(4096)
        filled.path.write_bytes(content)
        found = sqlite_offline.read(filled.path)
        pids = [one.pid for one in found.entries]
        assert (pids[0], pids[-1]) == (1, 899)
        assert 100 < len(pids) < 894
        assert "rows between others may be missing" in found.faults[0]


class TestZooKeeper(DamagedContract):
    """The contract on the in-memory ZooKeeper."""

    @pytest.fixture
    def shelf(self) -> ZooKeeperShelf:
        return ZooKeeperShelf(MemoryBackend())


@pytest.mark.seed("S3-45")
@pytest.mark.parametrize("one", ALL, ids=lambda one: f"pid {one.pid}")
def test_no_changed_bit_and_no_truncation_of_a_record_passes_unnoticed(one: Record) -> None:
    """Without its last line a record is whole and has no checksum: that is how operators write them."""
    body = codec.sealed(one)
    changed = [body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :] for at in range(len(body)) for bit in range(8)]
    for data in [*changed, *(body[:end] for end in range(len(body)))]:
        assert read(one.pid, "", data, codec.unsealed).record in (None, one), data


def test_a_record_without_a_checksum_is_read() -> None:
    assert codec.unsealed(1, codec.encode(FAMILY[0])) == FAMILY[0]


def test_the_request_to_end_is_a_field_that_records_before_it_lack_and_daemons_before_it_skip() -> None:
    """Such a daemon decodes the body as it does any field that it does not know."""
    plain = codec.encode(FAMILY[0])
    assert b"ending" not in plain
    ended = msgspec.structs.replace(FAMILY[0], ending=Ending("abort", "uid 7", "wrong rack", 5))
    assert codec.unsealed(ended.pid, codec.sealed(ended)) == ended
    later = plain[:-1] + b',"field of a later daemon":{"act":"abort"}}'
    assert codec.decode(FAMILY[0].pid, later) == FAMILY[0]


@pytest.mark.parametrize("seal", [b"", b"\n", b"\nabc", b"\nzzzzzzzz", b"\n00000000"])
def test_a_newer_record_is_recognized_whatever_its_checksum(seal: bytes) -> None:
    with pytest.raises(codec.Unreadable) as found:
        codec.unsealed(7, NEWER % 7 + seal)
    assert (found.value.fault, found.value.caller.nonce) == (Fault.NEWER, "later")


def record(pid: int, parent: int = 0, **more: object) -> Record:
    ancestors = (parent,) if parent else ()
    return Record(pid, "known", State.WAITING, 0, 0, 0, parent=parent, ancestors=ancestors, **more)  # type: ignore[arg-type]


BROKEN = Unusable(Fault.CORRUPT, "its checksum differs")
LATER = Unusable(Fault.NEWER, "format 2")


@pytest.mark.parametrize(
    ("records", "damaged", "faults", "aside"),
    [
        (
            [record(1, born=(2, 3)), record(3, 1)],
            {2: BROKEN},
            {1: Fault.HOLE, 2: Fault.CORRUPT, 3: Fault.FAMILY},
            [1, 2, 3],
        ),
        ([record(1, born=(2,))], {2: LATER}, {1: Fault.FAMILY, 2: Fault.NEWER}, []),
        ([record(1, born=(2, 3))], {2: LATER, 3: BROKEN}, {1: Fault.FAMILY, 2: Fault.NEWER, 3: Fault.CORRUPT}, []),
        ([record(1, born=(2,))], {}, {}, []),
        ([record(2, 1)], {1: BROKEN}, {1: Fault.CORRUPT, 2: Fault.ORPHAN}, [1, 2]),
        ([record(2, 1)], {1: LATER}, {1: Fault.NEWER, 2: Fault.FAMILY}, []),
        ([record(2, 1)], {}, {2: Fault.ORPHAN}, [2]),
        ([record(1), record(9)], {4: BROKEN}, {4: Fault.CORRUPT}, [4]),
    ],
)
def test_a_family_with_a_hole_stands_still_and_is_moved_only_where_no_daemon_can_use_it(
    records: list[Record], damaged: dict[int, Unusable], faults: dict[int, Fault], aside: list[int]
) -> None:
    found = load(records, lambda _: None, damaged).unusable
    assert {pid: one.fault for pid, one in found.items()} == faults
    assert moved_aside(records, found) == aside


def test_a_family_of_a_kind_that_is_gone_is_never_moved() -> None:
    records = [record(1, born=(2,)), record(2, 1), record(3, born=(4,))]
    found = load(records, lambda one: "no such kind" if one.pid == 2 else None, {4: BROKEN}).unusable
    assert {pid: one.fault for pid, one in found.items()} == {
        1: Fault.FAMILY,
        2: Fault.UNKNOWN_KIND,
        3: Fault.HOLE,
        4: Fault.CORRUPT,
    }
    assert moved_aside(records, found) == [3, 4]


def test_a_damaged_parent_stays_with_a_child_that_a_daemon_with_its_kind_can_use() -> None:
    records = [record(2, 1), record(4, 3)]
    found = load(records, lambda one: "no such kind" if one.pid == 2 else None, {1: BROKEN, 3: BROKEN}).unusable
    assert {pid: one.fault for pid, one in found.items()} == {
        1: Fault.CORRUPT,
        2: Fault.UNKNOWN_KIND,
        3: Fault.CORRUPT,
        4: Fault.ORPHAN,
    }
    assert moved_aside(records, found) == [3, 4]
