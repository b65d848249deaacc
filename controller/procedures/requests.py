"""Requests of callers: they wait until the engine's next turn, which decides on them one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from state_machines.procedures.record import Caller, Ending, Record
from state_machines.procedures.states import State


class Submit(NamedTuple):
    """Starts a procedure; the response is its pid, or that of the earlier one with the same nonce."""

    kind: str
    data: bytes
    caller: Caller
    expires_ms: int

    def record(self, now_ms: int) -> Record:
        """Returns the first record, which has no pid yet."""
        kind, data, caller, expires_ms = self
        return Record(0, kind, State.RUNNABLE, 0, now_ms, now_ms, data=data, caller=caller, expires_ms=expires_ms)


class Abort(NamedTuple):
    """Aborts the family of a procedure; the response is 0 where it has ended, failed, or cannot be undone any more."""

    pid: int
    ending: Ending


class Bypass(NamedTuple):
    """Ends a procedure and its ancestors as they are; the response is 0 where it has ended or has children."""

    pid: int
    ending: Ending


class Remove(NamedTuple):
    """Removes a record that cannot be used, with its family; the response is its pid once all of them are gone."""

    pid: int
    ending: Ending


class Command(NamedTuple):
    """Changes the message of a procedure as its kind understands it; the response is 0 where it failed or ended."""

    pid: int
    command: bytes
    ending: Ending


End: TypeAlias = Abort | Bypass | Remove
ENDS: Final[Mapping[str, type[End]]] = {"abort": Abort, "bypass": Bypass, "remove": Remove}
"""Requests that end a procedure, by the word of an operator."""
Request: TypeAlias = Submit | Abort | Bypass | Remove | Command


class Pending(NamedTuple):
    """A request and the future of its response, a pid."""

    request: Request
    response: asyncio.Future[int]

    def respond(self, pid: int) -> None:
        """Responds, unless the caller has gone."""
        if not self.response.done():
            self.response.set_result(pid)

    def refuse(self, why: Exception) -> None:
        """Refuses the request, unless the caller has gone."""
        if not self.response.done():
            self.response.set_exception(why)


class Refused(Exception):
    """A request cannot be carried out; the text says why, and what would make it succeed."""


class Unusable(Refused):
    """A request is about a record that cannot be used: an operator may have it removed."""

    def __init__(self, pid: int, text: str) -> None:
        super().__init__(text)
        self.pid = pid
