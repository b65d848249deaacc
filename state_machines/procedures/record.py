"""Declares the durable record of a procedure, all that another daemon needs to go on with it, and its faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from state_machines.procedures.states import State

VERSION: Final = 1
"""Version of the format. A reader leaves newer records alone."""


class Caller(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The submitter of a procedure. ``nonce``: chosen by the caller; the same one never starts a second procedure."""

    principal: str = ""
    client: str = ""
    reason: str = ""
    nonce: str = ""


NO_CALLER: Final = Caller()


class Ending(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An operator's request to end a procedure. ``act``: cancel, abort, bypass or remove; empty: there was none."""

    act: str = ""
    principal: str = ""
    reason: str = ""
    at_ms: int = 0


NO_ENDING: Final = Ending()
REMOVED: Final = "remove"
"""Act of the request by which a record that cannot be used is removed."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A procedure as it is stored, a new value for each write. Times are milliseconds of the wall clock.

    Records hold no cycles, so the collector need not look at them: with it a load takes half as long again.

    ``kind``: name of its class. ``step``: the next one; ``done``: the executed ones, the latest last. ``data``: the
    kind's own message. ``attempts``: of the present step, in vain; ``tried_since_ms``: the last change before them, 0
    without. ``deadline_ms``: time of the next attempt, 0 without; ``expires_ms``: time at which the procedure fails, 0
    without. ``locked``: it keeps its locks between steps.
    ``born``: the children of the step before, so that a child that cannot be read is missed.
    ``aborted``: an abort was requested. ``bypassed``: it does nothing more. ``error``: cause of a failure or retry.
    ``tells``: a child whose result its parent needs; ``told``: pids and results of such children of the step before.
    ``ending``: the latest request to end it; a daemon that does not know the field goes on without it.
    ``caller``: a child has its root's, without the nonce, see :func:`family`; it is stored with the root alone.
    """

    pid: int
    kind: str
    state: State
    step: int
    submitted_ms: int
    updated_ms: int
    parent: int = 0
    ancestors: tuple[int, ...] = ()
    done: tuple[int, ...] = ()
    data: bytes = b""
    attempts: int = 0
    deadline_ms: int = 0
    expires_ms: int = 0
    locked: bool = False
    born: tuple[int, ...] = ()
    aborted: bool = False
    bypassed: bool = False
    error: str = ""
    result: bytes = b""
    caller: Caller = NO_CALLER
    ending: Ending = NO_ENDING
    version: int = VERSION
    tried_since_ms: int = 0
    tells: bool = False
    told: tuple[tuple[int, bytes], ...] = ()

    @property
    def is_new(self) -> bool:
        """Checks whether it is a child of which no step has run: with ``locked`` it may wait for its locks still."""
        return self.parent != 0 and self.state is State.RUNNABLE and not (self.done or self.attempts)

    @property
    def progress_ms(self) -> int:
        """Returns the time of the last change that was no attempt in vain."""
        return self.tried_since_ms or self.updated_ms

    @property
    def root(self) -> int:
        """Returns the pid of the procedure that the caller submitted."""
        return self.ancestors[-1] if self.ancestors else self.pid


def child(
    kind: str, data: bytes = b"", *, expires_ms: int = 0, step: int = 0, locked: bool = False, tells: bool = False
) -> Record:
    """Returns a procedure that a step starts; pid, ancestors, caller and times are filled in.

    ``locked``: it is to have its locks from its begin on, and waits first where another procedure, which cannot go on
    beside it, has one still. ``tells``: its result is stored with its parent, which finds it in ``told``.
    """
    return Record(0, kind, State.RUNNABLE, step, 0, 0, data=data, expires_ms=expires_ms, locked=locked, tells=tells)


def inherited(caller: Caller) -> Caller:
    """Returns the caller that the children of a procedure have: a nonce names the root alone."""
    return replace(caller, nonce="") if caller.nonce else caller


def family(records: Iterable[Record]) -> list[Record]:
    """Gives children of stored records the caller of their root; one that was stored with a caller keeps it."""
    found = list(records)
    callers = callers_of(found)
    return [called(one, callers) for one in found]


def callers_of(records: Iterable[Record]) -> dict[int, Caller]:
    """Returns the callers that the parts of procedures have, by the pid of their root."""
    return {one.pid: inherited(one.caller) for one in records if not one.parent}


def called(record: Record, callers: Mapping[int, Caller]) -> Record:
    """Returns a stored record with the caller of its root, unless it was stored with one."""
    if not record.parent or record.caller != NO_CALLER or record.root not in callers:
        return record
    return replace(record, caller=callers[record.root])


class Fault(StrEnum):
    """The class of a fault."""

    CORRUPT = "corrupt"
    TRUNCATED = "truncated"
    OTHER_PID = "other pid"
    UNREADABLE = "unreadable"
    NEWER = "newer format"
    UNKNOWN_KIND = "unknown kind"
    ORPHAN = "orphan"
    OUT_OF_ORDER = "out of order"
    HOLE = "hole"
    FAMILY = "family"


class Unusable(NamedTuple):
    """The fault of a record, and a sentence with its cause."""

    fault: Fault
    why: str


REPAIRABLE: Final = frozenset(
    {Fault.CORRUPT, Fault.TRUNCATED, Fault.OTHER_PID, Fault.ORPHAN, Fault.OUT_OF_ORDER, Fault.HOLE}
)
"""Faults that no daemon can mend, whatever its version: such records may be moved aside."""
LATER: Final = frozenset({Fault.UNREADABLE, Fault.NEWER, Fault.UNKNOWN_KIND})
"""Faults that another daemon, or another ACL, makes good: such records, and their families, stay where they are."""


def newer(version: int, known: int) -> Unusable:
    """Returns the fault of a record whose format is newer than ``known``."""
    return Unusable(Fault.NEWER, f"format {version} is newer than this daemon's ({known}): upgrade the daemon")
