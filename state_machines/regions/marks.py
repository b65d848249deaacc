"""Declares the marks of operators on servers and regions, and keeps the parts of logs that they have left out.

=======  ===========  =============================================================================================
kind     subject      meaning
=======  ===========  =============================================================================================
cordon   server name  it gets no regions; those that it has stay
hold     server name  until a time its regions wait for its next process instead of going to other servers
level    store        what daemons may write to it; its value is a number, see ``levels``
off      balancer     regions are not balanced until it is switched on
pin      region id    it is opened at the server of this name wherever that is online; balancers leave it there
stopped  table name   it was enabled when all tables were stopped, and is enabled again when they are started
weight   server name  its share of regions beside other servers, whose is 1
=======  ===========  =============================================================================================
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterator
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from state_machines.regions.levels import OLDEST

STORE: Final = "store"
"""Subject of the mark that has the level."""


class MarkKind(StrEnum):
    """What a mark means."""

    CORDON = "cordon"
    HOLD = "hold"
    LEVEL = "level"
    OFF = "off"
    PIN = "pin"
    STOPPED = "stopped"
    WEIGHT = "weight"


WEIGHT_MIN: Final = 0.1
WEIGHT_MAX: Final = 1_000.0
_WEIGHT: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")


def is_weight(text: str) -> bool:
    """Checks whether the value of a mark is a weight."""
    return _WEIGHT.fullmatch(text) is not None and WEIGHT_MIN <= float(text) <= WEIGHT_MAX


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
        self.weights: dict[str, float] = {}
        """Weights of servers that have one of their own, by name."""

    def __iter__(self) -> Iterator[Mark]:
        return iter(sorted(self._marks.values(), key=lambda one: (one.kind, one.subject)))

    def put(self, mark: Mark) -> None:
        """Enters a mark, in place of one of its kind on the same subject."""
        self._marks[mark.kind, mark.subject] = mark
        if mark.kind is MarkKind.WEIGHT:
            self.weights[mark.subject] = float(mark.value)

    def drop(self, kind: MarkKind, subject: str) -> None:
        """Removes a mark."""
        self._marks.pop((kind, subject), None)
        if kind is MarkKind.WEIGHT:
            self.weights.pop(subject, None)

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

    @property
    def level(self) -> int:
        """Returns the level of the store."""
        mark = self._marks.get((MarkKind.LEVEL, STORE))
        return OLDEST if mark is None else int(mark.value)

    def is_cordoned(self, server: str) -> bool:
        """Checks whether a server gets no regions."""
        return (MarkKind.CORDON, server) in self._marks

    def weight(self, server: str) -> float:
        """Returns the weight of a server."""
        return self.weights.get(server, 1.0)

    def held_until_ms(self, server: str, now_ms: int) -> int:
        """Returns the end of the hold of a server's regions, 0 where there is none, or where it is over."""
        mark = self._marks.get((MarkKind.HOLD, server))
        return mark.until_ms if mark is not None and mark.until_ms > now_ms else 0

    def pinned(self, region: int) -> str:
        """Returns the name of the server that a region is pinned to, empty without."""
        mark = self._marks.get((MarkKind.PIN, str(region))) if self._marks else None
        return mark.value if mark is not None else ""


PART_CHARS_MAX: Final = 200
"""Characters of the name of a part, where it is stored as left out, and in lines of the log."""
HEAD_CHARS: Final = 100
"""First characters that a longer name keeps."""


class LostPart(Struct, frozen=True, array_like=True, gc=False):
    """A part. ``name``: a long one is shortened. ``pid``: of the procedure that was to split it."""

    name: str
    pid: int


class LeftOut(Struct, frozen=True, array_like=True, gc=False):
    """Parts of a log that one operator has left out for one reason: edits in them are not recovered."""

    parts: tuple[LostPart, ...]
    by: str
    reason: str


class LostParts(Struct, frozen=True, array_like=True, gc=False):
    """All parts of a log that were left out. ``regions``: how many the process had; ``ids``: the first of them."""

    left_out: tuple[LeftOut, ...] = ()
    regions: int = 0
    ids: tuple[int, ...] = ()


def short(part: str) -> str:
    """Returns the name of a part as it is stored: of a long one the begin and a digest."""
    if len(part) <= PART_CHARS_MAX:
        return part
    return f"{part[:HEAD_CHARS]}... (sha256 {hashlib.sha256(part.encode()).hexdigest()})"


def count(lost: LostParts) -> int:
    """Returns the number of parts."""
    return sum(len(one.parts) for one in lost.left_out)


def names(lost: LostParts) -> frozenset[str]:
    """Returns the names of all parts, as they are stored."""
    return frozenset(part.name for one in lost.left_out for part in one.parts)


def has_pid(lost: LostParts, pid: int) -> bool:
    """Checks whether a part was left out that a procedure was to split."""
    return any(part.pid == pid for one in lost.left_out for part in one.parts)


def added(lost: LostParts, more: LostParts) -> LostParts:
    """Returns all parts of two lists. What several have in common is stored once: operator, reason and regions."""
    groups, before = list(lost.left_out), names(lost)
    for one in more.left_out:
        new = tuple(part for part in one.parts if part.name not in before)
        at = next((at for at, group in enumerate(groups) if (group.by, group.reason) == (one.by, one.reason)), None)
        if new and at is None:
            groups.append(replace(one, parts=new))
        elif new and at is not None:
            groups[at] = replace(groups[at], parts=(*groups[at].parts, *new))
    return LostParts(tuple(groups), *((lost.regions, lost.ids) if lost.left_out else (more.regions, more.ids)))


def latest(lost: LostParts, known: LostParts) -> LeftOut | None:
    """Returns the parts of the latest command, as far as they are not known yet; None where all are known."""
    before = names(known)
    for one in lost.left_out:
        new = tuple(part for part in one.parts if part.name not in before)
        if new:
            return replace(one, parts=new)
    return None
