"""Judges decisions and writes without a counterpart in time: differences, or uncomparable for a known reason."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from controller.kafka.shadow import judgement as compare
from controller.kafka.shadow.events import ORDERS_MAX
from controller.kafka.shadow.statistics import difference, reasons
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


class Deadlines:
    """Ends the waiting of a tracker's partitions."""

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
