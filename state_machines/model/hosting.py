"""Knows which rows have which assignment: so there is no index of replicas by broker.

Invariants: Equal assignments of rows are one object. A row is under exactly the assignment that it has. To enter or
to leave costs constant time (amortised), however many rows share an assignment.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import Final

from state_machines.model.types import Assignment

LEFT_SHARE: Final = 4
"""Entries of rows that left are swept out as soon as they are more than every fourth."""


class Placed:
    """An assignment, and the rows that were given it: 4 bytes for each. Rows that are new are appended to ``rows``."""

    __slots__ = ("_left", "assignment", "rows")

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.rows = array("I")
        self._left: set[int] = set()

    def __len__(self) -> int:
        return len(self.rows) - len(self._left)

    def __iter__(self) -> Iterator[int]:
        left = self._left
        return (i for i in self.rows if i not in left) if left else iter(self.rows)

    def enter(self, i: int) -> None:
        """Adds a row that has the assignment from now on; where it had it before, its entry may still be there."""
        if i in self._left:
            self._left.discard(i)
        else:
            self.rows.append(i)

    def leave(self, i: int) -> None:
        """Removes a row that has another assignment from now on."""
        self._left.add(i)
        if LEFT_SHARE * len(self._left) > len(self.rows):
            self.rows = array("I", iter(self))
            self._left.clear()


class Hosting:
    """All assignments that rows have."""

    def __init__(self) -> None:
        self._plain: dict[tuple[int, ...], Placed] = {}
        self._moving: dict[Assignment, Placed] = {}

    @property
    def any_moving(self) -> bool:
        """Checks whether an assignment adds or removes replicas."""
        return bool(self._moving)

    def placed(self, assignment: Assignment) -> Placed:
        """Returns the one object for an assignment, with its rows."""
        if assignment.moving:
            found = self._moving.get(assignment)
            return found if found is not None else self._moving.setdefault(assignment, Placed(assignment))
        found = self._plain.get(assignment.replicas)
        return found if found is not None else self._plain.setdefault(assignment.replicas, Placed(assignment))

    def move(self, i: int, before: Assignment, after: Assignment) -> Assignment:
        """Moves a row from one assignment to another; returns the object of the latter."""
        left, entered = self.placed(before), self.placed(after)
        left.leave(i)
        entered.enter(i)
        if not left:
            if before.moving:
                del self._moving[before]
            else:
                del self._plain[before.replicas]
        return entered.assignment

    def brokers(self) -> set[int]:
        """Returns the brokers that an assignment names."""
        return {b for found in chain(self._plain.values(), self._moving.values()) for b in found.assignment.replicas}

    def replicas(self) -> dict[int, int]:
        """Counts the replicas that each broker hosts."""
        counts: dict[int, int] = {}
        for found in chain(self._plain.values(), self._moving.values()):
            for broker in found.assignment.replicas:
                counts[broker] = counts.get(broker, 0) + len(found)
        return counts

    def rows_on(self, broker: int) -> Iterator[int]:
        """Returns rows with a replica on ``broker``, in no order."""
        placed = chain(self._plain.values(), self._moving.values())
        return chain.from_iterable(found for found in placed if broker in found.assignment.replicas)
