"""Judges what two rows of a partition show, one after the other in all terms: A1, A2, A7, A8 and A12."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from state_machines.journal.events import PARTITION_KINDS, Kind, Row
from state_machines.journal.partition_checks import ids

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
