"""Declares the states of a procedure and the transitions between them (HBase ``ProcedureState``).

==================  =========================================================================
RUNNABLE            it is queued, or a step of it runs
WAITING             children of it have not ended
WAITING_TIMEOUT     it waits for a time or an event
FAILED              a step failed: steps are rolled back, the last one first
SUCCESS             it has ended (terminal)
ROLLEDBACK          it has ended, and all its steps were undone (terminal)
==================  =========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

_FINAL: Final = frozenset({5, 6})


class State(IntEnum):
    """A state; the value is the one in stored records."""

    RUNNABLE = 1
    WAITING = 2
    WAITING_TIMEOUT = 3
    FAILED = 4
    SUCCESS = 5
    ROLLEDBACK = 6

    is_final: bool
    """Whether the procedure has ended."""

    def __init__(self, number: int) -> None:
        self.is_final = number in _FINAL


ENDS: Final = frozenset({State.SUCCESS, State.ROLLEDBACK})
_GOING_ON: Final = frozenset({State.RUNNABLE, State.WAITING, State.WAITING_TIMEOUT})

VALID_PREVIOUS: Final[Mapping[State, frozenset[State]]] = {
    State.RUNNABLE: _GOING_ON,
    State.WAITING: _GOING_ON,
    State.WAITING_TIMEOUT: _GOING_ON,
    State.FAILED: _GOING_ON | {State.FAILED},
    State.SUCCESS: _GOING_ON | {State.SUCCESS},
    State.ROLLEDBACK: _GOING_ON | {State.FAILED},
}
"""Stored states that may come before a stored state.

A failed procedure stays FAILED while its steps are undone. The result of a recorded call may be corrected.
"""
