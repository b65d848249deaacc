"""Propagates the model to all brokers: one feed of metadata, and pending requests per broker incarnation.

Only row indexes are kept, never requests. A request is encoded from the model when it is sent. So a broker is never
sent a lower (leader epoch, partition epoch) after a higher one, and entries of one row merge.
A metadata map per broker would cost partitions x brokers; the feed costs one entry per changed row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from state_machines.model.decision import Change, ReplicaMove
from state_machines.propagation.pending_requests import PendingRequests
from state_machines.propagation.view import (
    ClusterView,
    Feed,
    is_removed,
    is_sent,
    is_sent_to,
    needs_leader_and_isr,
    successor,
)

RECIPIENT_SETS_MAX: Final = 65_536
"""Distinct assignments whose recipients are remembered."""


class Propagation:
    """The pending requests of all brokers, the feed and the version of the live list.

    The controller is not a broker and has no pending requests.
    """

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.feed = Feed()
        self.pending: dict[int, PendingRequests] = {}
        self.live_version = 1
        self.acknowledged = 0
        self.withheld: set[int] = set()
        """Topics without an id: the first UpdateMetadata without the id makes a broker forget the one that it knows."""
        self.withholding = 0
        """Grows with each change of ``withheld``: bodies that were encoded before are not sent any more."""
        self._recipients: dict[tuple[int, ...], tuple[tuple[int, PendingRequests], ...]] = {}

    def add(self, broker: int) -> PendingRequests:
        """Adds an incarnation without entries; it reads the feed from here on, and the snapshot has all before."""
        self.live_list_changed()
        self._recipients.clear()
        pending = self.pending[broker] = PendingRequests(self.feed.number)
        return pending

    def remove(self, broker: int) -> None:
        """Drops an incarnation that is gone, and its pending requests."""
        self.live_list_changed()
        self._recipients.clear()
        self.pending.pop(broker, None)

    def withhold(self, topics: Iterable[int]) -> None:
        """Withholds the metadata of topics from each broker until it has responded which ids it knows."""
        if new := set(topics) - self.withheld:
            self.withheld |= new
            self.withholding += 1
            for pending in self.pending.values():
                pending.queried = False

    def hand_out(self, topics: Iterable[int]) -> None:
        """Ends the withholding of topics that have an id, or are gone."""
        if known := self.withheld.intersection(topics):
            self.withheld -= known
            self.withholding += 1

    def withheld_from(self, pending: PendingRequests) -> Collection[int]:
        """Returns the topics whose metadata the broker is not sent yet; LeaderAndIsr makes no broker forget an id."""
        return () if pending.queried else self.withheld

    def live_list_changed(self) -> None:
        """Has the whole live list sent again: registrations, endpoints or racks changed (KAFKA-13225)."""
        self.live_version += 1

    def snapshot(self, broker: int, *, blank: bool = False) -> None:
        """Begins a snapshot of the whole model for a broker; a ``blank`` one has just come up."""
        pending = self.pending[broker]
        pending.blank, pending.introduced = blank, 0
        pending.snapshots += 1
        pending.turn, pending.turn_end, pending.begun = 0, len(self.view.rows), True
        pending.reach = self.feed.number

    def propagate(self, changes: Iterable[Change], moves: Iterable[ReplicaMove]) -> None:
        """Adds UpdateMetadata of applied changes for all brokers, LeaderAndIsr for replicas, and requests of moves.

        A move stops its replica, or orders it to follow the present leadership.
        """
        changed: list[int] = []
        stopped = self.view.stopped if self.view.any_stopped else None
        for change in changes:
            if is_sent(change.after):
                changed.append(change.entity)
                if needs_leader_and_isr(change):
                    self._lead(change, stopped)
            elif is_removed(change.after):
                changed.append(change.entity)
        self.feed.changed(changed)
        for move in moves:
            if move.stop and (pending := self.pending.get(move.broker)) is not None:
                pending.add_stop(move.entity, delete=move.delete)
            if move.order:
                self.leader_and_isr_to(move.broker, [move.entity], is_new=move.is_new)
                self.feed.changed([move.entity])

    def _lead(self, change: Change, stopped: Callable[[int, int], bool] | None) -> None:
        i, replicas = change.entity, change.after.assignment.replicas
        for broker, pending in self._recipients.get(replicas) or self._recipients_of(replicas):
            if stopped is None or not stopped(i, broker):
                pending.add_lead(i, is_new=change.is_new)

    def _recipients_of(self, replicas: tuple[int, ...]) -> tuple[tuple[int, PendingRequests], ...]:
        if len(self._recipients) >= RECIPIENT_SETS_MAX:
            self._recipients.clear()
        found = tuple((b, self.pending[b]) for b in replicas if b in self.pending)
        self._recipients[replicas] = found
        return found

    def metadata_changed(self, rows: Iterable[int]) -> None:
        """Adds UpdateMetadata of rows without a new leadership (ISR, offline replicas)."""
        self.feed.changed(rows)

    def leader_and_isr_to(self, broker: int, rows: Iterable[int], *, is_new: bool = False) -> None:
        """Adds LeaderAndIsr of rows for one broker (a replica that came online, or was added)."""
        pending = self.pending.get(broker)
        if pending is not None:
            for i in rows:
                pending.add_lead(i, is_new=is_new)

    def held(self, broker: int) -> set[int]:
        """Returns the rows that wait because their leader is sent LeaderAndIsr before its followers.

        A broker that does not know yet that it leads refuses a follower's fetch. The follower then waits for a second
        (``replica.fetch.backoff.ms``), and so would every record with acks=all.
        """
        rows = self.view.rows
        waiting = {b: other for b, other in self.pending.items() if b != broker and (other.lead or other.sending)}
        return {
            i
            for i in (self.pending[broker].lead if waiting else ())
            if (leader := waiting.get(rows[i].leader)) is not None and (i in leader.lead or i in leader.sending)
        }

    def leaders_waiting(self, wanted: Iterable[int]) -> dict[int, set[int]]:
        """Returns those of the rows whose LeaderAndIsr the leader did not acknowledge yet, by leader."""
        rows, led = self.view.rows, dict[int, set[int]]()
        for i in wanted:
            led.setdefault(rows[i].leader, set()).add(i)
        return self.still_waiting(led)

    def still_waiting(self, waiting: Mapping[int, set[int]]) -> dict[int, set[int]]:
        """Returns the rows that still wait of an earlier :meth:`leaders_waiting`."""
        found: dict[int, set[int]] = {}
        for broker, led in waiting.items():
            pending = self.pending.get(broker)
            if pending and (left := led.intersection(pending.lead) | led.intersection(pending.sending)):
                found[broker] = left
        return found

    def stopping(self, rows: Collection[int]) -> frozenset[int]:
        """Returns the brokers that have still to be sent StopReplica, which names topics, for one of ``rows``."""
        return frozenset(b for b, p in self.pending.items() if p.stop and not p.stop.keys().isdisjoint(rows))

    def not_ended(self, rows: Collection[int]) -> frozenset[int]:
        """Returns the brokers of :meth:`stopping`, and those that did not acknowledge the last change of ``rows``."""
        number = self.number_of(rows)
        return self.stopping(rows).union(b for b, pending in self.pending.items() if pending.position < number)

    def unstopped(self, rows: Collection[int]) -> set[int]:
        """Returns those of ``rows`` whose StopReplica some broker did not acknowledge yet."""
        wanted, found = frozenset(rows), set[int]()
        for pending in self.pending.values():
            found |= (pending.stop.keys() & wanted) | (pending.stopping.keys() & wanted)
        return found

    def number_of(self, rows: Iterable[int]) -> int:
        """Returns the position in the feed that has the last change of every row."""
        return max(map(self.feed.number_of, rows), default=0)

    def acknowledged_to(self, number: int) -> bool:
        """Checks whether every broker acknowledged the feed up to a position."""
        return all(pending.position >= number for pending in self.pending.values())

    def shown(self, number: int) -> bool:
        """Checks whether a broker acknowledged the feed up to a position; True without brokers, or at position 0.

        A broker that refused the position proves nothing, nor does a later one that is still being sent the snapshot.
        """
        brokers = self.pending.values()
        acknowledged = (pending for pending in brokers if pending.position >= number > pending.refused)
        return not number or not brokers or any(p.since < number or p.complete for p in acknowledged)

    def superseded(self, broker: int) -> list[int]:
        """Returns rows of StopReplica entries that have a later incarnation: they go before its LeaderAndIsr.

        A broker with the log of the earlier incarnation refuses that LeaderAndIsr (INCONSISTENT_TOPIC_ID), for good.
        """
        if self.view.present == len(self.view.rows):
            return []
        return [i for i in self.pending[broker].stop if successor(self.view, i) is not None]

    def deletable(self, broker: int, entries: Mapping[int, bool]) -> Mapping[int, bool]:
        """Returns those StopReplica entries that delete no log which is needed by now.

        An unclean election may have made the broker the leader after its log was to be deleted. And the request names
        no topic id: it would hit the log that the broker was sent of a topic which was recreated by hand meanwhile.
        """
        view, rows = self.view, self.view.rows
        entries = {i: d for i, d in entries.items() if not (d and rows[i].leader == broker and is_sent(rows[i]))}
        if view.present == len(rows):
            return entries
        unsent, kept = self.pending[broker].lead, dict[int, bool]()
        for i, delete in entries.items():
            later = successor(view, i)
            if later is None or unsent.get(later) or not is_sent_to(broker, rows[later]):
                kept[i] = delete
        return kept

    def behind(self, pending: PendingRequests) -> bool:
        """Checks whether something waits for the incarnation, the snapshot included."""
        return self.dirty(pending) or pending.turn < pending.turn_end

    def dirty(self, pending: PendingRequests) -> bool:
        """Checks whether changes wait for the incarnation."""
        return (
            bool(pending.lead or pending.stop or pending.logs)
            or pending.position < self.feed.number
            or pending.live_version != self.live_version
        )

    def unacknowledged_by(self, i: int) -> frozenset[int]:
        """Returns the brokers that were not sent the last change of a row, or did not acknowledge it yet."""
        number = self.feed.number_of(i)
        return frozenset(
            broker
            for broker, pending in self.pending.items()
            if pending.position < number or pending.turn <= i < pending.turn_end or pending.concerns(i)
        )

    def prune(self) -> None:
        """Drops rows that every incarnation was sent, unless each broker refused some: a dropped row is shown."""
        brokers, forgotten = self.pending.values(), self.feed.forgotten
        if brokers and all(p.refused or (p.since > forgotten and not p.complete) for p in brokers):
            return
        self.feed.forget(min((pending.position for pending in brokers), default=self.feed.number))
