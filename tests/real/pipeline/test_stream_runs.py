"""A stream's account of numbers: whatever order batches come in, terms and gaps are those of all rows at once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.real.pipeline.logs import Line, Log

pytest.importorskip("pyarrow", reason="the extra pipeline is not installed")

import pyarrow as pa

from pipeline.gaps import gaps, terms
from pipeline.pieces import Piece, narrow, pieces_of
from pipeline.schema import COLUMNS
from pipeline.stream.runs import merged


def term(epoch: int, chance: random.Random) -> Log:
    """Makes a term with holes, rows that stand for others, and different rows of one number."""
    found: Log = []
    seq = 1
    for _ in range(chance.randint(1, 8)):
        head = {"v": 1, "cluster": "c", "ctl_id": epoch - 4, "ctl_epoch": epoch, "seq": seq}
        row: Line = head | {"ts_us": epoch * 1_000 + seq, "mono_us": seq} | event(chance)
        found.append(row)
        other = row | {"reason": "another"} | event(chance)
        if chance.random() < 0.2 and "lost" not in other:
            found.append(other)
        seq += row.get("lost", 1) + chance.choice([0, 0, 0, 0, 0, 1, 2])
    return found


def event(chance: random.Random) -> Line:
    events: list[Line] = [
        {"kind": "UNRECORDED", "lost": chance.randint(1, 3)},
        {"kind": "FENCED"},
        {"kind": "LEADER", "t_committed": 3, "pepoch0": 1, "pepoch1": 2},
        {"kind": "CTL_RESIGNED"},
        {"kind": "CTL_RESIGNED", "pids": [1]},
        {"kind": "ISR"},
        {"kind": "ISR"},
    ]
    return chance.choice(events)


def table(log: Log) -> Any:
    return pa.Table.from_pylist(log, schema=COLUMNS)


def facts_of(found: list[Piece]) -> list[tuple[Any, ...]]:
    """Returns all that is known of terms and gaps, but for times beside breaks: a doubled number has two neighbours."""
    known = [
        (
            *(one.term, one.rows, one.first_seq, one.last_seq, one.due, one.first_us, one.last_us),
            *(one.ended, one.in_doubt, one.last_write, one.fenced),
        )
        for one in found
    ]
    return [*known, *((gap.kind, gap.ctl_epoch, gap.ctl_id, gap.seq, gap.rows) for gap in gaps(found))]


@settings(max_examples=60, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_batches_in_any_order_have_the_terms_and_gaps_of_all_rows(chance: random.Random) -> None:
    log = [*term(5, chance), *term(6, chance), *term(8, chance)]
    wanted = facts_of(terms(pieces_of(narrow(table(log)))))
    chance.shuffle(log)

    runs: list[Piece] = []
    while log:
        size = chance.randint(1, 4)
        runs, log = merged(runs, table(log[:size])), log[size:]

    assert facts_of(terms(runs)) == wanted
