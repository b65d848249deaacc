"""Declares the marks that operators set on servers and regions, and what follows from them.

======  ===========  ==============================================================================================
kind    subject      meaning
======  ===========  ==============================================================================================
cordon  server name  it gets no regions; those that it has stay
hold    server name  until a time its regions wait for its next process instead of going to other servers
pin     region id    it is opened at the server of this name wherever that is online; balancers leave it there
======  ===========  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from enum import StrEnum
from typing import Final

import msgspec


class MarkKind(StrEnum):
    """What a mark means."""

    CORDON = "cordon"
    HOLD = "hold"
    PIN = "pin"


HOLD_MS_MAX: Final = 3_600_000
"""Longest hold: meanwhile the regions of a server that does not come back have no owner."""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A mark. ``until_ms``: its end on the wall clock, 0 without one."""

    kind: MarkKind
    subject: str
    value: str = ""
    until_ms: int = 0
    by: str = ""
    reason: str = ""


class Marks:
    """Holds all marks of a domain."""

    def __init__(self) -> None:
        self._marks: dict[tuple[MarkKind, str], Mark] = {}

    def __iter__(self) -> Iterator[Mark]:
        return iter(sorted(self._marks.values(), key=lambda one: (one.kind, one.subject)))

    def put(self, mark: Mark) -> None:
        """Enters a mark, in place of one of its kind on the same subject."""
        self._marks[mark.kind, mark.subject] = mark

    def drop(self, kind: MarkKind, subject: str) -> None:
        """Removes a mark."""
        self._marks.pop((kind, subject), None)

    def get(self, kind: MarkKind, subject: str) -> Mark | None:
        """Returns a mark."""
        return self._marks.get((kind, subject))

    def __len__(self) -> int:
        return len(self._marks)

    def over(self, now_ms: int, regions: Container[int]) -> list[Mark]:
        """Returns marks that mean nothing any more: holds whose time is over, and pins of regions that are gone."""
        return [
            one
            for one in self._marks.values()
            if 0 < one.until_ms <= now_ms or (one.kind is MarkKind.PIN and int(one.subject) not in regions)
        ]

    def is_cordoned(self, server: str) -> bool:
        """Checks whether a server gets no regions."""
        return (MarkKind.CORDON, server) in self._marks

    def held_until_ms(self, server: str, now_ms: int) -> int:
        """Returns the end of the hold of a server's regions, 0 where there is none, or where it is over."""
        mark = self._marks.get((MarkKind.HOLD, server))
        return mark.until_ms if mark is not None and mark.until_ms > now_ms else 0

    def pinned(self, region: int) -> str:
        """Returns the name of the server that a region is pinned to, empty without."""
        mark = self._marks.get((MarkKind.PIN, str(region))) if self._marks else None
        return mark.value if mark is not None else ""
