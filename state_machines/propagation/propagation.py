"""What each broker must hear: one feed of metadata for all, and an pending per broker incarnation.

Only row indexes are kept, never requests: what is sent is encoded from the model at that moment, so a broker is
never told a lower (leader epoch, partition epoch) after a higher one, and entries that meet in an pending merge.
A metadata map per broker would cost partitions x brokers; the feed costs one entry per changed row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import NO_VERSION, Broker, PartitionRow, PartitionState, Topic
from state_machines.propagation.feed import Feed

RECIPIENT_SETS_MAX: Final = 65_536
"""Distinct assignments whose recipients are remembered."""

_ONLINE, _NON_EXISTENT = PartitionState.ONLINE, PartitionState.NON_EXISTENT


class ClusterView(Protocol):
    """What telling needs to know of the model (:class:`state_machines.model.cluster.Cluster`).

    A replica is ``stopped`` only where its row is not Online or one of the row's replicas is not online: a snapshot
    does not ask for ordinary rows.
    """

    @property
    def epoch(self) -> int:
        """Controller epoch of the term."""

    @property
    def rows(self) -> Sequence[PartitionRow]:
        """All partition rows; only appended to, an index is never reused."""

    @property
    def present(self) -> int:
        """Rows whose topics did not vanish."""

    @property
    def topics(self) -> Sequence[Topic]:
        """Topic incarnations by :attr:`PartitionRow.topic`."""

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """Registered brokers, live or shutting down."""

    @property
    def live(self) -> frozenset[int]:
        """Registered and not shutting down."""

    @property
    def ids_learned(self) -> int:
        """Grows with every topic that gets an id after brokers were sent it without one."""

    def find(self, topic: str, partition: int) -> int | None:
        """The row of a partition that exists."""

    def offline_replicas(self, i: int) -> tuple[int, ...]:
        """Replicas of a row that are not online."""

    @property
    def any_failed(self) -> bool:
        """Whether :meth:`offline_replicas` depends on more than the row's replicas."""

    @property
    def any_stopped(self) -> bool:
        """Whether :meth:`stopped` may be true of any replica."""

    def stopped(self, i: int, broker: int) -> bool:
        """Whether the replica was told StopReplica and must not be told LeaderAndIsr."""


def is_sent(row: PartitionRow) -> bool:
    """Whether brokers hear of a row at all: it exists and has a leadership."""
    return row.version != NO_VERSION and row.state is not _NON_EXISTENT


def _is_sent_to(broker: int, row: PartitionRow) -> bool:
    return is_sent(row) and broker in row.assignment.replicas


def is_removed(row: PartitionRow) -> bool:
    """Whether brokers hear of a row that they are to forget it: its topic is being deleted, or was."""
    return row.version != NO_VERSION and row.state is _NON_EXISTENT


def successor(view: ClusterView, i: int) -> int | None:
    """The row of the same partition in a later incarnation of the topic, where there is one."""
    later = view.find(view.topics[view.rows[i].topic].name, view.rows[i].partition)
    return None if later == i else later


def needs_leader_and_isr(change: Change) -> bool:
    """Whether replicas must hear LeaderAndIsr: brokers ignore it unless the leader epoch moved or is the first.

    All others hear of the change by UpdateMetadata alone (ISR changes of a leader, replicas gone offline).
    """
    before, after = change.before, change.after
    return after.leader_epoch != before.leader_epoch or before.version == NO_VERSION or change.is_new


