"""Judges rows of a journal in compiled loops: one bit of a row's mask for each invariant that it breaks.

The rules are those of :mod:`state_machines.journal.audit` and :mod:`state_machines.journal.checks`, which make the
sentences of the rows that are found here. A row is a column of numbers (:mod:`pipeline.arrays`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipeline.compiling import compiled, kept

Ints = Any
"""An array of NumPy's int64."""
Masks = Any
"""An array of int32."""
Table = Any
"""An array of bool."""

ABSENT: Final = -(2**63)
"""Stands for null."""

# Constants are in this file: Numba keeps what it compiled until this file changes, and has them as literals.
FIELDS: Final = (
    *("cluster", "topic", "partition", "ctl_epoch", "seq"),
    *("kind", "reason", "strategy", "from_state", "to_state", "topic_id", "step", "unclean", "steps"),
    *("leader0", "leader1", "leader_epoch0", "leader_epoch1", "pepoch0", "pepoch1"),
    *("t_committed", "broker_epoch", "t_sent", "t_acknowledged"),
)
"""Numbers of a row; ``steps`` is how many there are."""
CLUSTER, TOPIC, PARTITION, CTL_EPOCH, SEQ = range(5)
KIND, REASON, STRATEGY, FROM_STATE, TO_STATE, TOPIC_ID, STEP, UNCLEAN, STEPS = range(5, 14)
LEADER0, LEADER1, LEADER_EPOCH0, LEADER_EPOCH1, PEPOCH0, PEPOCH1 = range(14, 20)
T_COMMITTED, BROKER_EPOCH, T_SENT, T_ACKNOWLEDGED = range(20, 24)

LISTS: Final = ("isr0", "isr1", "replicas", "adding", "removing", "absent", "states")
"""Lists of a row, by their first and last item."""
ISR0, ISR1, REPLICAS, ADDING, REMOVING, AWAY, STATES = range(7)

KINDS: Final = ("LEADER", "ISR", "PARTITION_STATE", "REPLICA_STATE", "PROC_STATE", "RPC_BATCH", "REGION_STATE")
"""Kinds that have rules; the first three are of partitions."""
PARTITION_STATE, REPLICA_STATE, PROC_STATE, RPC_BATCH, REGION_STATE = range(2, 7)
REASONS: Final = ("observed", "isr_by_leader")
OBSERVED, BY_LEADER = range(2)
STRATEGIES: Final = ("preferred", "initial", "offline", "controlled_shutdown")
PREFERRED, CONTROLLED_SHUTDOWN = 0, 3
KNOWN_STATES: Final = ("", "NON_EXISTENT", "ROLLEDBACK")
"""States that have a number here; the others follow."""
NOTHING, NON_EXISTENT, ROLLEDBACK = range(3)
MACHINES: Final = ("partition", "replica", "procedure", "region")
OF_PARTITION, OF_REPLICA, OF_PROCEDURE, OF_REGION = range(4)

BY_ROW: Final = ("A1", "A3", "A4", "A5", "A6", "A8", "A9", "A10", "A11", "A12", "A14", "A15")
"""Invariants of single rows, by bit from the lowest."""
A1, A3, A4, A5, A6, A8, A9, A10, A11, A12, A14, A15 = (1 << bit for bit in range(12))
BY_HISTORY: Final = ("A1", "A2", "A7", "A8", "A12")
"""Invariants of a row and the one before, by the bits that follow."""
H1, H2, H7, H8, H12 = (1 << bit for bit in range(12, 17))
UNSEEN: Final = 1 << 17
"""A9: the elected leader had not come in this term, had gone, or had begun to shut down."""


@compiled
def holds(items: Ints, first: int, end: int, value: int) -> bool:
    """Checks whether items from ``first`` to before ``end`` have a value."""
    for at in range(first, end):  # noqa: SIM110  # Numba compiles no generators
        if items[at] == value:
            return True
    return False


@compiled
def within(items: Ints, first: int, end: int, others: int, others_end: int) -> bool:
    """Checks whether each item of a list is in another list."""
    for at in range(first, end):  # noqa: SIM110
        if not holds(items, others, others_end, items[at]):
            return False
    return True


