"""Defines the end of a verb by a sentence, also where two ways of counting differ; codes are those of the CLI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class Disagreement(RuntimeError):
    """Two ways of counting the same differ: a defect of regent, so no result leaves. The message names the figures."""


DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3


class Stopped(Exception):
    """End of a verb: one sentence for people, its remedy, and the exit code."""

    def __init__(self, code: int, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


@contextmanager
def agreeing() -> Iterator[None]:
    """Makes a sentence of two ways of counting that differ."""
    try:
        yield
    except Disagreement as error:
        remedy = "this is a defect of regent, and no result was written: report it with the files that were read"
        raise Stopped(FAILED, str(error), remedy) from None
