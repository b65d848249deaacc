"""Translates results of servers into the answers that the core decides on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from regent_agent import protocol
from regent_agent.protocol import Result
from state_machines.regions.transit import Answer

ANSWERS: Final[Mapping[str, Answer]] = {
    protocol.OPENED: Answer.OPENED,
    protocol.CLOSED: Answer.CLOSED,
    protocol.FAILED_OPEN: Answer.FAILED,
    protocol.FAILED: Answer.FAILED,
    protocol.NOT_RUNNING: Answer.NOT_RUNNING,
    protocol.BUSY: Answer.BUSY,
}


def answer_of(result: Result | None) -> Answer:
    """Returns the answer in a result; one that no operation on a region has counts as a failure."""
    return Answer.NONE if result is None else ANSWERS.get(result.outcome, Answer.FAILED)