class PendingRequests:
    """What one broker incarnation has still to hear.

    ``lead``: rows for LeaderAndIsr (row -> is new), ``stop``: rows for StopReplica (row -> delete); both flags are
    sticky. StopReplica is a barrier for its row: what was to be said before it is superseded, what is said after it
    waits in ``after`` until it was taken. ``sending`` are the LeaderAndIsr entries of the request under way,
    ``stopping`` the StopReplica entries of the seal under way.
    ``position`` and ``live_version`` are what the broker was sent of the feed, which it reads from ``since`` on, and of
    the live list; ``turn`` and ``turn_end`` are the rows of the snapshot that are still to come, once it is ``begun``,
    and ``reach`` is what had changed by then: rows that are forgotten come by the feed alone.
    ``snapshots``: how many began, so that a request which was under way then ends none of the later one.
    ``blank``: the broker has just come up and knows of no topic; ``introduced``: up to which row it heard the metadata
    of the snapshot already. ``refused``: up to where in the feed it may have refused UpdateMetadata, which then had no
    effect and is not repeated. ``asked``: the broker answered which topic ids it knows, or is waited for no more.
    """

    __slots__ = (
        "after",
        "asked",
        "begun",
        "blank",
        "introduced",
        "lead",
        "live_version",
        "position",
        "reach",
        "refused",
        "sending",
        "since",
        "snapshots",
        "stop",
        "stopping",
        "turn",
        "turn_end",
    )

    def __init__(self, position: int) -> None:
        self.lead: dict[int, bool] = {}
        self.sending: dict[int, bool] = {}
        self.stop: dict[int, bool] = {}
        self.stopping: dict[int, bool] = {}
        self.after: dict[int, bool] = {}
        self.position = self.since = position
        self.reach = 0
        self.refused = 0
        self.live_version = 0
        self.turn = 0
        self.turn_end = 0
        self.begun = False
        self.snapshots = 0
        self.blank = False
        self.introduced = 0
        self.asked = False

    def add_lead(self, i: int, *, is_new: bool) -> None:
        """The replica of row ``i`` must hear LeaderAndIsr."""
        entries = self.after if i in self.stop else self.lead
        if is_new or i not in entries:
            entries[i] = is_new

    def add_stop(self, i: int, *, delete: bool) -> None:
        """The replica of row ``i`` must hear StopReplica, whatever it was to hear before."""
        self.lead.pop(i, None)
        self.after.pop(i, None)
        self.stop[i] = delete or self.stop.get(i, False)

    def take_lead(self, limit: int, held: frozenset[int] | set[int] = frozenset()) -> dict[int, bool]:
        """Removes and returns the first ``limit`` LeaderAndIsr entries that are not ``held``."""
        if held:
            free = {i: is_new for i, is_new in self.lead.items() if i not in held}
            taken, _ = _split(free, limit)
            self.lead = {i: is_new for i, is_new in self.lead.items() if i not in taken}
        else:
            taken, self.lead = _split(self.lead, limit)
        return taken

    def take_new(self, limit: int) -> dict[int, bool]:
        """Removes and returns the first ``limit`` LeaderAndIsr entries of new replicas."""
        taken, _ = _split({i: True for i, is_new in self.lead.items() if is_new}, limit)
        for i in taken:
            del self.lead[i]
        return taken

    def take_stop(self, limit: int) -> dict[int, bool]:
        """Removes and returns the first ``limit`` StopReplica entries; what waited for them may go out next."""
        taken, self.stop = _split(self.stop, limit)
        return self._taken(taken)

    def take_stops(self, rows: Iterable[int]) -> dict[int, bool]:
        """The same for the entries of ``rows``."""
        return self._taken({i: self.stop.pop(i) for i in rows})

    def _taken(self, stops: dict[int, bool]) -> dict[int, bool]:
        self.stopping = stops
        if self.after:
            freed = [i for i in self.after if i in stops]
            self.lead.update((i, self.after.pop(i)) for i in freed)
        return stops

    def orders(self, i: int) -> bool:
        """Whether LeaderAndIsr or StopReplica of a row waits, or is under way."""
        return i in self.lead or i in self.sending or i in self.stop or i in self.after

    @property
    def complete(self) -> bool:
        """Whether the broker was told a snapshot to its end, and what was forgotten before it began."""
        return self.begun and self.turn_end <= self.turn and self.reach <= self.position

    @property
    def size(self) -> int:
        """LeaderAndIsr and StopReplica entries that wait."""
        return len(self.lead) + len(self.stop) + len(self.after)


def _split(entries: dict[int, bool], limit: int) -> tuple[dict[int, bool], dict[int, bool]]:
    if len(entries) <= limit:
        return entries, {}
    items = list(entries.items())
    return dict(items[:limit]), dict(items[limit:])


