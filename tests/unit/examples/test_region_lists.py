"""The verification of linked lists finds each sort of fault."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from examples.kv.client import Client
from examples.kv.protocol import Found
from tests.verify.region_lists.nodes import (
    REGIONS,
    ROW,
    TABLE,
    WAVES,
    WIDTH_MAX,
    Batch,
    Plan,
    encode,
    key_of,
    packed,
    place_of,
    splits,
)
from tests.verify.region_lists.snapshot import COPY, Cut, faults
from tests.verify.region_lists.verification import Verification

STEP = 2**64 // 200
NODES = [STEP * number for number in range(1, 200)]
"""Nodes in all regions; each names the one before, and the first one the last."""
TOKEN = 7
Rows = dict[int, tuple[int, int, int]]
"""By node: the node that it names, token and version."""


class Table:
    """Stands in for a client of a table with these rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def scan(self, table: str) -> AsyncIterator[tuple[bytes, Found]]:
        assert table in (TABLE, COPY)
        for node, (before, token, version) in sorted(self._rows.items()):
            yield key_of(node), Found(ROW.pack(before, token, 0), version)


def written(notes: Path, repeated: bool) -> Rows:
    """Writes notes as a writer does, one batch for each region; returns the rows."""
    rows: Rows = {}
    before = dict(zip(NODES, [NODES[-1], *NODES[:-1]], strict=True))
    with notes.open("wb") as file:
        for place in range(REGIONS):
            nodes = [node for node in NODES if place_of(node) == place]
            last = 10 + len(nodes)
            rows |= {node: (before[node], TOKEN, 11 + number) for number, node in enumerate(nodes)}
            named = [before[node] for node in nodes]
            file.write(encode(Batch(place, TOKEN, last, repeated, 1_000, 2_000, packed(nodes), packed(named))))
    return rows


async def verified(folder: Path, change: Callable[[Rows], None], *, repeated: bool = False) -> Verification:
    rows = written(folder / "notes", repeated)
    change(rows)
    verification = Verification([folder / "notes"])
    await verification.run(cast(Client, Table(rows)))
    return verification


async def test_rows_that_are_as_told_have_no_fault(tmp_path: Path) -> None:
    verification = await verified(tmp_path, lambda rows: None)
    assert not verification.faults
    assert (verification.nodes, len(verification.longest)) == (len(NODES), REGIONS)


@pytest.mark.parametrize("number", [0, 100, -1])
@pytest.mark.parametrize(
    ("sort", "change"),
    [
        ("lost", lambda rows, node: rows.pop(node)),
        ("hole", lambda rows, node: rows.pop(node)),
        ("not written by anyone", lambda rows, node: rows.update({node + 1: (node, TOKEN, 1)})),
        ("another value", lambda rows, node: rows.update({node: (node, *rows[node][1:])})),
        ("another token", lambda rows, node: rows.update({node: (rows[node][0], TOKEN - 1, rows[node][2])})),
        ("another version", lambda rows, node: rows.update({node: (*rows[node][:2], rows[node][2] - 1)})),
        ("another version", lambda rows, node: rows.update({node: (*rows[node][:2], rows[node][2] + 1)})),
    ],
)
async def test_each_fault_is_found(
    tmp_path: Path, sort: str, change: Callable[[Rows, int], object], number: int
) -> None:
    verification = await verified(tmp_path, lambda rows: (change(rows, NODES[number]), None)[1])
    assert verification.faults[sort] == 1
    assert any(text.startswith(f"{sort}: node ") for text in verification.shown)


async def test_a_repeated_write_may_come_late_and_never_back(tmp_path: Path) -> None:
    def later(rows: Rows) -> None:
        rows[NODES[5]] = (*rows[NODES[5]][:2], 99)

    def earlier(rows: Rows) -> None:
        rows[NODES[5]] = (*rows[NODES[5]][:2], 1)

    assert not (await verified(tmp_path, later, repeated=True)).faults
    assert (await verified(tmp_path, earlier, repeated=True)).faults == {"another version": 1}


@pytest.mark.parametrize(
    ("cut", "change", "wrong"),
    [
        (Cut("s", 2_001, 3_000), lambda rows: rows.pop(NODES[5]), "was acknowledged before snapshot s, which lacks it"),
        (Cut("s", 1_500, 3_000), lambda rows: rows.pop(NODES[5]), None),
        (Cut("s", 900, 1_000), lambda rows: None, "was written after snapshot s, or by nobody"),
        (Cut("s", 900, 1_000), lambda rows: rows.clear(), None),
        (Cut("s", 2_001, 3_000), lambda rows: rows.update({NODES[5]: (1, TOKEN, 9)}), "which no writer wrote"),
        (Cut("s", 2_001, 3_000), lambda rows: None, None),
    ],
)
async def test_a_copy_of_a_snapshot_has_what_was_acknowledged_before_it_and_nothing_later(
    tmp_path: Path, cut: Cut, change: Callable[[Rows], object], wrong: str | None
) -> None:
    """All batches are written from 1,000 to 2,000 microseconds."""
    rows = written(tmp_path / "notes", repeated=False)
    change(rows)
    found = await faults(cast(Client, Table(rows)), cut, [tmp_path / "notes"])
    assert bool(found) == (wrong is not None)
    assert all(wrong in one for one in found if wrong)


def test_a_plan_has_at_least_the_nodes_that_are_wanted() -> None:
    for nodes in (1, 200_000, 5_000_000):
        plan = Plan(nodes, 100, 4)
        assert nodes <= plan.writers * plan.lists * WAVES * plan.width <= nodes * 1.05 + 4 * WAVES
        assert plan.width <= WIDTH_MAX


def test_regions_begin_where_nodes_change_their_place() -> None:
    firsts = [int(text.replace("\\x", ""), 16) << 48 for text in splits()]
    assert [(place_of(first - 1), place_of(first)) for first in firsts] == [(n, n + 1) for n in range(REGIONS - 1)]
