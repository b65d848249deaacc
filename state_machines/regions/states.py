"""Declares the states of regions and tables, and the transitions between them (HBase ``RegionState.State``).

=================  =====================================================================================
OFFLINE            it has no owner: it is new, was closed to be opened again, or is of a table that is disabled
OPENING            its server was chosen, and may have it already
OPEN               its server has it
CLOSING            its server gives it up, and may have it still
CLOSED             its server gave it up
FAILED_OPEN        no server could open it: an operator has it assigned again (final)
SPLITTING          its server has it, and is about to give it up, so that its keys go to two others
SPLIT              two others have its keys; it is remembered until its data is discarded
MERGING            its server has it, and is about to give it up, so that one gets its keys and those of neighbours
MERGED             another one has its keys, and those of neighbours; it is remembered until its data is discarded
ABNORMALLY_CLOSED  its server crashed: it may have had it until it was fenced
=================  =====================================================================================

OPEN, CLOSED, OFFLINE and FAILED_OPEN are final: the catalog has them. SPLIT and MERGED are, too, in rows of their own:
such a region is none of its table any more. The others are those of a procedure under way, whose record has all that is
needed to go on. Numbers 11 and 12, HBase's SPLITTING_NEW and MERGING_NEW, are not used: a region that gets the keys of
others is CLOSED, and attached to the procedure that opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class RegionState(IntEnum):
    """A state; the value is the stored one."""

    OFFLINE = 0
    OPENING = 1
    OPEN = 2
    CLOSING = 3
    CLOSED = 4
    SPLITTING = 5
    SPLIT = 6
    FAILED_OPEN = 7
    MERGING = 9
    MERGED = 10
    ABNORMALLY_CLOSED = 13


S = RegionState

VALID_PREVIOUS: Final[Mapping[RegionState, frozenset[RegionState]]] = {
    S.OFFLINE: frozenset({S.CLOSED, S.ABNORMALLY_CLOSED, S.FAILED_OPEN}),
    S.OPENING: frozenset({S.OFFLINE, S.OPENING, S.CLOSED, S.ABNORMALLY_CLOSED, S.FAILED_OPEN}),
    S.OPEN: frozenset({S.OPENING, S.OPEN, S.SPLITTING, S.MERGING}),
    S.CLOSING: frozenset({S.OPEN, S.OPENING, S.CLOSING, S.SPLITTING, S.MERGING}),
    S.CLOSED: frozenset({S.OFFLINE, S.CLOSING, S.CLOSED, S.ABNORMALLY_CLOSED}),
    S.SPLITTING: frozenset({S.OPEN}),
    S.SPLIT: frozenset({S.CLOSED}),
    S.FAILED_OPEN: frozenset({S.OPENING}),
    S.MERGING: frozenset({S.OPEN}),
    S.MERGED: frozenset({S.CLOSED}),
    S.ABNORMALLY_CLOSED: frozenset({S.OPENING, S.OPEN, S.CLOSING, S.SPLITTING, S.MERGING}),
}
"""States that may come before a state.

A region of a crashed server becomes CLOSED without being opened in between where its table is being disabled. Its edits
wait beside its data, and the next open takes them (HBase opens it once more first). An operator that ends the open of a
region gives it up: it is closed where it may be open, or becomes CLOSED at once.
"""

FINAL: Final = frozenset({S.OFFLINE, S.OPEN, S.CLOSED, S.FAILED_OPEN, S.SPLIT, S.MERGED})
REPLACED: Final = frozenset({S.SPLIT, S.MERGED})
"""States of a region whose keys others have."""
IN_TRANSITION: Final = frozenset(RegionState) - FINAL
OWNED: Final = frozenset({S.OPENING, S.OPEN, S.CLOSING, S.SPLITTING, S.MERGING})
"""States in which a server may have the region."""
REMEMBERED: Final = frozenset(RegionState) - OWNED
"""States of a region that is remembered until its data is discarded: one that was truncated keeps its last state."""


class TableKind(IntEnum):
    """Classes of tables, in the order in which their regions are assigned wherever several wait."""

    META = 0
    SYSTEM = 1
    USER = 2


class TableState(IntEnum):
    """States of a table (HBase ``TableState``). Those of :data:`PARTIAL` keep what is half done out of sight."""

    ENABLED = 0
    DISABLED = 1
    DISABLING = 2
    ENABLING = 3
    CREATING = 4
    DELETING = 5
    TRUNCATING = 6
    """Its regions are replaced by others, which begin empty or as a snapshot; it becomes DISABLED again."""


T = TableState

TABLE_PREVIOUS: Final[Mapping[TableState, frozenset[TableState]]] = {
    T.CREATING: frozenset(),
    T.ENABLING: frozenset({T.DISABLED, T.ENABLING, T.CREATING}),
    T.ENABLED: frozenset({T.CREATING, T.ENABLING}),
    T.DISABLING: frozenset({T.ENABLED, T.DISABLING, T.ENABLING, T.CREATING}),
    T.DISABLED: frozenset({T.DISABLING, T.TRUNCATING}),
    T.DELETING: frozenset({T.DISABLED, T.DELETING, T.CREATING, T.TRUNCATING}),
    T.TRUNCATING: frozenset({T.DISABLED, T.TRUNCATING}),
}
"""States of a table that may come before a state."""

PARTIAL: Final = frozenset({T.CREATING, T.DELETING, T.TRUNCATING})
"""States in which a table may have only some of its regions, and in which no client sees it."""
WANTED: Final = frozenset({T.ENABLED, T.ENABLING, T.CREATING})
"""States of a table whose regions are to be open."""


class ServerState(IntEnum):
    """States of one process of a server."""

    ONLINE = 0
    CRASHED = 1
    """It gets no regions any more; it may still have those that it had."""
    FENCED = 2
    """It cannot write any more, and its log was split: its regions may go to other servers."""
