"""Decides how one region goes on, by its procedure and its server, and what picks up one that no procedure moves.

The rule behind all of it: a lost answer means nothing. A region stays with the process that it was sent to until that
process answers, or is fenced; and only an answer of that process says that it does not have the region.

What picks up a region that no procedure moves, by its state:

=================  =============================  ============================  ================================
its state          it has no owner, is to be open  ... is not to be open         an owner serves, or may
=================  =============================  ============================  ================================
OFFLINE            an assign                      nothing                       (never)
OPENING, CLOSING   an assign                      a close                       an assign or a close: the owner
                                                                                closes it first
OPEN               an assign                      a close                       nothing
CLOSED             nothing: it was closed, or     nothing                       (never)
                   given up, by an operator
SPLITTING,         an assign                      a close                       an assign or a close: the owner
MERGING                                                                         closes it first
FAILED_OPEN        nothing: it was given up       nothing                       (never)
ABNORMALLY_CLOSED  an assign                      a close                       (never)
=================  =============================  ============================  ================================

A region that is SPLIT or MERGED is never picked up: others have its keys.

The crash of an owner sees to all of its regions. An OFFLINE region of a table that is being created or enabled waits
for that change, or for the next one that an operator begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from msgspec import Struct

from state_machines.regions.states import IN_TRANSITION, OWNED, WANTED, RegionState, ServerState, TableState

RETRIES_AT_ONCE: Final = 3
"""Failed opens after which the next attempt waits (HBase ``hbase.assignment.retry.immediately.maximum.attempts``)."""
PAUSE_MS_MIN: Final = 1_000
PAUSE_MS_MAX: Final = 60_000


class Answer(Enum):
    """What the process said to an operation, see ``regent_agent.protocol``; NONE: nothing yet."""

    NONE = auto()
    OPENED = auto()
    CLOSED = auto()
    FAILED = auto()
    NOT_RUNNING = auto()
    BUSY = auto()


class Act(Enum):
    """What the procedure of a region does next."""

    SEND = auto()
    """The operation is sent, if it was not, and the answer awaited."""
    END = auto()
    """The region is where it was to be: stored, and the procedure ends."""
    AGAIN = auto()
    """The operation is sent to the same process again, after a pause."""
    ELSEWHERE = auto()
    """Another server is chosen: this process does not have the region, or is fenced."""
    GIVE_UP = auto()
    """No server can open the region: FAILED_OPEN is stored, and the procedure ends."""


class Attempts(Struct, frozen=True, gc=False):
    """How often an open failed, and when attempts end. ``attempts_max`` 0: never."""

    retries: int
    attempts_max: int
    waited_ms: int
    """Time since the operation was stored."""
    not_running_ms_max: int
    """Time after which a process that is not running yet is left."""


def opening(fenced: bool, answer: Answer, attempts: Attempts) -> Act:
    """Decides on an open. A process that is fenced is left whatever it answered: that was before its fence."""
    if fenced:
        return Act.ELSEWHERE
    match answer:
        case Answer.NONE:
            return Act.SEND
        case Answer.OPENED:
            return Act.END
        case Answer.NOT_RUNNING if attempts.waited_ms < attempts.not_running_ms_max:
            return Act.AGAIN
        case Answer.NOT_RUNNING | Answer.BUSY:
            return Act.ELSEWHERE
        case _:
            over = attempts.attempts_max and attempts.retries + 1 >= attempts.attempts_max
            return Act.GIVE_UP if over else Act.ELSEWHERE


def closing(fenced: bool, answer: Answer) -> Act:
    """Decides on a close: it ends with the process's word, or with its fence."""
    if fenced or answer is Answer.CLOSED:
        return Act.END
    return Act.SEND if answer is Answer.NONE else Act.AGAIN


def pause_ms(retries: int) -> int:
    """Returns the pause before the next open, after so many that failed: none at first, then growing."""
    if retries <= RETRIES_AT_ONCE:
        return 0
    return min(PAUSE_MS_MAX, PAUSE_MS_MIN << min(retries - RETRIES_AT_ONCE - 1, 10))


def unneeded(table: TableState, region: RegionState, server: ServerState | None) -> str | None:
    """Returns why a region is not to be opened; None where it is. ``server``: the state of its owner, if any.

    A region that an owner may have and that is not open is opened once that has closed it, or is fenced.
    """
    if table not in WANTED:
        return f"its table is {table.name.lower()}"
    if server is None or server is ServerState.FENCED:
        return None
    if region is RegionState.OPEN:
        return "it is open already"
    return "its server crashed: the crash sees to it" if server is ServerState.CRASHED else None


def uncloseable(region: RegionState) -> str | None:
    """Returns why there is nothing to close; None where the region is not closed yet."""
    if region in (RegionState.CLOSED, RegionState.FAILED_OPEN):
        return f"it is {region.name.lower()} already"
    return None


def begun_at(previous: RegionState) -> RegionState:
    """Returns the state from which a region becomes OPENING; that of one whose server crashed is corrected."""
    crashed = previous in OWNED and previous is not RegionState.OPENING
    return RegionState.ABNORMALLY_CLOSED if crashed else previous


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
    S.SPLITTING: _Ways(Way.ASSIGN, Way.CLOSE, Way.ASSIGN, Way.CLOSE),
    S.SPLIT: _Ways(Way.REST, Way.REST),
    S.FAILED_OPEN: _Ways(Way.REST, Way.REST),
    S.MERGING: _Ways(Way.ASSIGN, Way.CLOSE, Way.ASSIGN, Way.CLOSE),
    S.MERGED: _Ways(Way.REST, Way.REST),
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
