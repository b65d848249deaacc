"""Judges A14 beyond single rows: a procedure ends after its children, and no two hold one exclusive lock at once.

No missing row can excuse what is found: all that is compared is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from pipeline.verdict import NAMED, Broken, Place
from state_machines.journal.events import Row
from state_machines.procedures.states import ENDS
from state_machines.procedures.transition import SHARED

READ: Final = (*NAMED, "pid", "pids", "ppid", "root", "from_state", "to_state", "locks", "locked")
"""Columns of procedures' rows that are compared."""
_ENDED: Final = frozenset(state.name for state in ENDS)


class Held(NamedTuple):
    """An exclusive lock of a family: from its first row with the lock to the last one."""

    cluster: str
    lock: str
    since: Place
    until: Place
    root: int | None


class Families:
    """Remembers of all procedures' rows what later rows, or earlier ones, are compared with."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.ended: dict[tuple[str, int], Place] = {}
        held: dict[tuple[str, str, int | None], tuple[Place, Place]] = {}
        for row in rows:
            at = _at(row)
            if row.to_state in _ENDED:
                for pid in pids(row):
                    self.ended[row.cluster, pid] = min(at, self.ended.get((row.cluster, pid), at))
            if row.locked and row.from_state is not None:  # a child that is begun may wait for its locks
                for lock in row.locks or ():
                    if not lock.endswith(SHARED):
                        since, until = held.get((row.cluster, lock, row.root), (at, at))
                        held[row.cluster, lock, row.root] = min(since, at), max(until, at)
        self.taken = _taken(Held(cluster, lock, *times, root) for (cluster, lock, root), times in held.items())

    def judged(self, rows: Iterable[Row]) -> Iterator[Broken]:
        """Yields violations of A14; the rows are those that were remembered."""
        for row in rows:
            at = _at(row)
            if row.ppid is not None and self.ended.get((row.cluster, row.ppid), at) < at:
                for pid in pids(row):
                    yield Broken("A14", f"child {pid} goes on after its parent {row.ppid} has ended", row)
            for lock, other in self.taken.get((row.cluster, at), ()):
                yield Broken("A14", f"pid {row.pid} holds {lock} while pid {other} holds it", row)


def pids(row: Row) -> list[int]:
    """Returns the procedures of a row: in bulk it has many."""
    return list(row.pids) if row.pids is not None else [row.pid] if row.pid is not None else []


def _taken(held: Iterable[Held]) -> dict[tuple[str, Place], list[tuple[str, int | None]]]:
    """Returns locks, and who else holds them, by the place of the row that takes them in spite of that."""
    found: dict[tuple[str, Place], list[tuple[str, int | None]]] = {}
    ordered = sorted(held, key=lambda one: one[:4])
    for (cluster, lock), of_lock in groupby(ordered, key=lambda one: one[:2]):
        holders: list[Held] = []
        for since, begun in groupby(of_lock, key=lambda one: one.since):
            begins = list(begun)
            holders = [one for one in holders if one.until > since]
            holders += [one for one in begins if one.until > since]
            clashes = [(lock, other.root) for one in begins for other in holders if other.root != one.root]
            if clashes:
                found.setdefault((cluster, since), []).extend(clashes)
    return found


def _at(row: Row) -> Place:
    return row.ctl_epoch, row.seq
