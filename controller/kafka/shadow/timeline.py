"""Derives the order of events from reads: by zxids, and by the order of readings."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from controller.kafka.shadow.events import Kind
from controller.kafka.shadow.judgement import Seen
from controller.kafka.shadow.reading import RoleReading
from controller.kafka.shadow.tracker import Tracker
from controller.kafka.shadow.unmatched import BEING_REASSIGNED, Deadlines, Shutdowns
from state_machines.decisions.broker_change import BrokerDelta, compare
from state_machines.model.types import Leadership, TopicAssignment

FORGOTTEN: Final = "the topic vanished or was replaced"
SEVERAL: Final = "several brokers came or went between two reads, and the controller wrote in between"
UNSEEN_TERM: Final = "a controller came and went between two reads"
READ_LATE: Final = "the shadow was too slow: more may have happened between two reads"


TURN_ROWS: Final = 5_000
"""Partitions that are compared before others get a turn of the loop."""

FULL_READINGS_MAX: Final = 64
"""Full readings that are remembered, each with the zxid at which its read of states began."""


@dataclass(slots=True)
class Fresh:
    """New partitions of one topic znode, which a controller must start; ``zxid``: its creation or change."""

    zxid: int
    rows: list[int]


class Timeline:
    """Feeds a :class:`Tracker` with events in the order in which the active controller handles them."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.shutdowns = Shutdowns(tracker)
        self.deadlines = Deadlines(tracker)
        self.epoch = 0
        self.holder: int | None = None
        self._last_holder: int | None = None
        self._registered_zxid = 0
        self._full: deque[tuple[int, int]] = deque(maxlen=FULL_READINGS_MAX)
        self._fresh: list[Fresh] = []
        self._adopted: set[int] = set()

    def begin(self, role_seen: RoleReading, topics: Iterable[TopicAssignment], now: float) -> None:
        """Starts over with the present topics: the next states are adopted."""
        self.tracker.begin(role_seen.epoch, role_seen.brokers, now)
        self.epoch, self.holder, self._last_holder = role_seen.epoch, role_seen.holder, role_seen.holder
        self._registered_zxid = role_seen.zxid
        self._fresh = []
        self._adopted = {i for topic in topics for i in self.tracker.model.observe_topic(topic)}

    # -- topics

    def topic_gone(self, name: str) -> None:
        """Drops a topic whose znode vanished."""
        self._forget(name, FORGOTTEN)

    def topic(self, found: TopicAssignment, zxid: int) -> None:
        """Enters a topic znode: new, another incarnation, more partitions, or moved replicas.

        ``zxid``: not later than the change. A reassignment is not compared: its topic is adopted as it is.
        """
        model = self.tracker.model
        known = model.topic(found.name)
        if known is not None and known.czxid != found.czxid:
            self._forget(found.name, FORGOTTEN)
        elif known is not None and self._moved(found, known.rows):
            self._forget(found.name, BEING_REASSIGNED)
            self._adopted.update(model.observe_topic(found))
            return
        rows = model.observe_topic(found)
        if rows:
            self._fresh.append(Fresh(found.czxid if known is None else zxid, rows))

    def _moved(self, found: TopicAssignment, rows: Sequence[int]) -> bool:
        model = self.tracker.model
        return any(
            model.rows[i].assignment != found.partitions.get(model.rows[i].partition, model.rows[i].assignment)
            for i in rows
        )

    def _forget(self, name: str, why: str) -> None:
        model = self.tracker.model
        if (topic := model.topic(name)) is not None:
            model.end_rows(topic.rows)
        rows = set(model.observe_topic_gone(name))
        self.tracker.forget(sorted(rows), why)
        self._adopted -= rows
        self._fresh = [fresh for fresh in self._fresh if rows.isdisjoint(fresh.rows)]

    # -- one reading

    def take(
        self,
        role_seen: RoleReading,
        states: Sequence[tuple[int, Seen]],
        now: float,
        *,
        full: bool = True,
        deleting: Collection[str] = (),
        late: bool = False,
    ) -> Iterator[None]:
        """Processes one reading: states that result from earlier events, then new events, then new partitions.

        It runs in turns as it is iterated, so that a large reading does not block the loop. ``full``: every state znode
        was read. ``deleting``: topics that are being deleted. ``late``: the event was so long ago that several may have
        passed.
        """
        self._adopt(states)
        unread = dict(states)
        yield from self._observe(unread, now)
        delta = compare(self.tracker.model.brokers, role_seen.brokers)
        changed = {*delta.dead, *delta.bounced, *delta.new}
        exact = role_seen if len(changed) <= 1 else structs.replace(role_seen, zxid=0)
        yield from self._infer(delta, exact, now)
        if changed:
            self._create_before(role_seen, unread, now)
            yield from self._observe(unread, now)
            yield from self._infer(delta, exact, now)
        self.shutdowns.left({*delta.dead, *delta.bounced}, now)
        several = len(changed) > 1 and any(w.seen[0].zxid < role_seen.zxid for _, w in self.tracker.puzzling())
        if delta.empty:
            self._registered_zxid = role_seen.zxid
        number = self.tracker.number
        self._on_event(role_seen, delta, unread, now, READ_LATE if late else SEVERAL if several else "")
        if self.tracker.number != number:
            yield from self._explain(now)
        yield from self._observe(unread, now)
        if full:
            self._full.append((role_seen.reading, role_seen.read_zxid))
        self.shutdowns.settle(now)
        self.deadlines.expire(now, deleting)

    def _observe(self, unread: dict[int, Seen], now: float) -> Iterator[None]:
        """Observes states of partitions that were started as far as we know."""
        later = {i for fresh in self._fresh for i in fresh.rows}
        for done, i in enumerate([i for i in unread if i not in later]):
            self.tracker.observe(i, unread.pop(i), now)
            if done % TURN_ROWS == TURN_ROWS - 1:
                yield

    def _explain(self, now: float) -> Iterator[None]:
        """Judges unexplained reads again, after new events."""
        rows = [i for i, _ in self.tracker.puzzling()]
        for at in range(0, len(rows), TURN_ROWS):
            self.tracker.evaluate(rows[at : at + TURN_ROWS], now)
            yield

    def _infer(self, delta: BrokerDelta, role_seen: RoleReading, now: float) -> Iterator[None]:
        """Infers a clean shutdown from partitions moved off a registered broker, and decides it on the state before."""
        gone = {*delta.dead, *delta.bounced}
        found = self.shutdowns.suspects(lambda b, seen: _registered(b, seen, gone, role_seen), gone, now)
        for broker, first in found.items():
            self._create(first.zxid, now)
            after = next((zxid for reading, zxid in reversed(self._full) if reading < first.reading), 0)
            self.tracker.on_event(Kind.SHUTDOWN, [broker], self.tracker.model.brokers, now, after=after)
        if found:
            yield from self._explain(now)

    def _adopt(self, states: Sequence[tuple[int, Seen]]) -> None:
        """Adopts the first states of partitions that ran before the first reading; the others await a leader."""
        if self._adopted:
            found = {i: seen.leadership for i, seen in states if i in self._adopted}
            rows = sorted(self._adopted)
            self.tracker.model.load_leadership(rows, [found.get(i) for i in rows])
            self._adopted = set()

    def _create_before(self, role_seen: RoleReading, unread: dict[int, Seen], now: float) -> None:
        """Decides on topics that were created before the registrations changed.

        A controller that is gone has started those with a state; the others are left to its successor.
        """
        if role_seen.epoch == self.epoch and role_seen.holder is not None:
            self._create(role_seen.zxid, now)
            return
        done = {i for i, seen in unread.items() if not _is_first_of(seen.leadership, self.epoch)}
        for fresh in self._fresh:
            started = [i for i in fresh.rows if i in done]
            fresh.rows = [i for i in fresh.rows if i not in done]
            if started:
                brokers = self.tracker.model.brokers
                self.tracker.on_event(Kind.CREATION, (), brokers, now, after=fresh.zxid, rows=started)

    def _on_event(
        self, role_seen: RoleReading, delta: BrokerDelta, unread: dict[int, Seen], now: float, doubt: str
    ) -> None:
        before, self.holder = self._last_holder, role_seen.holder
        self._last_holder = role_seen.holder if role_seen.holder is not None else before
        if role_seen.epoch != self.epoch:
            self._create_before(role_seen, unread, now)
            if role_seen.epoch != self.epoch + 1:
                doubt = UNSEEN_TERM
            elif {*delta.dead, *delta.new, *delta.bounced} - {before}:
                doubt = SEVERAL
            self.epoch = self.tracker.model.epoch = role_seen.epoch
            self._failover(role_seen, delta.dead, now, doubt)
        elif role_seen.holder is None:
            self.deadlines.hold(now)
        else:
            if not delta.empty:
                self._brokers(role_seen, delta, now, doubt)
            self._create(None, now)

    def _failover(self, role_seen: RoleReading, gone: Sequence[int], now: float, doubt: str) -> None:
        """Decides a failover; the new controller starts the partitions that were created before it."""
        waiting = [i for fresh in self._fresh for i in fresh.rows]
        self.tracker.model.load_leadership(waiting, [None] * len(waiting))
        self._fresh = []
        self.tracker.on_event(
            Kind.FAILOVER, gone, role_seen.brokers, now, after=role_seen.epoch_zxid, rows=waiting, doubt=doubt
        )

    def _create(self, before: int | None, now: float) -> None:
        """Decides on topics that were created before a zxid."""
        due = [fresh for fresh in self._fresh if before is None or fresh.zxid < before]
        self._fresh = [fresh for fresh in self._fresh if fresh not in due]
        rows = [i for fresh in due for i in fresh.rows]
        if rows:
            first = min(fresh.zxid for fresh in due)
            self.tracker.on_event(Kind.CREATION, (), self.tracker.model.brokers, now, after=first, rows=rows)

    def _brokers(self, role_seen: RoleReading, delta: BrokerDelta, now: float, doubt: str) -> None:
        """Decides deaths first, then returns: a bounced broker is both."""
        found, gone, back = role_seen.brokers, (*delta.dead, *delta.bounced), (*delta.new, *delta.bounced)
        alone = len({*gone, *back}) == 1
        if gone:
            without = {b: known for b, known in found.items() if b not in delta.bounced}
            after = role_seen.zxid if alone and not back else self._registered_zxid
            self.tracker.on_event(Kind.DEATH, sorted(gone), without, now, after=after, doubt=doubt)
        if back:
            after = role_seen.zxid if alone else self._registered_zxid
            self.tracker.on_event(Kind.RETURN, sorted(back), found, now, after=after, doubt=doubt)
        if delta.modified:
            self.tracker.model.observe_brokers(found)


def _is_first_of(state: Leadership, earlier: int) -> bool:
    """Returns whether a state znode is as a controller after ``earlier`` created it."""
    return state.version == 0 and state.controller_epoch > earlier


def _registered(broker: int, seen: Seen, gone: Collection[int], role_seen: RoleReading) -> bool:
    """Returns whether ``broker`` was certainly registered when a znode was written.

    For a broker that is gone: the write precedes the last change of the registrations, which was its own. For a
    present one: the znode was read in an earlier reading than the registrations.
    """
    return seen.zxid < role_seen.zxid if broker in gone else seen.reading < role_seen.reading
