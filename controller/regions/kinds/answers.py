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


SAID_CHARS_MAX: Final = 300
"""Characters of a server's words that a record keeps."""


def said(server: object, result: Result) -> str:
    """Returns in one line what a server said that could not do something."""
    words = " ".join(result.text[: 2 * SAID_CHARS_MAX].split())
    text = "".join(one if one.isprintable() else "?" for one in words)[:SAID_CHARS_MAX]
    return f"{server} said {result.outcome}{f': {text}' if text else ''}"


def answer_of(result: Result | None) -> Answer:
    """Returns the answer in a result; one that no operation on a region has counts as a failure."""
    return Answer.NONE if result is None else ANSWERS.get(result.outcome, Answer.FAILED)
