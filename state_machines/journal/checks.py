"""Judges what one row of a partition or region shows, and what two rows of a partition show (A1, A2, A7 to A9, A12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from state_machines.journal.events import PARTITION_KINDS, Kind, Row
from state_machines.model.types import LEADER_DURING_DELETE, NO_LEADER
from state_machines.regions.states import REMEMBERED, VALID_PREVIOUS, RegionState

NOBODY: Final = (NO_LEADER, LEADER_DURING_DELETE)
"""Leaders that are none."""


def next_version(row: Row) -> str | None:
    """Checks A8: an own write is the znode's next version; a fact is newer than the version that was known."""
    before, after = row.pepoch0, row.pepoch1
    if row.kind == Kind.PARTITION_STATE or after is None:
        return None
    if row.t_committed is not None:
        wrong = after != (-1 if before is None else before) + 1
    else:
        wrong = before is not None and after <= before
    return f"the partition epoch went from {_number(before)} to {after}" if wrong else None


def elected_while_absent(row: Row) -> str | None:
    """Checks A9: the elected leader is registered."""
    if row.strategy is None or row.leader1 in (None, *NOBODY) or row.leader1 not in (row.absent or ()):
        return None
    return f"leader {row.leader1} is among the absent brokers {ids(row.absent)}"


def reassignment_adds_up(row: Row) -> str | None:
    """Checks A12: added and removed brokers are replicas, and those that go come last.

    One that is both was dropped by a cancel or an override, and stays named until its broker has stopped it.
    """
    replicas, adding, removing = row.replicas or (), row.adding or (), row.removing or ()
    if not adding and not removing:
        return None
    stay = replicas[: max(len(replicas) - len(removing), 0)]
    strange = not {*adding, *removing} <= set(replicas)
    if strange or not set(removing).isdisjoint(stay):
        return f"replicas {ids(replicas)} do not add up with adding {ids(adding)} and removing {ids(removing)}"
    return None


def ids(brokers: Sequence[int] | None) -> str:
    """Formats a list of brokers."""
    return "[" + ", ".join(map(str, brokers or ())) + "]"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


Comparison = Callable[[Row, Row], str | None]
"""Returns a sentence if the row before and a row break an invariant."""


def tells(row: Row) -> bool:
    """Checks whether a row is one of a partition's history."""
    return row.kind in PARTITION_KINDS and row.pepoch1 is not None


def follows(before: Row, row: Row) -> bool:
    """Checks whether a row goes on with the history of the row before of the same name.

    One without a partition epoch before begins a new history: the topic was created, or is seen for the first time.
    """
    return row.pepoch0 is not None and before.topic_id == row.topic_id


def falling(before: Row, row: Row) -> str | None:
    """Checks A1: the leader epoch never decreases."""
    was, now = before.leader_epoch1, row.leader_epoch1
    if was is None or now is None or now >= was:
        return None
    return f"the leader epoch was {was} in the row before and is {now}"


def two_leaders(before: Row, row: Row) -> str | None:
    """Checks A2: a leader epoch has one leader, or none."""
    if row.leader_epoch1 is None or row.leader_epoch1 != before.leader_epoch1:
        return None
    if before.leader1 is None or row.leader1 is None or before.leader1 == row.leader1:
        return None
    return f"leader epoch {row.leader_epoch1} has the leaders {before.leader1} and {row.leader1}"


def overtaken(before: Row, row: Row) -> str | None:
    """Checks A7: once a later term has written, no earlier one does.

    The znode's version gives the order of two writes, whatever the clocks were.
    """
    was, now = before.pepoch1, row.pepoch1
    if was is None or now is None or before.ctl_epoch >= row.ctl_epoch:
        return None
    if now < was or (now == was and row.kind != Kind.PARTITION_STATE):
        return f"term {before.ctl_epoch} wrote partition epoch {was} after this one's {now}"
    return None


def hole(before: Row, row: Row) -> str | None:
    """Checks A8: within a term each row begins with the partition epoch that the one before left."""
    was, now = before.pepoch1, row.pepoch0
    if was is None or now is None or before.ctl_epoch != row.ctl_epoch or was == now:
        return None
    return f"the row before left partition epoch {was} and this one begins with {now}"


def removed_early(before: Row, row: Row) -> str | None:
    """Checks A12: replicas that a reassignment removes go only once those that stay are in sync.

    Those that stay are of the row that removes: an override may have changed the target in the same write.
    """
    if before.removing is None or row.replicas is None or row.isr0 is None or set(before.removing) <= set(row.replicas):
        return None
    if set(row.replicas).difference(row.removing or ()) <= set(row.isr0):
        return None
    return f"of {ids(before.replicas)} there are {ids(row.replicas)} left while in sync were {ids(row.isr0)}"


COMPARISONS: Final[Mapping[str, Comparison]] = {
    "A1": falling,
    "A2": two_leaders,
    "A7": overtaken,
    "A8": hole,
    "A12": removed_early,
}
"""Comparisons by the invariant that they judge."""

EXPLAINED_BY_GAPS: Final = ("A8", "A12")
"""Invariants whose violation may come from rows missing between the two rows. Others are excused only where a topic has
no id: it may have been another one of the same name.
"""


def excusable(invariant: str, row: Row) -> bool:
    """Checks whether rows that are missing between the two rows may explain what these show."""
    return invariant in EXPLAINED_BY_GAPS or row.topic_id is None


DISCARDED: Final = "DISCARDED"
"""State of a region that was split, merged or truncated, and whose data is gone."""
FORGOTTEN: Final = "FORGOTTEN"
"""State of a region whose rows an operator has had removed; its data stays where it is."""
REGION_STEPS: Final = frozenset(
    {(before.name, after.name) for after, froms in VALID_PREVIOUS.items() for before in froms}
    | {(state.name, state.name) for state in RegionState}
    | {("", RegionState.OFFLINE.name), ("", RegionState.CLOSED.name)}
    | {(state.name, after) for state in REMEMBERED for after in (DISCARDED, FORGOTTEN)}
    | {("", FORGOTTEN)}
)
"""States of a region before and after. One that is new has none before; where a procedure begins it keeps its state.

One that has got the keys of others is new and CLOSED. The state of one whose row cannot be read is not known.
"""


def region_states(row: Row) -> str | None:
    """Checks A6 of regions."""
    before, after = row.from_state or "", row.to_state or ""
    return None if (before, after) in REGION_STEPS else f"illegal transition {before or 'nothing'} -> {after}"
