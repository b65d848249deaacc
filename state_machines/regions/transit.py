"""Decides how one region goes on, from what its procedure stored and what its server answered.

The rule behind all of it: a lost answer means nothing. A region stays with the process that it was sent to until that
process answers, or is fenced; and only an answer of that process says that it does not have the region.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from msgspec import Struct

from state_machines.regions.states import WANTED, RegionState, ServerState, TableState

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
    crashed = previous in (RegionState.OPEN, RegionState.CLOSING)
    return RegionState.ABNORMALLY_CLOSED if crashed else previous
