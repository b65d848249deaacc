"""Decides how procedures go on: from the outcome of a step to the records to write and the procedures to run next.

A change is decided, staged, written to the store in one transaction, and applied, in this order. A crash in between
repeats the step: a step and its undoing give the same result when they are repeated. Later decisions of the same group
see staged records, readers only durable ones.

Failure: the failed record and its root become FAILED in one write. Other descendants of the root learn it when they are
scheduled, and undo their own steps, the latest first, beginning with the present one, which may have been executed in
part or not at all. A parent undoes its steps after its children have ended; children that had succeeded are its own to
make good. Behind the point of no return of its kind, or of an ancestor's, nothing is undone: the step is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from state_machines.procedures.outcome import RETRY_MS_MAX, Children, Done, Failed, Next, Outcome, Retry, Wait
from state_machines.procedures.record import NO_ENDING, Ending, Record
from state_machines.procedures.states import VALID_PREVIOUS, State

RETRY_MS_MIN: Final = 1_000
"""Pauses between attempts of a step: they double (HBase ``hbase.procedure.retry``)."""
DONE_MAX: Final = 32
"""Executed steps that a record keeps where none of them is ever undone."""
STUCK_ATTEMPTS: Final = 10
"""Attempts of one step after which a procedure is shown as stuck."""


class Act(Enum):
    """What the engine does for a procedure that was given out."""

    EXECUTE = auto()
    UNDO = auto()


class Change(msgspec.Struct, frozen=True, gc=False):
    """One transaction. ``puts`` and ``deletes`` are written; ``ready`` runs next, ``later`` at its deadline.

    ``ends``: deleted children as they ended.
    """

    puts: tuple[Record, ...] = ()
    deletes: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()
    later: tuple[int, ...] = ()
    ends: tuple[Record, ...] = ()


class Procedures:
    """Holds the procedures of one domain until they are evicted.

    ``no_return``: returns the first step of a kind that is never undone, None where all are.
    """

    def __init__(self, no_return: Callable[[str], int | None]) -> None:
        self.records: dict[int, Record] = {}
        self.children: dict[int, set[int]] = {}
        self._staged: dict[int, Record] = {}
        self._no_return = no_return

    def stage(self, change: Change) -> None:
        """Shows a change that is about to be written to the decisions after it."""
        for record in change.puts:
            self._staged[record.pid] = record

    def latest(self, pid: int) -> Record:
        """Returns the record as the next write finds it, staged or durable."""
        return self._staged.get(pid) or self.records[pid]

    def find(self, pid: int) -> Record | None:
        """Returns what :meth:`latest` does; None where there is no such record."""
        return self._staged.get(pid) or self.records.get(pid)

    def live_of(self, kind: str) -> list[Record]:
        """Returns the latest records of a kind that have not ended, staged ones among them."""
        latest = {**self.records, **self._staged}
        return [record for record in latest.values() if record.kind == kind and not record.state.is_final]

    def apply(self, change: Change) -> tuple[int, ...]:
        """Enters a durable change; returns the procedures to run next, a parent whose last child ended among them.

        The parent is found here and not in a decision, because several children may end in changes under way at once.
        Raises ValueError where the change makes a transition that the table lacks.
        """
        woken: list[int] = []
        for record in change.puts:
            old = self.records.get(record.pid)
            if old is not None and old.state not in VALID_PREVIOUS[record.state]:
                raise ValueError(f"pid {record.pid} cannot go from {old.state.name} to {record.state.name}")
            if old is None and record.parent:
                self.children.setdefault(record.parent, set()).add(record.pid)
            self.records[record.pid] = record
            if self._staged.get(record.pid) is record:
                del self._staged[record.pid]
        for pid in change.deletes:
            record = self.records.pop(pid)
            if record.parent:
                siblings = self.children[record.parent]
                siblings.discard(pid)
                if not siblings:
                    del self.children[record.parent]
                    woken.append(record.parent)
        return (*change.ready, *[pid for pid in woken if pid not in change.ready]) if woken else change.ready

    # -- decisions

    def submitted(self, record: Record) -> Change:
        """Returns the first write of a procedure."""
        return Change(puts=(record,), ready=(record.pid,))

    def goes_on(self, record: Record) -> bool:
        """Checks whether the present step is executed whatever the time is; else :meth:`due` decides."""
        if record.state is State.FAILED or record.bypassed or record.expires_ms:
            return False
        root = self.latest(record.root)
        return not (root.state is State.FAILED or root.aborted)

    def due(self, pid: int, now_ms: int) -> Act | Change:
        """Decides on a procedure that was given out: a step is executed or undone, or a change ends the matter."""
        record = self.latest(pid)
        root = self.latest(record.root)
        fails = root.state is State.FAILED or record.state is State.FAILED
        expired = 0 < record.expires_ms <= now_ms
        if not (fails or record.bypassed or root.aborted or expired):
            return Act.EXECUTE
        now = replace(record, updated_ms=now_ms, deadline_ms=0)
        if record.bypassed:
            return self._ended(replace(now, state=State.ROLLEDBACK if fails else State.SUCCESS))
        if record.state is State.FAILED:
            return Act.UNDO
        if self._is_past_return(record):
            return Act.EXECUTE
        return _undoing(now) if fails else self._failed(now, "aborted" if root.aborted else "timed out")

    def executed(self, pid: int, outcome: Outcome, now_ms: int) -> Change:
        """Decides after a step was executed."""
        if isinstance(outcome, Wait) and not outcome.durable:
            return Change(later=(pid,))
        old = self.latest(pid)
        if isinstance(outcome, Done):
            done = (*old.done, old.step)
            return self._ended(
                replace(
                    old,
                    state=State.SUCCESS,
                    updated_ms=now_ms,
                    deadline_ms=0,
                    done=done,
                    born=(),
                    result=outcome.result,
                    error="",
                )
            )
        old = replace(old, state=State.RUNNABLE, updated_ms=now_ms, deadline_ms=0)
        match outcome:
            case Next(step, data) | Children((), step, data):
                return self.submitted(self._stepped(old, step, data))
            case Children(children, step, data, asleep, _):
                ancestors = (pid, *old.ancestors)
                family = tuple([one if one.parent else _descended(one, ancestors) for one in children])
                born = tuple(one.pid for one in children)
                waiting = replace(self._stepped(old, step, data), state=State.WAITING, born=born)
                later = tuple(one.pid for one in family if one.locked) if asleep else ()
                ready = tuple(one.pid for one in family if not one.locked) if asleep else born
                return Change(puts=(waiting, *family), ready=ready, later=later)
            case Wait(until_ms, data, _):
                waiting = replace(_onwards(old, data), deadline_ms=until_ms, state=State.WAITING_TIMEOUT)
                return Change(puts=(waiting,), later=(pid,))
            case Failed(error):
                return self._failed(old, error)
            case Retry(error, pause_ms_max):
                return self._retried(old, error, State.WAITING_TIMEOUT, pause_ms_max)
            case _:
                return Change()

    def undone(self, pid: int, outcome: Outcome, now_ms: int) -> Change:
        """Decides after the latest step was undone, or not yet: Retry and Wait."""
        old = replace(self.latest(pid), state=State.FAILED, updated_ms=now_ms, deadline_ms=0)
        if isinstance(outcome, Retry):
            return self._retried(old, outcome.error, State.FAILED, outcome.pause_ms_max)
        if isinstance(outcome, Wait):
            waiting = replace(_onwards(old, outcome.data), deadline_ms=outcome.until_ms, error=old.error)
            return Change(puts=(waiting,) if outcome.durable else (), later=(pid,))
        left = replace(old, done=old.done[:-1], born=(), attempts=0, tried_since_ms=0)
        return self.submitted(left) if left.done else self._ended(replace(left, state=State.ROLLEDBACK))

    def aborted(self, pid: int, now_ms: int, ending: Ending = NO_ENDING) -> Change | None:
        """Decides on an abort: the root is marked, and its family fails at the next step of each.

        None where it has failed or ended already, or is behind the point of no return.
        """
        root = self.latest(self.latest(pid).root)
        if root.state.is_final or root.state is State.FAILED or self._is_past_return(root):
            return None
        return Change(puts=(_requested(root, ending, now_ms, aborted=True),), ready=(root.pid,))

    def bypassed(self, pid: int, now_ms: int, ending: Ending = NO_ENDING) -> Change | None:
        """Decides on a bypass: the procedure and its ancestors end without doing anything more.

        None where it has ended, or has children. What they were about is not made good: that is for the operator.
        """
        record = self.latest(pid)
        if record.state.is_final or pid in self.children:
            return None
        lineage = (record, *(self.latest(ancestor) for ancestor in record.ancestors))
        puts = tuple(_requested(one, ending, now_ms, bypassed=True) for one in lineage)
        return Change(puts=puts, ready=(pid,))

    def commanded(
        self, pid: int, data: bytes, now_ms: int, ending: Ending = NO_ENDING, *, undoing: bool = False
    ) -> Change | None:
        """Decides on an operator's change of a procedure's message; None where it has ended.

        ``undoing``: its kind lets the message change while the procedure is undone; without it that is None, too.
        """
        record = self.latest(pid)
        if record.state.is_final or (record.state is State.FAILED and not undoing):
            return None
        return Change(puts=(_requested(record, ending, now_ms, data=data),), ready=(pid,))

    def evicted(self, roots: Iterable[int]) -> Change:
        """Returns the removal of roots that have ended."""
        return Change(deletes=tuple(pid for pid in roots if self.latest(pid).state.is_final))

    # -- how they are made

    def _is_past_return(self, record: Record) -> bool:
        """Checks whether a procedure, or one that it is a part of, goes on to its end. One that failed does not."""
        family = (record, *map(self.latest, record.ancestors))
        return any(self._is_past_own(one) for one in family if one.state is not State.FAILED)

    def _is_past_own(self, record: Record) -> bool:
        """Checks whether a step behind the point has begun. Children of the step before it can still be undone."""
        no_return = self._no_return(record.kind)
        if no_return is None:
            return False
        begun = record.step > no_return or (record.step == no_return and record.pid not in self.children)
        return begun or any(step >= no_return for step in record.done)

    def _failed(self, record: Record, error: str) -> Change:
        if self._is_past_return(record):
            return self._retried(record, error, State.WAITING_TIMEOUT)
        change = _undoing(replace(record, error=error))
        if not record.parent:
            return change
        return replace(change, puts=(*change.puts, self._root_failed(record.root, error, record.updated_ms)))

    def _root_failed(self, pid: int, error: str, now_ms: int) -> Record:
        """Marks the root. It waits for its children, so its present step is the one after theirs."""
        root = self.latest(pid)
        if root.state is State.FAILED:
            return root
        return replace(root, state=State.FAILED, done=(*root.done, root.step), error=error, updated_ms=now_ms)

    def _retried(self, record: Record, error: str, state: State, pause_ms_max: int = RETRY_MS_MAX) -> Change:
        deadline_ms = record.updated_ms + min(pause_ms_max, pause_ms(record.attempts))
        again = replace(
            record,
            state=state,
            error=error,
            attempts=record.attempts + 1,
            deadline_ms=deadline_ms,
            tried_since_ms=self.latest(record.pid).progress_ms,
        )
        return Change(puts=(again,), later=(record.pid,))

    def _stepped(self, record: Record, step: int, data: bytes) -> Record:
        """Goes on to a step. What is never undone keeps its latest steps alone: it may go round for ever."""
        done = (*record.done, record.step)
        no_return = self._no_return(record.kind)
        if no_return is not None and record.step >= no_return:
            done = done[-DONE_MAX:]
        return replace(
            record, step=step, data=data, done=done, born=(), attempts=0, tried_since_ms=0, error="", told=()
        )

    def _ended(self, record: Record) -> Change:
        """Keeps a root for its caller, and removes a child; :meth:`apply` wakes its parent."""
        if not record.parent:
            return Change(puts=(record,))
        told: tuple[Record, ...] = ()
        if record.tells and record.state is State.SUCCESS:
            parent = self.latest(record.parent)
            told = (replace(parent, told=(*parent.told, (record.pid, record.result))),)
        return Change(puts=told, deletes=(record.pid,), ends=(record,))


def _requested(record: Record, ending: Ending, now_ms: int, **changed: Any) -> Record:
    """Returns the record after an operator's request; it keeps the operator, the time and the reason."""
    if ending.act:
        changed["ending"] = replace(ending, at_ms=now_ms)
    return replace(record, updated_ms=now_ms, **changed)