class Propagation:
    """All pending, the feed and the version of the live list. The controller is not a broker and has no pending."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.feed = Feed()
        self.pending: dict[int, PendingRequests] = {}
        self.live_version = 1
        self.acknowledged = 0
        self.withheld: set[int] = set()
        """Topics without an id: a broker forgets the one that it knows with the first UpdateMetadata without it."""
        self.withholding = 0
        """Grows with each change of ``withheld``: bodies that were encoded before are not sent any more."""
        self._recipients: dict[tuple[int, ...], tuple[tuple[int, PendingRequests], ...]] = {}

    def add(self, broker: int) -> PendingRequests:
        """A new incarnation: an empty pending that reads the feed from here on (what was before: the snapshot)."""
        self.live_list_changed()
        self._recipients.clear()
        pending = self.pending[broker] = PendingRequests(self.feed.number)
        return pending

    def remove(self, broker: int) -> None:
        """The incarnation is gone: so is what it had to hear."""
        self.live_list_changed()
        self._recipients.clear()
        self.pending.pop(broker, None)

    def withhold(self, topics: Iterable[int]) -> None:
        """Topics whose ids brokers are asked for: none hears their metadata before it has answered."""
        if new := set(topics) - self.withheld:
            self.withheld |= new
            self.withholding += 1
            for pending in self.pending.values():
                pending.asked = False

    def hand_out(self, topics: Iterable[int]) -> None:
        """Topics that have an id, or are gone: they are withheld no more."""
        if known := self.withheld.intersection(topics):
            self.withheld -= known
            self.withholding += 1

    def withheld_from(self, pending: PendingRequests) -> Collection[int]:
        """Topics of which the broker hears no metadata yet; LeaderAndIsr it does hear, no broker forgets by that."""
        return () if pending.asked else self.withheld

    def live_list_changed(self) -> None:
        """Registrations, endpoints or racks changed: every broker must hear the whole list again (KAFKA-13225)."""
        self.live_version += 1

    def snapshot(self, broker: int, *, blank: bool = False) -> None:
        """The broker must hear everything that the model holds now; a ``blank`` one has just come up."""
        pending = self.pending[broker]
        pending.blank, pending.introduced = blank, 0
        pending.snapshots += 1
        pending.turn, pending.turn_end, pending.begun = 0, len(self.view.rows), True
        pending.reach = self.feed.number

    def propagate(self, changes: Iterable[Change], moves: Iterable[ReplicaMove]) -> None:
        """Spreads applied changes: UpdateMetadata to all, LeaderAndIsr to registered replicas; and what moves say.

        A move stops its replica, or orders it to follow the present leadership (S4-31, S4-33).
        """
        told: list[int] = []
        stopped = self.view.stopped if self.view.any_stopped else None
        for change in changes:
            if is_sent(change.after):
                told.append(change.entity)
                if needs_leader_and_isr(change):
                    self._lead(change, stopped)
            elif is_removed(change.after):
                told.append(change.entity)
        self.feed.changed(told)
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
        """Rows whose metadata every broker must hear without a new leadership (ISR, offline replicas)."""
        self.feed.changed(rows)

    def leader_and_isr_to(self, broker: int, rows: Iterable[int], *, is_new: bool = False) -> None:
        """One broker must hear the current leadership of rows (a replica that came online, or was added)."""
        pending = self.pending.get(broker)
        if pending is not None:
            for i in rows:
                pending.add_lead(i, is_new=is_new)

    def held(self, broker: int) -> set[int]:
        """Rows that the broker must not hear yet: followers are told after their leader.

        A follower that asks a broker which does not know yet that it leads is refused, and waits for a second
        (``replica.fetch.backoff.ms``) before it asks again: so would every record with acks=all.
        """
        rows = self.view.rows
        waiting = {b: box for b, box in self.pending.items() if b != broker and (box.lead or box.sending)}
        return {
            i
            for i in (self.pending[broker].lead if waiting else ())
            if (box := waiting.get(rows[i].leader)) is not None and (i in box.lead or i in box.sending)
        }

    def leaders_waiting(self, wanted: Iterable[int]) -> dict[int, set[int]]:
        """Those of the rows whose leader has still to hear, or to acknowledge, that it leads them; by leader."""
        rows, led = self.view.rows, dict[int, set[int]]()
        for i in wanted:
            led.setdefault(rows[i].leader, set()).add(i)
        return self.still_waiting(led)

    def stopping(self, rows: Collection[int]) -> frozenset[int]:
        """Brokers that have still to be sent StopReplica, which names topics, for one of ``rows``."""
        return frozenset(b for b, box in self.pending.items() if box.stop and not box.stop.keys().isdisjoint(rows))

    def not_ended(self, rows: Collection[int]) -> frozenset[int]:
        """Brokers that have still to be sent StopReplica for one of ``rows``, or to acknowledge what became of them."""
        number = max(map(self.feed.number_of, rows), default=0)
        return self.stopping(rows).union(b for b, box in self.pending.items() if box.position < number)

    def unstopped(self, rows: Collection[int]) -> set[int]:
        """Those of ``rows`` of which a broker has still to acknowledge StopReplica."""
        wanted, found = frozenset(rows), set[int]()
        for box in self.pending.values():
            found |= (box.stop.keys() & wanted) | (box.stopping.keys() & wanted)
        return found

    def still_waiting(self, waiting: Mapping[int, set[int]]) -> dict[int, set[int]]:
        """What is left of an earlier :meth:`leaders_waiting`."""
        found: dict[int, set[int]] = {}
        for broker, led in waiting.items():
            pending = self.pending.get(broker)
            if pending and (left := led.intersection(pending.lead) | led.intersection(pending.sending)):
                found[broker] = left
        return found

    def number_of(self, rows: Iterable[int]) -> int:
        """Position in the feed at which a broker has heard of the last change of every row."""
        return max(map(self.feed.number_of, rows), default=0)

    def acknowledged_to(self, number: int) -> bool:
        """Whether every broker acknowledged the feed up to a position."""
        return all(pending.position >= number for pending in self.pending.values())

    def shown(self, number: int) -> bool:
        """Whether a broker acknowledged the feed up to a position; True where there is no broker, or all have (0).

        One that refused it proves nothing, nor one that came later and is still being told the snapshot.
        """
        boxes = self.pending.values()
        acknowledged_to = (box for box in boxes if box.position >= number > box.refused)
        return not number or not boxes or any(box.since < number or box.complete for box in acknowledged_to)

    def superseded(self, broker: int) -> list[int]:
        """Rows of StopReplica entries of which there is a later incarnation: they go before its LeaderAndIsr.

        A broker with the log of the former one refuses that (INCONSISTENT_TOPIC_ID), for good.
        """
        if self.view.present == len(self.view.rows):
            return []
        return [i for i in self.pending[broker].stop if successor(self.view, i) is not None]

    def deletable(self, broker: int, entries: Mapping[int, bool]) -> Mapping[int, bool]:
        """Those StopReplica entries that delete no log which is needed by now.

        An unclean election may have made the broker the leader, with what its log has, after it was to be deleted.
        And the request names no topic id: it would hit what the broker was sent of a topic that somebody recreated.
        """
        view, rows = self.view, self.view.rows
        entries = {i: d for i, d in entries.items() if not (d and rows[i].leader == broker and is_sent(rows[i]))}
        if view.present == len(rows):
            return entries
        untold, kept = self.pending[broker].lead, dict[int, bool]()
        for i, delete in entries.items():
            later = successor(view, i)
            if later is None or untold.get(later) or not _is_sent_to(broker, rows[later]):
                kept[i] = delete
        return kept

    def behind(self, pending: PendingRequests) -> bool:
        """Whether something waits for the incarnation, the snapshot included."""
        return self.dirty(pending) or pending.turn < pending.turn_end

    def dirty(self, pending: PendingRequests) -> bool:
        """Whether changes wait for the incarnation."""
        return (
            bool(pending.lead or pending.stop)
            or pending.position < self.feed.number
            or pending.live_version != self.live_version
        )

    def unacknowledged_by(self, i: int) -> frozenset[int]:
        """Brokers that were not told the last change of a row, or did not answer yet."""
        number = self.feed.number_of(i)
        return frozenset(
            broker
            for broker, pending in self.pending.items()
            if pending.position < number or pending.turn <= i < pending.turn_end or pending.orders(i)
        )

    def prune(self) -> None:
        """Drops what every incarnation was sent of the feed, unless each has refused some: what is dropped is shown."""
        boxes, forgotten = self.pending.values(), self.feed.forgotten
        if boxes and all(box.refused or (box.since > forgotten and not box.complete) for box in boxes):
            return
        self.feed.forget(min((pending.position for pending in self.pending.values()), default=self.feed.number))
