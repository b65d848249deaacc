"""Declares the states of regions and tables, and the transitions between them (HBase ``RegionState.State``).

=================  =====================================================================================
OFFLINE            it has no owner: it is new, was closed to be opened again, or is of a table that is disabled
OPENING            its server was chosen, and may have it already
OPEN               its server has it
CLOSING            its server gives it up, and may have it still
CLOSED             its server gave it up
FAILED_OPEN        no server could open it: an operator has it assigned again (final)
ABNORMALLY_CLOSED  its server crashed: it may have had it until it was fenced
=================  =====================================================================================

OPEN, CLOSED, OFFLINE and FAILED_OPEN are final: the catalog has them. The others are those of a procedure under way,
whose record has all that is needed to go on. Numbers 5, 6 and 9 to 12 belong to split and merge.
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
    FAILED_OPEN = 7
    ABNORMALLY_CLOSED = 13


S = RegionState

VALID_PREVIOUS: Final[Mapping[RegionState, frozenset[RegionState]]] = {
    S.OFFLINE: frozenset({S.CLOSED, S.ABNORMALLY_CLOSED, S.FAILED_OPEN}),
    S.OPENING: frozenset({S.OFFLINE, S.OPENING, S.CLOSED, S.ABNORMALLY_CLOSED, S.FAILED_OPEN}),
    S.OPEN: frozenset({S.OPENING, S.OPEN}),
    S.CLOSING: frozenset({S.OPEN, S.OPENING, S.CLOSING}),
    S.CLOSED: frozenset({S.OFFLINE, S.CLOSING, S.CLOSED, S.ABNORMALLY_CLOSED}),
    S.FAILED_OPEN: frozenset({S.OPENING}),
    S.ABNORMALLY_CLOSED: frozenset({S.OPENING, S.OPEN, S.CLOSING}),
}
"""States that may come before a state.

A region of a crashed server becomes CLOSED without being opened in between where its table is being disabled. Its edits
wait beside its data, and the next open takes them (HBase opens it once more first). An operator that ends the open of a
region gives it up: it is closed where it may be open, or becomes CLOSED at once.
"""

FINAL: Final = frozenset({S.OFFLINE, S.OPEN, S.CLOSED, S.FAILED_OPEN})
IN_TRANSITION: Final = frozenset(RegionState) - FINAL
OWNED: Final = frozenset({S.OPENING, S.OPEN, S.CLOSING})
"""States in which a server may have the region."""


class TableKind(IntEnum):
    """Classes of tables, in the order in which their regions are assigned wherever several wait."""

    META = 0
    SYSTEM = 1
    USER = 2


class TableState(IntEnum):
    """States of a table (HBase ``TableState``). CREATING and DELETING keep what is half done out of sight."""

    ENABLED = 0
    DISABLED = 1
    DISABLING = 2
    ENABLING = 3
    CREATING = 4
    DELETING = 5


T = TableState

TABLE_PREVIOUS: Final[Mapping[TableState, frozenset[TableState]]] = {
    T.CREATING: frozenset(),
    T.ENABLING: frozenset({T.DISABLED, T.ENABLING, T.CREATING}),
    T.ENABLED: frozenset({T.CREATING, T.ENABLING}),
    T.DISABLING: frozenset({T.ENABLED, T.DISABLING, T.ENABLING, T.CREATING}),
    T.DISABLED: frozenset({T.DISABLING}),
    T.DELETING: frozenset({T.DISABLED, T.DELETING, T.CREATING}),
}
"""States of a table that may come before a state."""

WANTED: Final = frozenset({T.ENABLED, T.ENABLING, T.CREATING})
"""States of a table whose regions are to be open."""


class ServerState(IntEnum):
    """States of one process of a server."""

    ONLINE = 0
    CRASHED = 1
    """It gets no regions any more; it may still have those that it had."""
    FENCED = 2
    """It cannot write any more, and its log was split: its regions may go to other servers."""
