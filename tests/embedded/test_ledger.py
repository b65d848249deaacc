"""The ledger finds acknowledged records that were not read, and reports no other record as lost."""

from __future__ import annotations

from collections import Counter

import pytest

from testing.embedded.ledger import Ledger, Spot, Stall

HERE, THERE = Spot("orders", 0), Spot("orders", 1)


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger(sent=5, acknowledged={HERE: {0, 2}, THERE: {1, 3}})
    ledger.errors["RequestTimedOutError"] += 1
    return ledger


def test_everything_acknowledged_and_read_is_clean(ledger: Ledger) -> None:
    verdict = ledger.judge({HERE: Counter([0, 2]), THERE: Counter([1, 3])})
    assert (verdict.lost, verdict.duplicated, verdict.unconfirmed) == ([], [], 0)
    assert (verdict.sent, verdict.acknowledged, verdict.failed, verdict.read) == (5, 4, 1, 4)


def test_acknowledged_and_not_read_is_lost(ledger: Ledger) -> None:
    assert ledger.judge({HERE: Counter([0])}).lost == [(HERE, 2), (THERE, 1), (THERE, 3)] or ledger.judge(
        {HERE: Counter([0])}
    ).lost == [(THERE, 1), (THERE, 3), (HERE, 2)]


def test_read_in_another_partition_does_not_count(ledger: Ledger) -> None:
    assert (HERE, 2) in ledger.judge({HERE: Counter([0]), THERE: Counter([1, 2, 3])}).lost


def test_read_twice_is_duplicated_and_not_lost(ledger: Ledger) -> None:
    verdict = ledger.judge({HERE: Counter([0, 2, 2]), THERE: Counter([1, 3])})
    assert (verdict.lost, verdict.duplicated) == ([], [(HERE, 2)])


def test_failed_send_that_was_stored_all_the_same_is_only_counted(ledger: Ledger) -> None:
    verdict = ledger.judge({HERE: Counter([0, 2, 4]), THERE: Counter([1, 3])})
    assert (verdict.lost, verdict.unconfirmed) == ([], 1)


@pytest.mark.parametrize("foreign", [b"", None, b"other:1", b"\xff\xfe", b"1"])
def test_records_of_others_are_not_ours(foreign: bytes | None) -> None:
    assert Ledger(tag="mine").number(foreign) is None


def test_own_records_are_recognised() -> None:
    ledger = Ledger(tag="mine")
    assert ledger.number(ledger.value(17)) == 17
    assert ledger.number(b"mine:x") is None


def test_stall_names_the_partition() -> None:
    assert str(Stall(1.234, HERE)) == "1.23 s (orders-0)"
    assert str(Stall(0.0, None)) == "nothing sent"
