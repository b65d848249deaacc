"""Judges what one row of a partition shows of versions (A8), of absent brokers (A9) and of reassignments (A12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from state_machines.journal.events import Kind, Row
from state_machines.model.types import LEADER_DURING_DELETE, NO_LEADER

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
