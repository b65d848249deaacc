"""Judges decisions and writes that have no counterpart in time.

Clean shutdowns are inferred, because their only trace in ZooKeeper are partitions that are moved off a registered
broker. What still waits is a difference then, or uncomparable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from controller.kafka.shadow import judgement as compare
from controller.kafka.shadow.events import ORDERS_MAX, ClusterEvent, Kind
from controller.kafka.shadow.judgement import Seen
from controller.kafka.shadow.report import difference, reasons
from controller.kafka.shadow.tracker import BEGUN_BEFORE, ISR_UNSEEN, ORDER_UNKNOWN, Tracker
from controller.kafka.shadow.waiting import Waiting
from metadata_store import paths

EXCUSE_SHARE: Final = 10
"""Divisor of the usual wait, after which an unexplained read may count as uncomparable."""

TRIES_LEFT_MIN: Final = 2 * ORDERS_MAX + 10
"""Tries that one partition may need: no judgement begins with fewer left in the budget."""

BEING_DELETED: Final = "the topic is being deleted"
BEING_REASSIGNED: Final = "the partition is being reassigned"
NO_EVENT: Final = "no event explains it"

Certain = Callable[[int, Seen], bool]
"""Returns whether a broker was certainly still registered when a state znode was written."""


class Deadlines:
    """Ends the waiting of a tracker's partitions: with a difference, or as uncomparable for a known reason."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def hold(self, now: float) -> None:
        """Extends all waits: without a controller no event is handled, so no write is late."""
        for waiting in self.tracker.waiting.values():
            waiting.due_s = max(waiting.due_s, now + self.tracker.wait_s)

    def expire(self, now: float, deleting: Collection[str] = ()) -> None:
        """Judges partitions whose wait is over; ``deleting``: topics that are being deleted."""
        tracker = self.tracker
        tracker.tries.refill()
        excusable_s = now - tracker.wait_s / EXCUSE_SHARE
        for i, waiting in list(tracker.puzzling()):
            if waiting.settled and waiting.puzzled_s <= excusable_s and tracker.tries.left > TRIES_LEFT_MIN:
                tracker.evaluate([i], now, excuse=True)
        late_s = tracker.late_s(now)
        for i, waiting in list(tracker.waiting.items()):
            patient = not waiting.seen or waiting.under_way()
            late = waiting.due_s - tracker.wait_s <= late_s if patient else waiting.due_s <= now
            if late and waiting.settled and tracker.tries.left > TRIES_LEFT_MIN:
                self._too_late(i, waiting, now, deleting)
        tracker.clean_up()

    def _too_late(self, i: int, waiting: Waiting, now: float, deleting: Collection[str]) -> None:
        tracker, why = self.tracker, self._unclear(i, waiting, deleting)
        theirs, steps = waiting.base, waiting.steps
        if waiting.seen:
            found, steps = waiting.judge(), waiting.possible_steps()
            theirs, steps = waiting.seen.pop(0).leadership, steps[: found.steps or None]
        if why is not None:
            tracker.statistics.uncomparable[why] += 1
        else:
            cause = tracker.cause(steps[-1]) if steps else NO_EVENT
            ours = compare.after(waiting.base, steps)
            tracker.statistics.differs(difference(self._path(i), waiting.base, ours, theirs, cause, reasons(steps)))
        if why is None or theirs == waiting.base:
            waiting.handled(steps[-1].event if steps else tracker.number)
        waiting.due_s = now + tracker.wait_s
        tracker.rebase(i, waiting, theirs)
        tracker.evaluate([i], now)

    def _unclear(self, i: int, waiting: Waiting, deleting: Collection[str]) -> str | None:
        """Returns why the partition cannot be compared; None where it can."""
        row, tries = self.tracker.model.rows[i], self.tracker.tries
        if self.tracker.model.name(i).topic in deleting:
            return BEING_DELETED
        if row.assignment.adding or row.assignment.removing:
            return BEING_REASSIGNED
        if waiting.doubt:
            return waiting.doubt
        if waiting.seen:
            if waiting.hidden_isr_in_another_order(i, row, tries):
                return ISR_UNSEEN
            return BEGUN_BEFORE if self._begun_before(waiting) else None
        if waiting.blurred:
            return ISR_UNSEEN
        return ORDER_UNKNOWN if waiting.nothing_in_another_order(i, row, tries) else None

    def _begun_before(self, waiting: Waiting) -> bool:
        """Returns whether a controller had a pending decision for the partition when the shadow began to read."""
        tracker, base = self.tracker, waiting.base
        if waiting.events or waiting.due_s - tracker.began_s > 2 * tracker.wait_s:
            return False
        return base is None or bool({base.leader, *base.isr} - tracker.model.brokers.keys())

    def _path(self, i: int) -> str:
        name = self.tracker.model.name(i)
        return paths.state(name.topic, name.partition)


