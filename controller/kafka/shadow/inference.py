"""Infers clean shutdowns: their only trace in ZooKeeper are partitions that are moved off a registered broker.

For a moved partition we decide the whole shutdown on the state before. It is confirmed once the broker left, or most of
its partitions have moved as we decided. Otherwise it is withdrawn, and the partition is a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from controller.kafka.shadow import judgement as compare
from controller.kafka.shadow.events import ClusterEvent, Kind
from controller.kafka.shadow.judgement import Seen
from controller.kafka.shadow.tracker import Tracker
from controller.kafka.shadow.waiting import Waiting

Certain = Callable[[int, Seen], bool]
"""Returns whether a broker was certainly still registered when a state znode was written."""


class Shutdowns:
    """Infers, confirms and withdraws clean shutdowns of a tracker."""

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
