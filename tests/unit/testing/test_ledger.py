"""The ledger finds acknowledged records that were not read, and reports no other record as lost."""

from __future__ import annotations

from collections import Counter

import pytest

from testing.embedded.ledger import Ledger, Spot, Stall, Verdict

HERE, THERE = Spot("orders", 0), Spot("orders", 1)
Records = list[tuple[Spot, int]]

READ: dict[str, tuple[list[int], list[int], Records, Records, int]] = {
    "everything": ([0, 2], [1, 3], [], [], 0),
    "one is missing": ([0], [1, 3], [(HERE, 2)], [], 0),
    "a partition is missing": ([0, 2], [], [(THERE, 1), (THERE, 3)], [], 0),
    "one is in another partition": ([0], [1, 2, 3], [(HERE, 2)], [], 1),
    "one twice": ([0, 2, 2], [1, 3], [], [(HERE, 2)], 0),
    "a failed send was stored": ([0, 2, 4], [1, 3], [], [], 1),
}
"""Numbers read in each partition, with those that are lost and duplicated, and how many were never acknowledged."""


@pytest.mark.parametrize("case", READ)
def test_records_are_compared_with_the_acknowledged_ones(case: str) -> None:
    ledger = Ledger(sent=5, acknowledged={HERE: {0, 2}, THERE: {1, 3}})
    ledger.errors["RequestTimedOutError"] += 1
    here, there, lost, duplicated, unconfirmed = READ[case]
    read = {spot: Counter(numbers) for spot, numbers in ((HERE, here), (THERE, there)) if numbers}
    assert ledger.judge(read) == Verdict(
        sent=5, acknowledged=4, failed=1, read=len(here) + len(there), lost=lost, duplicated=duplicated,
        unconfirmed=unconfirmed,
    )  # fmt: skip


@pytest.mark.parametrize("foreign", [b"", None, b"other:1", b"\xff\xfe", b"1", b"mine:x"])
def test_records_of_other_loads_have_no_number(foreign: bytes | None) -> None:
    ledger = Ledger(tag="mine")
    assert ledger.number(foreign) is None
    assert ledger.number(ledger.value(17)) == 17


def test_stall_names_the_partition() -> None:
    assert str(Stall(1.234, HERE)) == "1.23 s (orders-0)"
    assert str(Stall(0.0, None)) == "nothing sent"