class Shutdowns:
    """Infers, confirms and withdraws clean shutdowns of a tracker.

    For a moved partition we decide the whole shutdown on the state before. It is confirmed once the broker left, or
    most of its partitions have moved as we decided. Otherwise it is withdrawn, and the partition is a difference.
    """

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self._withdrawn: dict[int, float] = {}

    def suspects(self, certain: Certain, gone: Collection[int], now: float) -> dict[int, Seen]:
        """Returns registered brokers off which partitions were moved, with the first such write.

        A partition counts once for each broker. It does not count where its leader may have changed the ISR unseen.
        """
        found: dict[int, Seen] = {}
        for i, waiting in self.tracker.puzzling():
            seen = waiting.seen[0]
            lost = self._lost(i, waiting, gone) - waiting.suspected
            for broker in lost if lost and self._counts(i, waiting) else ():
                if broker in self.tracker.model.brokers and certain(broker, seen) and not self._known(broker, now):
                    waiting.suspected.add(broker)
                    found[broker] = min(seen, found.get(broker, seen), key=lambda s: s.zxid)
        return dict(sorted(found.items(), key=lambda item: item[1].zxid))

    def _lost(self, i: int, waiting: Waiting, gone: Collection[int]) -> frozenset[int]:
        """Returns brokers off which a partition was moved; with unread ISR changes a gone broker may have joined."""
        seen = waiting.seen[0].leadership
        lost = compare.lost_members(compare.after(waiting.base, waiting.steps), seen)
        if not waiting.judge().isr_changes:
            return lost
        replicas = self.tracker.model.rows[i].assignment.replicas
        return lost.union(b for b in replicas if b in gone and b not in seen.isr)

    def _counts(self, i: int, waiting: Waiting) -> bool:
        """Returns whether a controller wrote the unexplained state, and nothing else can have led to it."""
        written = waiting.seen[0].leadership.leader_epoch > compare.epoch_of(waiting.base)
        return written and not waiting.doubt and not waiting.hidden_isr(i, self.tracker.model.rows[i])

    def _known(self, broker: int, now: float) -> bool:
        """Returns whether its shutdown is inferred already, or was withdrawn just now."""
        if self._withdrawn.get(broker, float("-inf")) > now - self.tracker.wait_s:
            return True
        return any(broker in e.subjects for e in self._unconfirmed())

    def _unconfirmed(self) -> list[ClusterEvent]:
        return [e for e in self.tracker.recent if e.kind is Kind.SHUTDOWN and not e.confirmed]

    def left(self, brokers: Collection[int], now: float) -> None:
        """Confirms the clean shutdowns of brokers that are gone."""
        for event in self._unconfirmed():
            if not {*event.subjects}.isdisjoint(brokers):
                self._confirm(event, now)

    def settle(self, now: float) -> None:
        """Confirms shutdowns that most of a broker's partitions match, and withdraws those that waited too long."""
        for event in self._unconfirmed():
            matching = len(event.matching)
            if matching > 1 and 2 * matching >= event.expected:
                self._confirm(event, now)
            elif event.at_s <= self.tracker.late_s(now):
                self._withdrawn.update(dict.fromkeys(event.subjects, now))
                self._withdraw(event, now)

    def _confirm(self, event: ClusterEvent, now: float) -> None:
        event.confirmed = True
        matching, event.matching = event.matching, set()
        self.tracker.evaluate([i for i, _ in self.tracker.puzzling() if i in matching], now)

    def _withdraw(self, event: ClusterEvent, now: float) -> None:
        """Removes an inferred shutdown, and repeats all later decisions without it."""
        tracker = self.tracker
        tracker.statistics.events[event.kind] -= 1
        tracker.recent.remove(event)
        brokers = tracker.model.brokers
        tracker.model.observe_brokers({b: known for b, known in brokers.items() if b not in event.subjects})
        tracker.model.observe_brokers(brokers)
        for later in tracker.recent:
            if later.number > event.number:
                later.shutting_down = later.shutting_down.difference(event.subjects)
        since = [i for i, w in tracker.waiting.items() if any(e.number >= event.number for e in w.since)]
        for i in since:
            tracker.waiting[i].drop(event)
            tracker.plan(i, tracker.waiting[i])
        tracker.evaluate(since, now)
