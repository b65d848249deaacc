"""Declares the faults of stored records: why a daemon cannot use one, and which of them an operator may repair."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Fault(StrEnum):
    """The class of a fault."""

    CORRUPT = "corrupt"
    TRUNCATED = "truncated"
    OTHER_PID = "other pid"
    UNREADABLE = "unreadable"
    NEWER = "newer format"
    UNKNOWN_KIND = "unknown kind"
    ORPHAN = "orphan"
    OUT_OF_ORDER = "out of order"
    HOLE = "hole"
    FAMILY = "family"


class Unusable(NamedTuple):
    """The fault of a record, and a sentence with its cause."""

    fault: Fault
    why: str


REPAIRABLE: Final = frozenset(
    {Fault.CORRUPT, Fault.TRUNCATED, Fault.OTHER_PID, Fault.ORPHAN, Fault.OUT_OF_ORDER, Fault.HOLE}
)
"""Faults that no daemon can mend, whatever its version: such records may be moved aside."""
LATER: Final = frozenset({Fault.UNREADABLE, Fault.NEWER, Fault.UNKNOWN_KIND})
"""Faults that another daemon, or another ACL, makes good: such records, and their families, stay where they are."""


def newer(version: int, known: int) -> Unusable:
    """Returns the fault of a record whose format is newer than ``known``."""
    return Unusable(Fault.NEWER, f"format {version} is newer than this daemon's ({known}): upgrade the daemon")
