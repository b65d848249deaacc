"""Live procedures: what a durable change does to queues, locks, timers and waiting callers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple

from controller.procedures.kinds import Env, Kinds
from controller.procedures.parking import Parking
from controller.procedures.requests import Results
from controller.procedures.waiting import Waiting
from controller.procedures.writes import Decided
from state_machines.portions import Portions
from state_machines.procedures.kernel import Change, Procedures, wait_ms_max
from state_machines.procedures.locks import Entry
from state_machines.procedures.record import Record
from state_machines.procedures.recovery import Loaded, records_together, together
from state_machines.procedures.scheduler import LockConflict, Scheduler
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition, transitions

Entered = Callable[[Sequence[Transition]], None]
"""Called with changes of procedures that are durable and entered; must not wait or raise."""


class LockItem(NamedTuple):
    """A lock that a procedure holds, or waits for."""

    pid: int
    resource: str
    exclusive: bool
    parts: list[str]
    waiting: bool


class Running(Generic[Env]):
    """Holds live procedures, each in one place: queued, under way, waiting for a time or event, or for its children."""

    def __init__(
        self,
        kinds: Kinds[Env],
        now_ms: Callable[[], int],
        age_ms: Callable[[], int],
        due: Callable[[], None],
        entered: Entered | None = None,
        parking: Parking | None = None,
    ) -> None:
        self.procedures = Procedures(kinds.no_return)
        self.scheduler = Scheduler()
        self.waiting = Waiting(now_ms, due)
        self.results = Results()
        self.kinds = kinds
        self.now_ms = now_ms
        self.age_ms = age_ms
        self.parking = parking or Parking()
        self._entered = entered
        self._entries: dict[int, Entry] = {}

    # -- after a restart

    def restore(self, found: Loaded) -> Portions[dict[int, str]]:
        """Restores locks, then queues what goes on; returns procedures whose locks exclude each other, and why.

        It yields after each portion. Until it has ended the engine is given to nobody: a wake before that may be lost.
        """
        records = dict(found.records)
        conflicts: dict[int, str] = {}
        while (conflict := (yield from self._locked(records, found.locked))) is not None:
            pid, why = conflict
            root = records[pid].root
            family = [one.pid for one in records.values() if one.root == root]
            conflicts.update(dict.fromkeys(family, why))
            for one in family:
                del records[one]
        age_ms, now_ms = self.age_ms(), self.now_ms()
        for some in together(tuple(records.values())):
            self.procedures.apply(Change(puts=tuple(some)))
            for record in some:
                self.results.begun(record)
                if record.state.is_final:
                    self.results.ended(record, age_ms)
            yield
        for pids in together(found.later):
            for pid in pids:
                if pid in records:
                    self._wait(pid, _no_longer(records[pid], now_ms))
            yield
        for pids in together(found.ready):
            for pid in pids:
                if pid in records:
                    self._enqueue_back(pid)
            yield
        return conflicts

    def _locked(self, records: Mapping[int, Record], locked: Sequence[int]) -> Portions[tuple[int, str] | None]:
        """Enters all live records in a new scheduler, and locks what they had locked; returns the first conflict."""
        self.scheduler = Scheduler()
        self._entries = {}
        for some in records_together(tuple(records.values())):
            self._entries.update((record.pid, self._entry(record)) for record in some if not record.state.is_final)
            yield
        for pids in together(locked):
            for pid in pids:
                if pid in records:
                    try:
                        self.scheduler.restore(self._entries[pid])
                    except LockConflict as error:
                        if not records[pid].is_new:  # which waits for the lock, as it did before
                            return pid, str(error)
            yield
        return None

    def _entry(self, record: Record) -> Entry:
        return self.scheduler.entry(record.pid, self.kinds[record.kind].demand(record), record.ancestors)

    # -- a durable change

    def enter(self, group: Iterable[Decided]) -> None:
        """Applies durable changes: ends, releases, queues, and responds to callers.

        The domain takes begins before what they do to its model, and ends after all of the group.
        """
        ended: list[Transition] = []
        for decided in group:
            change = decided.change
            ended += decided.ends
            if change.puts or change.deletes:
                self._enter(decided, ended)
            else:
                if decided.entered is not None:
                    decided.entered(change)
                self._go_on(decided, change.ready)
        if ended and self._entered is not None:
            self._entered(ended)

    def _enter(self, decided: Decided, ended: list[Transition]) -> None:
        """Applies one change; appends the ends of procedures to ``ended``."""
        change = decided.change
        begun: list[Transition] = []
        if self._entered is not None:
            for one in transitions(self.procedures.records, change, commanded=decided.pending is not None):
                (ended if one.after.state.is_final else begun).append(one)
        alarmed = [put.pid for put in change.puts if self._alarms(put)] if change.puts else ()
        evicted = [self.procedures.records[pid] for pid in change.deletes if pid not in self._entries]
        ready = self.procedures.apply(change)
        if self._entered is not None and begun:
            self._entered(begun)
        if decided.entered is not None:
            decided.entered(change)
        for record in change.puts:
            if record.state.is_final:
                self._end(record.pid)
                self.results.ended(record, self.age_ms())
        for pid in change.deletes:
            self._end(pid)
        for record in evicted:
            self.results.forget(record)
        self._go_on(decided, ready)
        for root in alarmed:
            self.resume(self._descendants(root))

    def _go_on(self, decided: Decided, ready: Sequence[int]) -> None:
        """Releases, queues or has wait what the change is about, and responds to the caller."""
        change, entry = decided.change, decided.entry
        if entry is not None and entry.pid in self._entries and not self.procedures.records[entry.pid].locked:
            self.scheduler.release(entry)
        if ready or change.puts or change.later or decided.again:
            self._queue(decided, ready)
        decided.respond()

    def locks(self) -> list[LockItem]:
        """Returns the locks that procedures hold or wait for, by pid."""
        found: list[LockItem] = []
        for pid, entry in sorted(self._entries.items()):
            held = self.scheduler.holds(pid)
            if held or (pid not in self.waiting and self.procedures.records[pid].state is not State.WAITING):
                for one in (entry, *entry.also):
                    name = str(one.queue.resource)
                    found.append(LockItem(pid, name, one.exclusive, list(map(str, one.parts)), not held))
        return found

    def arm(self) -> None:
        """Sets the timer to the end of the first wait, or to the next eviction of results where that comes first."""
        next_ms = self.results.next_ms
        self.waiting.arm(next_ms and self.now_ms() + max(0, next_ms - self.age_ms()))

    def resume(self, pids: Iterable[int]) -> None:
        """Queues those procedures that wait for a time or an event."""
        self.scheduler.add_front([self._entries[pid] for pid in pids if self.waiting.take(pid)])

    def wake(self, pids: Iterable[int]) -> bool:
        """Queues procedures that wait, or are about to wait; returns whether one waited."""
        entries = self._entries
        found = [entries[pid] for pid in pids if pid in entries and self.waiting.wake(pid)]
        self.scheduler.add_front(found)
        return bool(found)

    def _alarms(self, put: Record) -> bool:
        """Checks whether a record makes its family fail, so that none of its procedures waits any longer."""
        old = self.procedures.records.get(put.pid)
        failed, aborted = (False, False) if old is None else (old.state is State.FAILED, old.aborted)
        return not put.parent and ((put.state is State.FAILED and not failed) or (put.aborted and not aborted))

    def _descendants(self, pid: int) -> Iterable[int]:
        for child in sorted(self.procedures.children.get(pid, ())):
            yield child
            yield from self._descendants(child)

    def _queue(self, decided: Decided, ready: Sequence[int]) -> None:
        change, entry = decided.change, decided.entry
        born = [put for put in change.puts if put.pid not in self._entries and not put.state.is_final]
        for record in born:
            demand = decided.demands.get(record.pid) or self.kinds[record.kind].demand(record)
            self._entries[record.pid] = self.scheduler.enter(record.pid, demand, record.ancestors)
        if entry is None:  # a request: it finds its procedure queued already, unless it is new or waits
            for record in born:
                self.scheduler.add_back(self._entries[record.pid])
            self.resume(ready)
            self._give([pid for pid in ready if pid in self._entries and self._only_ends(pid)])
            return
        if others := [pid for pid in ready if pid != entry.pid]:
            self.scheduler.add_front([self._entries[pid] for pid in others])
            self._give([pid for pid in others if self._only_ends(pid)])
        if decided.again or entry.pid in ready:
            self.scheduler.add_back(entry)
        asleep = {record.pid for record in born} if change.later else ()
        for pid in change.later:
            if pid in asleep and not self.scheduler.lock(self._entries[pid]):
                self.scheduler.add_front([self._entries[pid]])
            else:
                # a wait that is not stored has a deadline of its own: the record's may have passed
                self._wait(pid, self.procedures.records[pid].deadline_ms if change.puts else decided.until_ms)

    def _only_ends(self, pid: int) -> bool:
        """Checks whether an operator has ended a procedure, which would wait for its locks to do so."""
        return self.procedures.records[pid].bypassed and not self.scheduler.holds(pid)

    def _give(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self.scheduler.give(self._entries[pid])

    def _enqueue_back(self, pid: int) -> None:
        if self._only_ends(pid):
            self.scheduler.give(self._entries[pid])
        else:
            self.scheduler.add_back(self._entries[pid])

    def _wait(self, pid: int, deadline_ms: int) -> None:
        record = self.procedures.records[pid]
        if pid in self.parking.parked:
            deadline_ms = 0
        elif record.expires_ms and record.state is not State.FAILED:
            deadline_ms = min(deadline_ms or record.expires_ms, record.expires_ms)
        if deadline_ms:
            deadline_ms = min(deadline_ms, self.now_ms() + wait_ms_max(record))
        if not self.waiting.add(pid, deadline_ms):
            self.scheduler.add_back(self._entries[pid])

    def _end(self, pid: int) -> None:
        entry = self._entries.pop(pid, None)
        if entry is not None:
            if self.scheduler.holds(pid):
                self.scheduler.release(entry)
            self.scheduler.drop(entry)
            self.waiting.forget(pid)
            if self.parking.parked or self.parking.suspects:
                self.parking.ended(pid)


def _no_longer(record: Record, now_ms: int) -> int:
    """Returns until when a procedure waits: for what its record says, also where the wall clock was set back since."""
    deadline_ms = record.deadline_ms
    return deadline_ms and min(deadline_ms, now_ms + max(0, deadline_ms - record.updated_ms))
