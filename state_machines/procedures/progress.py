"""Describes durable changes of procedures: which of them are worth a line, and its sentence."""

from __future__ import annotations

from typing import Final, NamedTuple

from state_machines.procedures.entity_queue import Entry
from state_machines.procedures.record import Record
from state_machines.procedures.states import State

TEXT_MAX: Final = 1_000
"""Characters of a result, an error or a reason that are shown."""


class Progress(NamedTuple):
    """A durable change of a procedure. ``before``: None where it is new.

    ``step``: name of the step that runs or is undone next, or was the last. ``committed``: it was behind the point of
    no return of its kind, and had not failed. ``entry``: its locks, None where it holds none.
    """

    before: Record | None
    after: Record
    step: str = ""
    committed: bool = False
    entry: Entry | None = None

    @property
    def is_shown(self) -> bool:
        """Checks whether more than the message of the procedure changed."""
        return self.before is None or _marks(self.before) != _marks(self.after)

    @property
    def locks(self) -> list[str]:
        """Returns the locks that the procedure keeps between its steps: X or S, then the entity and its parts."""
        if self.entry is None or not self.after.locked:
            return []
        return [
            " ".join(("X" if one.exclusive else "S", str(one.queue.resource), *map(str, one.parts)))
            for one in (self.entry, *self.entry.also)
        ]


def sentence(progress: Progress) -> str:
    """Returns the line of a change; each has the pid and the parent's, so a search finds the whole history."""
    after = progress.after
    parent = f" ppid={after.parent}" if after.parent else ""
    step = f":{progress.step}" if progress.step else ""
    return f"pid={after.pid}{parent} state={after.state.name}{step} {after.kind}: {_what(progress)}"


def cut(text: str) -> str:
    """Returns the begin of a text that is too long."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def result_of(record: Record) -> str:
    """Returns the result of a procedure as text."""
    return cut(record.result.decode("utf-8", "replace"))


def _marks(record: Record) -> tuple[object, ...]:
    return record.state, record.step, record.done, record.attempts, record.aborted, record.bypassed


def _what(progress: Progress) -> str:
    before, after = progress.before, progress.after
    if before is None:
        return _begun(after)
    if after.state.is_final:
        return _ended(after)
    if after.bypassed and not before.bypassed:
        return "it was bypassed: it ends as it is, and nothing is undone"
    if after.aborted and not before.aborted:
        return "its abort was requested: executed steps are undone"
    if after.state is State.FAILED:
        return _failed(before, after, progress.step)
    if after.attempts > before.attempts:
        return f"step {progress.step} failed for now, attempt {after.attempts}: {cut(after.error)}; it is tried again"
    if after.state is State.WAITING:
        return f"waits for its children, step {progress.step} follows"
    if after.state is State.WAITING_TIMEOUT:
        return f"waits in step {progress.step}"
    return f"goes on with step {progress.step}"


def _begun(record: Record) -> str:
    caller = record.caller
    by = " through ".join(filter(None, (caller.principal or "the daemon", caller.client)))
    if record.state.is_final:
        return f"requested by {by}: {result_of(record)}"
    if record.parent:
        return f"begins as a part of pid {record.parent}"
    return f"submitted by {by}" + (f", because: {cut(caller.reason)}" if caller.reason else "")


def _ended(record: Record) -> str:
    took = f"finished with {record.state.name} in {(record.updated_ms - record.submitted_ms) / 1000:.3f} s"
    why = result_of(record) if record.state is State.SUCCESS else cut(record.error)
    return f"{took}: {why}" if why else took


def _failed(before: Record, after: Record, step: str) -> str:
    if before.state is not State.FAILED:
        return f"failed: {cut(after.error)}; executed steps are undone, the latest first"
    if len(after.done) < len(before.done):
        return f"a step is undone, step {step} follows"
    return f"step {step} cannot be undone now, attempt {after.attempts}: {cut(after.error)}; it is tried again"