@compiled
def epochs_and_isr(values: Ints, starts: Ints, ends: Ints, items: Ints, i: int) -> int:
    """Judges A1 and A3 to A5 of a row of a partition."""
    broken = 0
    observed = values[REASON, i] == OBSERVED
    before, after, steps = values[LEADER_EPOCH0, i], values[LEADER_EPOCH1, i], values[STEPS, i]
    if after != ABSENT:
        expected = steps - 1 if before == ABSENT else before + steps
        miscounted = (values[REASON, i] == BY_LEADER and steps > 0) or after != expected
        if (before != ABSENT and after < before) or (not observed and miscounted):
            broken |= A1
    leader, first, end = values[LEADER1, i], starts[ISR1, i], ends[ISR1, i]
    if leader != ABSENT and leader != -1 and leader != -2 and not holds(items, first, end, leader):
        broken |= A3
    if not observed and not within(items, first, end, starts[REPLICAS, i], ends[REPLICAS, i]):
        broken |= A4
    for at in range(first, end):
        if holds(items, at + 1, end, items[at]):
            broken |= A4
    if after != ABSENT and end <= first:
        broken |= A5
    return broken


@compiled
def transitions(values: Ints, starts: Ints, ends: Ints, items: Ints, legal: Table, machine: int, i: int) -> int:
    """Judges A6 of a partition or of a replica."""
    target = values[TO_STATE, i]
    if values[REASON, i] == OBSERVED or target == ABSENT:
        return 0
    known = legal.shape[1]
    at = values[FROM_STATE, i]
    if at in (ABSENT, NOTHING):
        at = NON_EXISTENT
    for state in range(starts[STATES, i], ends[STATES, i]):
        following = items[state]
        if at >= known or following < 0 or following >= known or not legal[machine, at, following]:
            return A6
        at = following
    if ends[STATES, i] > starts[STATES, i]:
        return 0 if at == target else A6
    if at >= known or target >= known or not legal[machine, at, target]:
        return A6
    return 0


@compiled
def versions(values: Ints, i: int) -> int:
    """Judges A8 of a row of a partition."""
    before, after = values[PEPOCH0, i], values[PEPOCH1, i]
    if values[KIND, i] == PARTITION_STATE or after == ABSENT:
        return 0
    if values[T_COMMITTED, i] != ABSENT:
        return A8 if after != (0 if before == ABSENT else before + 1) else 0
    return A8 if before != ABSENT and after <= before else 0


@compiled
def election(values: Ints, starts: Ints, ends: Ints, items: Ints, i: int) -> int:
    """Judges A9 to A11 of a row of a partition."""
    leader, strategy = values[LEADER1, i], values[STRATEGY, i]
    if leader == ABSENT or leader == -1 or leader == -2:
        return 0
    broken = 0
    if strategy != ABSENT and holds(items, starts[AWAY, i], ends[AWAY, i], leader):
        broken |= A9
    new = leader != values[LEADER0, i] and values[REASON, i] != OBSERVED and starts[ISR0, i] >= 0
    if new and values[UNCLEAN, i] != 1 and not holds(items, starts[ISR0, i], ends[ISR0, i], leader):
        broken |= A10
    first, end = starts[REPLICAS, i], ends[REPLICAS, i]
    if strategy == PREFERRED:
        if first >= end or items[first] != leader:
            broken |= A11
    elif strategy > PREFERRED and strategy <= CONTROLLED_SHUTDOWN:
        due = ABSENT
        for at in range(first, end):
            able = holds(items, starts[ISR1, i], ends[ISR1, i], items[at])
            if able and not holds(items, starts[AWAY, i], ends[AWAY, i], items[at]):
                due = items[at]
                break
        if due != leader:
            broken |= A11
    return broken


@compiled
def reassignment(starts: Ints, ends: Ints, items: Ints, i: int) -> int:
    """Judges A12 of a row of a partition."""
    adding, adding_end = starts[ADDING, i], ends[ADDING, i]
    removing, removing_end = starts[REMOVING, i], ends[REMOVING, i]
    if adding_end <= adding and removing_end <= removing:
        return 0
    first, end = starts[REPLICAS, i], ends[REPLICAS, i]
    if not within(items, adding, adding_end, first, end) or not within(items, removing, removing_end, first, end):
        return A12
    for at in range(removing, removing_end):
        if holds(items, first, end - (removing_end - removing), items[at]):
            return A12
    return 0


