"""Rounds against other writers: how many there are, and how much each may write at once."""

from __future__ import annotations

from controller.engine.conflict_rounds import ConflictRounds
from metadata_store.fencing.fenced import WRITES_MAX


def test_writes_share_multis_at_first_and_go_alone_in_the_end() -> None:
    assert list(ConflictRounds(2, alone=3)) == [WRITES_MAX, WRITES_MAX, 1, 1, 1]
    assert list(ConflictRounds(2)) == [WRITES_MAX, WRITES_MAX]


def test_a_round_that_met_no_other_writer_is_not_counted() -> None:
    rounds = ConflictRounds(1, alone=1)
    lost = 5
    seen = []
    for writes_max in rounds:
        seen.append(writes_max)
        if lost:
            lost -= 1
            rounds.repeat()
    assert seen == [WRITES_MAX] * 6 + [1]
