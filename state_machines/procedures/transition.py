"""Names the durable changes of procedures that a journal records: of state, step, attempts, and requests to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand
from state_machines.procedures.record import Record


class Transition(NamedTuple):
    """One procedure before and after a change. ``before`` is None where it begins."""

    before: Record | None
    after: Record


class Members(NamedTuple):
    """The topics and brokers that a procedure is about; or its table, region and process of a server.

    ``why``: the reason that its message has. ``what``: the kind of a mark.
    """

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    table: str = ""
    region: int = 0
    server: str = ""
    incarnation: int = 0
    why: str = ""
    what: str = ""


class Names(Protocol):
    """Names of what a record refers to. No method raises: a record may be of an unknown kind."""

    def step_name(self, record: Record, step: int) -> str:
        """Returns the name of a step, empty where the kind has none."""

    def lock_names(self, record: Record) -> tuple[str, ...]:
        """Returns the locks of the procedure, see :func:`lock_names`."""

    def members(self, record: Record) -> Members:
        """Returns what the procedure is about."""


SHARED = " (shared)"
"""End of the name of a shared lock."""


def lock_names(demand: Demand) -> tuple[str, ...]:
    """Returns the names of the locks of a demand."""
    found: list[str] = []
    for one in (demand, *demand.also):
        name = str(one.resource)
        found.append(name if one.exclusive else name + SHARED)
        found += (f"{name} {part}" for part in one.parts)
    return tuple(found)


def transitions(records: Mapping[int, Record], change: Change, *, commanded: bool) -> list[Transition]:
    """Returns what a change means to ``records``, which do not have it yet.

    A message that alone changes is no transition, unless an operator ``commanded`` it: waves of a plan are many.
    """
    found = []
    for after in (*change.puts, *change.ends) if change.ends else change.puts:
        before = records.get(after.pid)
        if commanded or before is None or _is_told(before, after):
            found.append(Transition(before, after))
    return found


def _is_told(before: Record, after: Record) -> bool:
    return before.state is not after.state or _told(before) != _told(after)


def _told(record: Record) -> tuple[object, ...]:
    return (
        record.step,
        record.done,
        record.attempts,
        record.aborted,
        record.bypassed,
        record.result,
    )
