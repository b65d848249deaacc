"""Records and rows of a group of changes are weighed, so that its transaction stays within the store's bounds."""

from __future__ import annotations

from collections.abc import Iterable

from controller.procedures.writes import RECORDS_MAX, WEIGHT_MAX, Decided, Group
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import Record
from testing.memory.records import Disk, MemoryRecords
from tests.contracts.records import record

LIMIT = 400_000


class Narrow(MemoryRecords):
    """A store whose writes have a bound; a row weighs what it says."""

    bytes_max = LIMIT

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Weighs messages and rows."""
        return sum(len(put.data) for put in puts) + sum(int(str(row)) for row in rows)


def change(pid: int, *rows: int, data: bytes = b"") -> Decided:
    return Decided(Change(puts=(record(pid, data=data),)), rows=rows)


def test_rows_without_weight_never_fill_a_group() -> None:
    group = Group(MemoryRecords(Disk()))
    for pid in range(1, RECORDS_MAX):
        assert group.has_room(change(pid, *[LIMIT] * 10))
        group.add(change(pid, *[LIMIT] * 10))
    assert not group.is_full


def test_rows_count_as_records_do() -> None:
    group = Group(Narrow(Disk()))
    for pid in range(1, RECORDS_MAX // 2):
        group.add(change(pid, 1))
    assert not group.is_full
    group.add(change(RECORDS_MAX, 1, 1))
    assert group.is_full


def test_heavy_rows_fill_a_group_until_it_is_taken() -> None:
    group = Group(Narrow(Disk()))
    group.add(change(1, WEIGHT_MAX))
    assert group.is_full
    assert len(group.take()) == 1
    assert not group.is_full


def test_a_change_that_does_not_fit_beside_the_others_goes_alone() -> None:
    group = Group(Narrow(Disk()))
    assert group.has_room(change(2, LIMIT, data=bytes(10))), "alone, whatever it weighs"
    group.add(change(1, 10))
    assert not group.has_room(change(2, LIMIT - 19, data=bytes(10)))
    assert not group.has_room(change(2, data=bytes(LIMIT - 9))), "nor without rows"
    assert group.has_room(change(2, LIMIT - 20, data=bytes(10)))
