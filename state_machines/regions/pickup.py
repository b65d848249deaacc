"""Decides what picks up a region that no procedure moves: after a failover, and once an operator has ended one.

=================  =============================  ============================  ================================
its state          it has no owner, is to be open  ... is not to be open         an owner serves, or may
=================  =============================  ============================  ================================
OFFLINE            an assign                      nothing                       (never)
OPENING, CLOSING   an assign                      a close                       an assign or a close: the owner
                                                                                closes it first
OPEN               an assign                      a close                       nothing
CLOSED             nothing: it was closed, or     nothing                       (never)
                   given up, by an operator
FAILED_OPEN        nothing: it was given up       nothing                       (never)
ABNORMALLY_CLOSED  an assign                      a close                       (never)
=================  =============================  ============================  ================================

The crash of an owner sees to all of its regions. An OFFLINE region of a table that is being created or enabled waits
for that change, or for the next one that an operator begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from state_machines.regions.states import IN_TRANSITION, OWNED, WANTED, RegionState, ServerState, TableState

S = RegionState


class Way(Enum):
    """What goes on with a region."""

    REST = auto()
    """Nothing: it stays as it is, and an operator sees it where it has no owner."""
    CRASH = auto()
    """The crash of its owner, once that is fenced."""
    ASSIGN = auto()
    CLOSE = auto()


class _Ways(NamedTuple):
    """``wanted``, ``unwanted``: without an owner; ``owned``, ``owned_unwanted``: with one that may serve."""

    wanted: Way
    unwanted: Way
    owned: Way = Way.REST
    owned_unwanted: Way = Way.REST


WAYS: Final[Mapping[RegionState, _Ways]] = {
    S.OFFLINE: _Ways(Way.ASSIGN, Way.REST),
    S.OPENING: _Ways(Way.ASSIGN, Way.CLOSE, Way.ASSIGN, Way.CLOSE),
    S.OPEN: _Ways(Way.ASSIGN, Way.CLOSE),
    S.CLOSING: _Ways(Way.ASSIGN, Way.CLOSE, Way.ASSIGN, Way.CLOSE),
    S.CLOSED: _Ways(Way.REST, Way.REST),
    S.FAILED_OPEN: _Ways(Way.REST, Way.REST),
    S.ABNORMALLY_CLOSED: _Ways(Way.ASSIGN, Way.CLOSE),
}


def way_of(state: RegionState, owner: ServerState | None, table: TableState, *, given_up: bool = False) -> Way:
    """Returns what picks a region up. ``given_up``: an operator has ended the procedure that was to open it."""
    if owner not in (None, ServerState.ONLINE):
        return Way.CRASH
    ways = WAYS[state]
    wanted = table is TableState.ENABLED if state is S.OFFLINE else table in WANTED
    if owner is None:
        found = ways.wanted if wanted else ways.unwanted
    else:
        found = ways.owned if wanted else ways.owned_unwanted
    return Way.CLOSE if given_up and found is Way.ASSIGN else found


def closes_first(state: RegionState, owner: ServerState | None) -> bool:
    """Checks whether the owner of a region, which may have it, has to close it before another server opens it."""
    return owner is ServerState.ONLINE and state in OWNED and state in IN_TRANSITION