@compiled
def others(values: Ints, legal: Table, i: int) -> int:
    """Judges A14 of a procedure, A15 of a request and A6 of a region."""
    kind, known = values[KIND, i], legal.shape[1]
    if kind == RPC_BATCH:
        sent, acknowledged = values[T_SENT, i], values[T_ACKNOWLEDGED, i]
        late = acknowledged != ABSENT and acknowledged < (0 if sent == ABSENT else sent)
        return A15 if values[BROKER_EPOCH, i] < 0 or late else 0
    before, after = values[FROM_STATE, i], values[TO_STATE, i]
    nothing_before = before == ABSENT
    if nothing_before:
        before = NOTHING
    if kind == REGION_STATE:
        if after == ABSENT:
            after = NOTHING
        return 0 if before < known and after < known and legal[OF_REGION, before, after] else A6
    if after == ABSENT or after >= known or before >= known or (before == NOTHING and not nothing_before):
        return A14
    undone = after == ROLLEDBACK and values[STEP, i] == ABSENT
    return A14 if undone or not legal[OF_PROCEDURE, before, after] else 0


@compiled
def history(values: Ints, starts: Ints, ends: Ints, items: Ints, b: int, i: int) -> int:
    """Judges row ``i`` of a partition beside the row before, ``b``."""
    if values[PEPOCH0, i] == ABSENT or values[TOPIC_ID, b] != values[TOPIC_ID, i]:
        return 0
    broken = 0
    was, now = values[LEADER_EPOCH1, b], values[LEADER_EPOCH1, i]
    if was != ABSENT and now != ABSENT:
        if now < was:
            broken |= H1
        before, leader = values[LEADER1, b], values[LEADER1, i]
        if now == was and before != ABSENT and leader != ABSENT and before != leader:
            broken |= H2
    left, wrote = values[PEPOCH1, b], values[PEPOCH1, i]
    if values[CTL_EPOCH, b] < values[CTL_EPOCH, i]:
        if wrote < left or (wrote == left and values[KIND, i] != PARTITION_STATE):
            broken |= H7
    elif values[CTL_EPOCH, b] == values[CTL_EPOCH, i] and left != values[PEPOCH0, i]:
        broken |= H8
    return broken | removed(starts, ends, items, b, i)


@compiled
def removed(starts: Ints, ends: Ints, items: Ints, b: int, i: int) -> int:
    """Judges A12 of a row and the one before."""
    first, end = starts[REPLICAS, i], ends[REPLICAS, i]
    if starts[REMOVING, b] < 0 or starts[ISR0, i] < 0:
        return 0
    if within(items, starts[REMOVING, b], ends[REMOVING, b], first, end):
        return 0
    for at in range(first, end):
        goes = holds(items, starts[REMOVING, i], ends[REMOVING, i], items[at])
        if not goes and not holds(items, starts[ISR0, i], ends[ISR0, i], items[at]):
            return H12
    return 0


@kept
def judge_rows(values: Ints, starts: Ints, ends: Ints, items: Ints, legal: Table) -> Masks:
    """Returns the invariants that each row breaks by itself."""
    masks = np.zeros(values.shape[1], np.int32)
    for i in range(values.shape[1]):
        kind = values[KIND, i]
        if 0 <= kind <= PARTITION_STATE:
            broken = epochs_and_isr(values, starts, ends, items, i) | versions(values, i)
            broken |= transitions(values, starts, ends, items, legal, OF_PARTITION, i)
            broken |= election(values, starts, ends, items, i) | reassignment(starts, ends, items, i)
            masks[i] = broken
        elif kind == REPLICA_STATE:
            masks[i] = transitions(values, starts, ends, items, legal, OF_REPLICA, i)
        elif PROC_STATE <= kind <= REGION_STATE:
            masks[i] = others(values, legal, i)
    return masks


@kept
def judge_histories(
    values: Ints, starts: Ints, ends: Ints, items: Ints, order: Ints, masks: Masks, before: Ints
) -> None:
    """Adds to ``masks`` what rows show beside the one before, and puts the place of that row into ``before``.

    ``order``: the rows that tell of partitions; those of one are next to each other, oldest first.
    """
    last = -1
    for i in order:
        if last >= 0:
            same = values[CLUSTER, last] == values[CLUSTER, i] and values[TOPIC, last] == values[TOPIC, i]
            if same and values[PARTITION, last] == values[PARTITION, i]:
                before[i] = last
                masks[i] |= history(values, starts, ends, items, last, i)
        last = i


@kept
def in_order(values: Ints, order: Ints) -> bool:
    """Checks whether rows are sorted by partition, term and number."""
    for k in range(1, order.size):
        b, i = order[k - 1], order[k]
        for field in (CLUSTER, TOPIC, PARTITION, CTL_EPOCH, SEQ):
            if values[field, b] != values[field, i]:
                if values[field, b] > values[field, i]:
                    return False
                break
    return True
