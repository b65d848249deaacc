"""Matches our decisions with the other controller's writes, as they are read.

The model is ours alone: every decision enters it at once, as if it had been committed, and the next decision builds on
it. A partition with decisions or reads without a counterpart has a :class:`Waiting`. An unexplained read waits, too,
because its event may be read a moment later. Time is an argument; nothing here does input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from controller.kafka.shadow import judgement as compare
from controller.kafka.shadow.events import ClusterEvent, Kind, RecentEvents, carry_out, replay, step_of
from controller.kafka.shadow.judgement import Outcome, Seen, Step, judge
from controller.kafka.shadow.report import Statistics
from controller.kafka.shadow.waiting import Tries, Waiting
from state_machines.model.cluster import Cluster, leadership_of
from state_machines.model.types import Broker, Leadership

BEHIND_MAX: Final = 2
"""Entirely unhandled events, from which on the order of further ones is unknown."""

TRIES_MAX: Final = 2_000
"""Other orders that one reading tries, over all partitions; the next reading tries the rest."""

PATIENCE: Final = 10
"""Multiple of the usual wait for which a counterpart may be late while others arrive."""

ORDER_UNKNOWN: Final = "brokers changed at once: another order of the same events explains it"
ISR_UNSEEN: Final = "the leader changed its ISR between two reads: the base of the decision is not known"
PREFERRED_UNSEEN: Final = "a preferred election passed between two reads: the base of the decision is not known"
BEHIND: Final = "the controller was several events behind: the order in which it handled them is not known"
BEGUN_BEFORE: Final = "under way when the shadow began to read"
PREFERRED: Final = "preferred election"
BARE_EPOCH: Final = "epoch of an offline partition raised, nothing else changed: regent does not write that"


class Tracker:
    """Our model and the waiting partitions. ``wait_s``: wait of a decision, or a read, for its counterpart."""

    def __init__(self, statistics: Statistics, wait_s: float) -> None:
        self.model = Cluster()
        self.statistics = statistics
        self.wait_s = wait_s
        self.waiting: dict[int, Waiting] = {}
        self.recent = RecentEvents(wait_s)
        self._puzzling: set[int] = set()
        self._by_number: dict[int, ClusterEvent] = {}
        self.tries = Tries(TRIES_MAX)
        self.number = 0
        """Number of the latest event."""
        self.began_s = float("-inf")
        self._matched_s = float("-inf")

    def begin(self, epoch: int, brokers: Mapping[int, Broker], now: float) -> None:
        """Starts over: waiting partitions stay uncompared, and the next reads are adopted."""
        self.forget(list(self.waiting), BEGUN_BEFORE)
        self.model = Cluster(epoch)
        self.model.observe_brokers(brokers)
        self.recent.clear()
        self.began_s = now

    def forget(self, rows: Iterable[int], why: str) -> None:
        """Drops rows; their waits count as uncomparable."""
        for i in rows:
            self._puzzling.discard(i)
            if self.waiting.pop(i, None) is not None:
                self.statistics.uncomparable[why] += 1

    # -- our decisions

    def on_event(
        self,
        kind: Kind,
        subjects: Iterable[int],
        brokers: Mapping[int, Broker],
        now: float,
        *,
        after: int,
        rows: Iterable[int] = (),
        doubt: str = "",
    ) -> None:
        """Decides on the model and remembers each write until its counterpart is read.

        Unexplained reads are not judged again: call :meth:`evaluate`.
        """
        event = self._enter(kind, tuple(subjects), brokers, now, after, frozenset(rows), doubt)
        before = self.recent.lately(now) if event.rows else [] if kind is Kind.FAILOVER else self.recent.loading()
        self.recent.append(event)
        self._by_number[event.number] = event
        for waiting in self.waiting.values():
            waiting.add(event)
        for change in carry_out(self.model, event, sorted(event.rows)):
            found = self.waiting.get(change.entity)
            if found is None:
                found = Waiting(leadership_of(change.before), [*before, event], now + self.wait_s)
                self.waiting[change.entity] = found
            elif not found.seen:
                found.due_s = now + self.wait_s
            found.steps.append(step_of(change, event))
            event.expected += 1

    def _enter(
        self,
        kind: Kind,
        subjects: tuple[int, ...],
        brokers: Mapping[int, Broker],
        now: float,
        after: int,
        rows: frozenset[int],
        doubt: str,
    ) -> ClusterEvent:
        self.number += 1
        self.statistics.events[kind] += 1
        return ClusterEvent(
            self.number,
            self.model.epoch,
            kind,
            subjects,
            dict(brokers),
            self._shutting_down(kind, subjects, brokers),
            now,
            after,
            rows,
            confirmed=kind is not Kind.SHUTDOWN,
            doubt=doubt or (BEHIND if self.recent.unhandled(now) >= BEHIND_MAX else ""),
        )

    def _shutting_down(self, kind: Kind, subjects: tuple[int, ...], brokers: Mapping[int, Broker]) -> frozenset[int]:
        """Returns brokers whose shutdown continues: a new controller knows of none, a new incarnation has none."""
        if kind is Kind.FAILOVER:
            return frozenset()
        known, shutting_down = self.model.brokers, self.model.shutting_down
        kept = {b for b in shutting_down & brokers.keys() if b in known and brokers[b].epoch == known[b].epoch}
        return frozenset(kept.union(subjects if kind is Kind.SHUTDOWN else ()))

    # -- reads

    def observe(self, i: int, seen: Seen, now: float) -> None:
        """Compares a state znode: adopts leaders' ISR changes, and awaits or matches a decision for any other one."""
        waiting = self.waiting.get(i)
        if waiting is None:
            base = leadership_of(self.model.rows[i])
            found = judge(base, (), seen.leadership)
            if found.outcome is Outcome.UNCHANGED:
                return
            if found.outcome is Outcome.ISR_CHANGES:
                self.statistics.isr_changes += found.isr_changes
                self.model.load_leadership([i], [seen.leadership])
                return
            waiting = self.waiting[i] = Waiting(base, self.recent.still_handled(now), now + self.wait_s)
        if seen.leadership == waiting.last:
            return
        if not waiting.seen:
            waiting.puzzled_s = now
            waiting.due_s = now + self.wait_s
        waiting.remember(seen)
        for step in waiting.steps[:1]:
            event = self._by_number[step.event]
            event.handled_s = min(event.handled_s, now)
        if waiting.under_way():
            self._matched_s = now
        self._puzzling.add(i)
        self.evaluate([i], now)

    def puzzling(self) -> Iterator[tuple[int, Waiting]]:
        """Yields partitions with an unexplained read, by row."""
        for i in sorted(self._puzzling):
            yield i, self.waiting[i]

    def evaluate(self, rows: Iterable[int], now: float, *, excuse: bool = False) -> None:
        """Explains as many reads as possible, in their order; ``excuse``: also as uncomparable."""
        for i in sorted(rows):
            waiting = self.waiting[i]
            if excuse and not waiting.try_again():
                continue
            while waiting.seen and self._explain(i, waiting, now, excuse):
                waiting.seen.pop(0)
                waiting.puzzled_s = now
            if waiting.seen:
                continue
            self._puzzling.discard(i)
            if not waiting.steps:
                del self.waiting[i]
                self.model.load_leadership([i], [waiting.base])

    def _explain(self, i: int, waiting: Waiting, now: float, excuse: bool) -> bool:
        """Explains the oldest read if possible; it becomes the new base, unless it lay inside a decision."""
        seen, found = waiting.seen[0], waiting.judge()
        if found.outcome is Outcome.UNCHANGED:
            return True
        if found.outcome is Outcome.AGREES:
            return self._agrees(i, waiting, seen, found.steps, now)
        if found.outcome is Outcome.UNDER_WAY and len(waiting.seen) > 1:
            return True
        if found.outcome is Outcome.ISR_CHANGES:
            self.statistics.isr_changes += found.isr_changes
            waiting.blurred |= found.isr_changes > 1
        elif bare := waiting.bare_epochs():
            count = len(waiting.possible_steps())
            if count and not self._agrees(i, waiting, seen, count, now):
                return False
            self.statistics.not_ours[BARE_EPOCH] += bare
        elif not (excuse and self._excused(i, waiting, seen.leadership)):
            return excuse and waiting.superseded(i, self.model.rows[i], self.tries)
        waiting.let_in(self.recent.begun(seen.zxid) if found.isr_changes == 1 else 0)
        self.rebase(i, waiting, seen.leadership)
        return True

    def _agrees(self, i: int, waiting: Waiting, seen: Seen, count: int, now: float) -> bool:
        """Counts a counterpart; one of an inferred event waits for the confirmation of that event."""
        last = waiting.steps[count - 1]
        event = self._by_number[last.event]
        if not event.confirmed:
            event.matching.add(i)
            return False
        self._matched_s = now
        self.statistics.unseen += count - 1
        self.statistics.agrees(event.kind, last.why)
        event.met += 1
        event.handled_s = min(event.handled_s, now)
        event.met_s = min(event.met_s, now)
        event.met_zxid = min(event.met_zxid, seen.zxid)
        waiting.base = seen.leadership
        waiting.steps = waiting.steps[count:]
        waiting.handled(last.event)
        waiting.due_s = now + self.wait_s
        return True

    def _excused(self, i: int, waiting: Waiting, seen: Leadership) -> bool:
        """Returns whether regent never decides such a write by itself, or its order is unknown."""
        row = self.model.rows[i]
        self.tries.take()
        if not waiting.possible_steps() and compare.is_preferred_election(waiting.base, seen, row.assignment.replicas):
            self.statistics.not_ours[PREFERRED] += 1
            return True
        if waiting.hidden_isr(i, row):
            self.statistics.uncomparable[ISR_UNSEEN] += 1
        elif waiting.preferred_unseen(i, row):
            self.statistics.uncomparable[PREFERRED_UNSEEN] += 1
        elif waiting.another_order(i, row, self.tries):
            self.statistics.uncomparable[ORDER_UNKNOWN] += 1
        else:
            return False
        waiting.blurred = True
        return True

    def rebase(self, i: int, waiting: Waiting, base: Leadership | None) -> None:
        """Repeats the decisions on unhandled events, on the state that was read."""
        waiting.begin(base)
        self.plan(i, waiting)

    def plan(self, i: int, waiting: Waiting) -> None:
        """Repeats the decisions on unhandled events."""
        steps = replay(i, self.model.rows[i], waiting.base, waiting.events)
        for change, planned in ((-1, waiting.steps), (1, steps)):
            for step in planned:
                self._by_number[step.event].expected += change
        waiting.steps = steps
        self.model.load_leadership([i], [compare.after(waiting.base, steps)])

    # -- time

    def late_s(self, now: float) -> float:
        """Returns the time since which a wait is too long; it advances slowly while counterparts arrive."""
        busy = now - self._matched_s < self.wait_s
        return now - self.wait_s * (PATIENCE if busy else 1)

    def clean_up(self) -> None:
        """Drops events that no partition holds any more."""
        held = {e.number for w in self.waiting.values() for e in (*w.events, *w.since)}
        held.update(e.number for e in self.recent)
        self._by_number = {number: e for number, e in self._by_number.items() if number in held}

    def cause(self, step: Step) -> str:
        """Describes the event that a decision handles."""
        return self._by_number[step.event].description
