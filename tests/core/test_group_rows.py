"""Rows that weigh something count in a group of changes, so that its transaction stays within the store's bounds."""

from __future__ import annotations

from collections.abc import Sequence

from controller.procedures.group import BYTES_MAX, CHANGE_BYTES_MAX, RECORDS_MAX, Decided, Group
from state_machines.procedures.kernel import Change
from tests.contracts.records import record


def weigh(rows: Sequence[object]) -> int:
    return sum(int(str(row)) for row in rows)


def change(pid: int, *rows: int, data: bytes = b"") -> Decided:
    return Decided(Change(puts=(record(pid, data=data),)), rows=rows)


def test_rows_without_weight_never_fill_a_group() -> None:
    group = Group()
    for pid in range(1, RECORDS_MAX):
        assert group.has_room(change(pid, *[BYTES_MAX] * 10))
        group.add(change(pid, *[BYTES_MAX] * 10))
    assert not group.is_full


def test_rows_count_as_records_do() -> None:
    group = Group(weigh)
    for pid in range(1, RECORDS_MAX // 2):
        group.add(change(pid, 1))
    assert not group.is_full
    group.add(change(RECORDS_MAX, 1))
    assert group.is_full


def test_heavy_rows_fill_a_group_until_it_is_taken() -> None:
    group = Group(weigh)
    group.add(change(1, BYTES_MAX))
    assert group.is_full
    assert len(group.take()) == 1
    assert not group.is_full


def test_a_change_whose_rows_do_not_fit_beside_the_others_goes_alone() -> None:
    group = Group(weigh)
    large = change(2, CHANGE_BYTES_MAX - 9, data=bytes(10))
    assert group.has_room(large)
    group.add(change(1, 0))
    assert not group.has_room(large)
    assert group.has_room(change(2, CHANGE_BYTES_MAX - 10, data=bytes(10)))
    assert group.has_room(change(2, data=bytes(CHANGE_BYTES_MAX)))
