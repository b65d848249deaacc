"""Declares the outcomes of a step of a procedure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from state_machines.procedures.record import Record

RETRY_MS_MAX: Final = 600_000
"""Longest pause before a step that failed is repeated."""


class Next(Struct, frozen=True):
    """The step is done; ``step`` follows. ``data``: the kind's message from now on."""

    step: int
    data: bytes


class Children(Struct, frozen=True):
    """The step is done; ``step`` follows once all ``children`` have ended. Parent and ancestors are filled in.

    ``asleep``: children that are born with their locks wait for an event at once, because their step has begun already.
    ``rest``: returns the message with which the step is repeated for the others, where only the first ``n`` children
    fit into a transaction. Without it the step fails then.
    """

    children: tuple[Record, ...]
    step: int
    data: bytes
    asleep: bool = False
    rest: Callable[[int], bytes] | None = None


class Wait(Struct, frozen=True):
    """The step is repeated at ``until_ms`` (0: never by time), or by an event.

    ``durable``: False where nothing is stored, because the step finds out again how long to wait.
    """

    until_ms: int
    data: bytes
    durable: bool = True


class Yield(Struct, frozen=True):
    """The step is repeated after the others have had a turn. Nothing is stored."""


class Done(Struct, frozen=True):
    """The procedure has ended with ``result``."""

    result: bytes = b""


class Failed(Struct, frozen=True):
    """The step failed for good: the executed steps are undone."""

    error: str


class Retry(Struct, frozen=True):
    """The step, or its undo, failed for now: it is repeated after a pause that grows, up to ``pause_ms_max``."""

    error: str
    pause_ms_max: int = RETRY_MS_MAX


Outcome: TypeAlias = Next | Children | Wait | Yield | Done | Failed | Retry
