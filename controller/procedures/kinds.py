"""Descriptions of the kinds of procedures: their steps, their locks, and the point from which nothing is undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from controller.procedures.requests import ProcedureRefused
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, LockOrder
from state_machines.procedures.outcome import Outcome
from state_machines.procedures.record import Record
from state_machines.procedures.scheduler import Scheduler
from state_machines.procedures.transition import Members, lock_names

Env = TypeVar("Env")
"""What the steps of a domain work with, for instance the controller of a term."""


Write: TypeAlias = Callable[[Change], Awaitable[str | None]]
"""Writes a change with a step's effect; returns None, or why nothing was written: the step is repeated after a pause.
"""


class Effect(Struct, frozen=True):
    """A step's outcome with what is stored in one transaction with its record.

    ``rows``: values that the domain's store knows, opaque to the engine. ``entered``: called with the change once it is
    durable. ``write``, instead of both: writes the record itself, with the znodes that the step changes.
    """

    outcome: Outcome
    rows: tuple[object, ...] = ()
    entered: Callable[[Change], None] | None = None
    write: Write | None = None

    def __post_init__(self) -> None:
        if self.write is not None and (self.rows or self.entered is not None):
            raise ValueError("an effect with a write of its own has no rows, and nothing is entered")


Execute: TypeAlias = Callable[[Env, Record], Awaitable[Outcome | Effect]]
"""Executes or undoes a step. It is repeated after a crash, with the same record and the same result.

It never waits for long: it starts what takes time beside the engine, returns ``Wait``, and is woken.
"""


class Step(NamedTuple, Generic[Env]):
    """A step. ``name`` is shown to operators; ``undo`` is None where nothing is left to undo."""

    name: str
    execute: Execute[Env]
    undo: Execute[Env] | None = None


class Kind(NamedTuple, Generic[Env]):
    """A kind of procedure. The index of a step is stored, so steps are only ever added at the end.

    A recorded call has no steps: it has ended when it begins.

    ``no_return``: index of the first step that is never undone. ``holds_locks``: from the first step to the end, also
    while it waits and over restarts; otherwise locks are held for one step at a time. ``command``: returns the message
    after an operator's command, or raises :class:`ProcedureRefused`; None where the kind has no commands;
    ``changes_while_undone``: also while a procedure is undone. ``members``: returns what it is about. ``admit``:
    returns why a new procedure is refused beside the live ones of its kind, those being written among them.
    """

    name: str
    steps: tuple[Step[Env], ...]
    demand: Callable[[Record], Demand]
    no_return: int | None = None
    holds_locks: bool = False
    command: Callable[[Record, bytes], bytes] | None = None
    members: Callable[[Record], Members] | None = None
    changes_while_undone: bool = False
    admit: Callable[[Record, Sequence[Record]], str | None] | None = None

    def changed(self, record: Record, command: bytes) -> bytes:
        """Returns the message after an operator's command; raises :class:`ProcedureRefused`."""
        if self.command is None:
            raise ProcedureRefused(f"pid {record.pid}: {self.name} has no commands: abort it, or wait for its end")
        return self.command(record, command)

    def undo_of(self, record: Record) -> Step[Env]:
        """Returns the step to undo next."""
        return self.steps[record.done[-1]]


class Kinds(Generic[Env]):
    """The kinds of a domain, by name."""

    def __init__(self, kinds: Iterable[Kind[Env]]) -> None:
        self._kinds = {kind.name: kind for kind in kinds}

    def __getitem__(self, name: str) -> Kind[Env]:
        return self._kinds[name]

    def no_return(self, name: str) -> int | None:
        """Returns the first step of a kind that is never undone."""
        return self._kinds[name].no_return

    def unfit(self, record: Record) -> str | None:
        """Returns why this daemon cannot run a record: its kind, a step, or its message is not understood."""
        if record.state.is_final and record.kind in self._kinds:
            return None
        demand = self.demand(record)
        return demand if isinstance(demand, str) else None

    def demand(self, record: Record) -> Demand | str:
        """Returns the locks of a live procedure, or why this daemon cannot run it."""
        kind = self._kinds.get(record.kind)
        if kind is None:
            known = ", ".join(sorted(self._kinds))
            return f"kind {record.kind!r} is not known to this daemon ({known}): start one that has it"
        if record.step >= len(kind.steps) or (record.done and max(record.done) >= len(kind.steps)):
            return f"{record.kind} has no step {max((record.step, *record.done))} in this daemon: start a newer one"
        try:
            return kind.demand(record)
        except Exception as error:
            return f"the message of {record.kind} cannot be read ({type(error).__name__}: {error})"

    def step_name(self, record: Record, step: int) -> str:
        """Returns the name of a step, empty where the kind has none."""
        kind = self._kinds.get(record.kind)
        return kind.steps[step].name if kind is not None and step < len(kind.steps) else ""

    def lock_names(self, record: Record) -> tuple[str, ...]:
        """Returns the locks of a procedure; none for a kind without steps."""
        kind = self._kinds.get(record.kind)
        if kind is None or not kind.steps:
            return ()
        try:
            return lock_names(kind.demand(record))
        except Exception:
            return ()

    def members(self, record: Record) -> Members:
        """Returns what a procedure is about; nothing where its message cannot be read."""
        kind = self._kinds.get(record.kind)
        try:
            return kind.members(record) if kind is not None and kind.members is not None else Members()
        except Exception:
            return Members()


def misordered(pid: int, demand: Demand, scheduler: Scheduler, ancestors: tuple[int, ...]) -> str | None:
    """Returns why a procedure's locks could end in a deadlock with those of its ancestors."""
    try:
        scheduler.check(pid, demand, ancestors)
    except LockOrder as error:
        return str(error)
    return None
