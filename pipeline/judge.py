"""Judges a bucket of rows: which rows break an invariant, by the kernel, and how, by the rules for one row and for two.

The kernel only says which. A row that it finds and that the rules find sound is a bug of one of them, and an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline import arrays, kernel
from pipeline.arrays import Arrays
from pipeline.brokers_seen import Life
from pipeline.compiling import latest
from pipeline.ending import Disagreement
from pipeline.kernel import Ints, Masks
from pipeline.verdict import NAMED, Broken, keyed, rows_of
from state_machines.journal.audit import CHECKS
from state_machines.journal.checks import COMPARISONS, excusable
from state_machines.journal.events import Row
from state_machines.model.types import NO_LEADER

JUDGED: Final = tuple(dict.fromkeys((*arrays.READ, *NAMED, "procedure")))
"""Columns that are judged, and those that violations name."""
BATCH_ROWS_MAX: Final = 10_000
"""Broken rows that are Python objects at once."""
ALWAYS: Final = 2**63 - 1
"""Stands for an end that does not come."""


def judged(table: pa.Table, lives: Sequence[Life]) -> Iterator[Broken]:
    """Yields each invariant that rows of a table break; its columns are :data:`JUDGED`.

    ``table`` has all rows of its partitions, of all terms; ``lives`` all brokers of those terms. Raises
    :class:`~pipeline.ending.Disagreement`.
    """
    masks, before = masked(arrays.arrays(table), lives)
    found = np.flatnonzero(masks)
    for first in range(0, len(found), BATCH_ROWS_MAX):
        some = found[first : first + BATCH_ROWS_MAX]
        rows = rows_of(table.take(pa.array(some)))
        earlier = rows_of(table.take(pa.array(np.maximum(before[some], 0))))
        for mask, row, one_before in zip(masks[some].tolist(), rows, earlier, strict=True):
            yield from _sentences(mask, row, one_before)


def masked(of: Arrays, lives: Sequence[Life]) -> tuple[Masks, Ints]:
    """Returns the mask of each row, and the place of the row before of its partition, or -1."""
    masks = kernel.judge_rows(of.values, of.starts, of.ends, of.items, arrays.legal())
    before: Ints = np.full(len(masks), -1, np.int64)
    order = _histories(of.values)
    kernel.judge_histories(of.values, of.starts, of.ends, of.items, order, masks, before)
    _mark_unseen(of, lives, masks)
    return masks, before


def _histories(values: Ints) -> Ints:
    """Returns the rows of partitions' histories, each of them oldest first."""
    of_partition = (values[kernel.KIND] >= 0) & (values[kernel.KIND] <= kernel.PARTITION_STATE)
    order = np.flatnonzero(of_partition & (values[kernel.PEPOCH1] != kernel.ABSENT))
    if kernel.in_order(values, order):
        return order
    names = (kernel.SEQ, kernel.CTL_EPOCH, kernel.PARTITION, kernel.TOPIC, kernel.CLUSTER)
    return order[np.lexsort(tuple(values[name, order] for name in names))]


def _mark_unseen(of: Arrays, lives: Sequence[Life], masks: Masks) -> None:
    """Adds to ``masks`` elections of leaders that were not there."""
    leader = of.values[kernel.LEADER1]
    elected = (of.values[kernel.STRATEGY] != kernel.ABSENT) & (leader > NO_LEADER)
    at = np.flatnonzero(elected & (leader != of.values[kernel.LEADER0]))
    if not len(at):
        return
    known = keyed(
        (
            (of.clusters[life.cluster], *life[1:4], ALWAYS if life.until is None else life.until)
            for life in lives
            if life.cluster in of.clusters
        ),
        len(Life._fields),
    )
    wanted = of.values[np.ix_((kernel.CLUSTER, kernel.CTL_EPOCH, kernel.LEADER1, kernel.SEQ), at)]
    life = latest(known[:-1], wanted)
    there = life >= 0
    there[there] = wanted[-1, there] < known[-1, life[there]]
    masks[at[~there]] |= kernel.UNSEEN


def _sentences(mask: int, row: Row, before: Row) -> Iterator[Broken]:
    for bit, invariant in enumerate(kernel.BY_ROW):
        if mask & 1 << bit:
            yield Broken(invariant, _sure(invariant, row, CHECKS[row.kind][invariant](row)), row)
    for bit, invariant in enumerate(kernel.BY_HISTORY, len(kernel.BY_ROW)):
        if mask & 1 << bit:
            what = _sure(invariant, row, COMPARISONS[invariant](before, row))
            since = (before.ctl_epoch, before.seq) if excusable(invariant, row) else None
            yield Broken(invariant, what, row, since)
    if mask & kernel.UNSEEN:
        what = f"broker {row.leader1} was elected while it was not live or was shutting down"
        yield Broken("A9", what, row, (row.ctl_epoch, 0))


def _sure(invariant: str, row: Row, what: str | None) -> str:
    if what is None:
        place = f"epoch {row.ctl_epoch}, row {row.seq}"
        raise Disagreement(f"{invariant} of {place}: the kernel finds it broken and the rules do not")
    return what
