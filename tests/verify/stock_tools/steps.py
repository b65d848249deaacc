"""Defines the steps of the table: lines of tools, and events in the cluster between them."""

from __future__ import annotations

import shlex
from enum import Enum
from typing import Final, NamedTuple

WAIT_S_MAX: Final = 60.0
"""How long a line is repeated until its output says what the step waits for."""


class Line(NamedTuple):
    """A command line as typed, without its bootstrap server; ``{files}`` is the folder of the JSON files.

    ``until``: the line is repeated until its output matches this regular expression, and compared then. ``placed``:
    replicas were placed at random, only their numbers are compared.
    """

    text: str
    until: str = ""
    placed: bool = False

    @property
    def tool(self) -> str:
        """Returns the name of the script."""
        return self.text.split(maxsplit=1)[0]

    def arguments(self, files: str) -> list[str]:
        """Returns the arguments after the script's name."""
        return shlex.split(self.text.replace("{files}", files))[1:]


class Does(Enum):
    """Names an event between two lines."""

    WRITES = "records are written to each partition of a topic"
    CONSUMES = "a group reads a topic to its end, commits and goes"
    STOPS = "a broker is stopped cleanly"
    STARTS = "a broker is started"


class Act(NamedTuple):
    """``of``: the topic, or the broker's id; ``number``: records for each partition, each of ``size`` bytes."""

    does: Does
    of: str
    number: int = 0
    size: int = 10


class Group(NamedTuple):
    """Holds lines in their order; each relies on the effects of those before it."""

    title: str
    steps: tuple[Line | Act, ...]
