"""Makes rows of rounds that were played in turn: the ratio is the median of those of the pairs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.results import Goal, Row, Sample


def paired(
    case: str,
    size: str,
    what: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    goal: Goal,
    peer_is: str = "-",
    higher_is_better: bool = False,
) -> Row:
    """Returns a row; ``theirs`` is empty where there is no peer. A drift of the machine changes both of a pair."""
    peer = Sample.of(theirs) if theirs else None
    row = Row(case, size, what, unit, Sample.of(ours), peer, goal, higher_is_better, peer_is)
    if theirs:
        ratios = [a / b if higher_is_better else b / a for a, b in zip(ours, theirs, strict=True)]
        row.pairs = statistics.median(ratios)
    return row
