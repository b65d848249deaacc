"""Keeps which parts of a crashed process's log operators have left out, in few bytes and over a bypass of the crash."""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

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