def _descended(record: Record, ancestors: tuple[int, ...]) -> Record:
    return replace(record, parent=ancestors[0], ancestors=ancestors)


def _onwards(record: Record, data: bytes) -> Record:
    """Returns the record with a message; another message than before means that the attempts were not in vain."""
    return record if data == record.data else replace(record, data=data, attempts=0, tried_since_ms=0, error="")


def _undoing(record: Record) -> Change:
    """Begins to undo: with the present step, which may have been executed in part, or not at all."""
    return Change(
        puts=(replace(record, state=State.FAILED, done=(*record.done, record.step), attempts=0, tried_since_ms=0),),
        ready=(record.pid,),
    )


def pause_ms(attempts: int) -> int:
    """Returns the pause after a step that was tried in vain, and ``attempts`` times before."""
    return min(RETRY_MS_MAX, RETRY_MS_MIN << min(attempts, 20))


def wait_ms_max(record: Record) -> int:
    """Returns the longest time that a procedure waits before it looks again, whatever deadline another clock set.

    A step that finds that its time has not come waits again.
    """
    return pause_ms(record.attempts - 1) if record.attempts else RETRY_MS_MAX


def is_stuck(record: Record) -> bool:
    """Checks whether one step was tried in vain so often that an operator should look."""
    return record.attempts >= STUCK_ATTEMPTS
