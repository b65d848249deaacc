"""Decides on events of the cluster, by the same functions as the active controller, and keeps the recent ones.

An event keeps the registrations that its decision is based on. So the decision can be repeated for one partition whose
leader changed the ISR meanwhile, or in another order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import permutations
from math import inf
from typing import Final

from controller.kafka.shadow.judgement import Step, epoch_of
from state_machines.decisions.broker_change import broker_death, broker_return, controlled_shutdown
from state_machines.decisions.failover import failover
from state_machines.decisions.topic_change import new_partitions
from state_machines.machines.draft import Draft
from state_machines.model.cluster import Cluster, leadership_of
from state_machines.model.decision import Change
from state_machines.model.types import Broker, Leadership, PartitionRow, TopicAssignment

ORDERS_MAX: Final = 40
"""Orders of the events of one partition that are tried."""
PERMUTED_BROKERS_MAX: Final = 3
"""Most brokers of one snapshot in any order; a larger snapshot is tried as a whole only."""
EVENTS_MAX: Final = 64
"""Events that are remembered, besides those that a waiting partition holds."""


class Kind(StrEnum):
    """Kinds of events."""

    CREATION = "topic creation"
    DEATH = "broker departure"
    RETURN = "broker return"
    SHUTDOWN = "clean shutdown"
    FAILOVER = "failover"


@dataclass(eq=False)
class ClusterEvent:
    """An event that a controller handles. The decision is based on ``brokers`` and ``shutting_down``.

    ``subjects``: its brokers; of a FAILOVER those that are gone since the last reading. ``rows``: the new partitions of
    a CREATION, or of a FAILOVER that finds them. No controller can have handled it before zxid ``after`` or controller
    epoch ``controller``. A SHUTDOWN is inferred from writes of the other controller: until it is ``confirmed``,
    ``matching`` holds the rows that agree with it. ``doubt``: why an event before it may have passed unseen.
    ``expected`` and ``met`` count partitions; ``met_s``: time of the first counterpart, ``met_zxid``: its earliest
    write; ``handled_s``: time of the first write of its partitions, equal or not.
    """

    number: int
    controller: int
    kind: Kind
    subjects: tuple[int, ...]
    brokers: Mapping[int, Broker] = field(repr=False)
    shutting_down: frozenset[int]
    at_s: float
    after: int = 0
    rows: frozenset[int] = frozenset()
    confirmed: bool = True
    doubt: str = ""
    expected: int = 0
    met: int = 0
    met_s: float = inf
    met_zxid: float = inf
    handled_s: float = inf
    matching: set[int] = field(default_factory=set)

    @property
    def description(self) -> str:
        """Describes the event for operators."""
        if self.kind is Kind.CREATION:
            return f"{self.kind} ({len(self.rows)} partitions)"
        return (
            f"{self.kind} of {', '.join(map(str, self.subjects))}" if self.kind is not Kind.FAILOVER else str(self.kind)
        )

    def knows(self, broker: int, zxid: int) -> bool:
        """Returns whether its decision is based on a registration of ``broker`` that is older than ``zxid``."""
        return broker in self.brokers and self.brokers[broker].epoch < zxid and broker not in self.shutting_down

    def leaves_out(self, broker: int) -> bool:
        """Returns whether its decision takes ``broker`` as gone or shutting down."""
        return broker not in self.brokers or broker in self.shutting_down


def decide(draft: Draft, event: ClusterEvent, rows: Sequence[int]) -> None:
    """Draws our decision; ``rows`` are those of ``event.rows`` in the draft's numbering."""
    if event.kind is Kind.DEATH:
        broker_death(draft, event.subjects)
    elif event.kind is Kind.RETURN:
        broker_return(draft, event.subjects)
    elif event.kind is Kind.CREATION:
        new_partitions(draft, rows)
    elif event.kind is Kind.FAILOVER:
        failover(draft)
    else:
        for broker in event.subjects:
            controlled_shutdown(draft, broker)


def prepare(cluster: Cluster, event: ClusterEvent) -> None:
    """Enters the registrations on which the decision is based."""
    if event.kind is Kind.FAILOVER:
        cluster.observe_brokers({})
    cluster.observe_brokers(event.brokers)
    for broker in sorted(event.shutting_down - cluster.shutting_down):
        cluster.observe_shutting_down(broker)
    if event.kind is Kind.FAILOVER:
        present = [i for t in cluster.topic_index.values() for i in cluster.topics[t].rows]
        cluster.load_leadership(present, [leadership_of(cluster.rows[i]) for i in present])


def carry_out(cluster: Cluster, event: ClusterEvent, rows: Sequence[int]) -> list[Change]:
    """Decides and enters the decision into the model as if it had been committed; returns its writes."""
    prepare(cluster, event)
    draft = Draft(cluster)
    decide(draft, event, rows)
    decision = draft.finish()
    cluster.apply(decision.moves)
    cluster.apply(decision.writes)
    cluster.apply_replicas(decision.replica_moves)
    return decision.writes


def step_of(change: Change, event: ClusterEvent) -> Step:
    """Returns a write as a step."""
    before, after = leadership_of(change.before), change.after
    epochs = after.leader_epoch - epoch_of(before)
    return Step(event.number, event.controller, event.after, after.leader, after.isr, epochs, change.why)


def replay(i: int, row: PartitionRow, base: Leadership | None, events: Sequence[ClusterEvent]) -> list[Step]:
    """Returns our decisions on one partition alone, from ``base`` on: one step per event that writes it."""
    if not events:
        return []
    alone = Cluster()
    prepare(alone, events[0])
    alone.observe_topic(TopicAssignment("", None, {row.partition: row.assignment}, 0, 0))
    if base is not None or not any(i in event.rows for event in events):
        alone.load_leadership([0], [base])
    steps: list[Step] = []
    for event in events:
        writes = carry_out(alone, event, [0] if i in event.rows else [])
        steps += [step_of(change, event) for change in writes]
    return steps


def other_orders(events: Sequence[ClusterEvent]) -> Iterator[list[ClusterEvent]]:
    """Yields orders in which the other controller may have handled events: it reads registrations at other times.

    It may have seen neighbours in one snapshot or in the opposite order, or one snapshot of ours as several. The
    nearest orders come first, at most :data:`ORDERS_MAX`.
    """
    known = {_key(events)}
    waiting = deque([list(events)])
    while waiting:
        for order in _neighbours(waiting.popleft()):
            if _key(order) in known:
                continue
            if len(known) > ORDERS_MAX:
                return
            known.add(_key(order))
            waiting.append(order)
            yield order


def _key(events: Sequence[ClusterEvent]) -> tuple[object, ...]:
    return tuple((e.number, e.kind, e.subjects, frozenset(e.brokers), e.shutting_down) for e in events)


def _neighbours(events: list[ClusterEvent]) -> Iterator[list[ClusterEvent]]:
    for at, event in enumerate(events):
        for split in _split(event):
            yield [*events[:at], *split, *events[at + 1 :]]
    for at in range(len(events) - 1):
        for joined in _joined(events[at], events[at + 1]):
            yield [*events[:at], *joined, *events[at + 2 :]]


def _split(event: ClusterEvent) -> Iterator[list[ClusterEvent]]:
    """Yields one snapshot as several, in every order; later brokers are as before while one is handled."""
    if event.kind is Kind.FAILOVER and event.subjects:
        with_all = {**event.brokers, **_absent(event.subjects)}
        yield [replace(event, subjects=(), brokers=with_all), replace(event, kind=Kind.DEATH, rows=frozenset())]
    if event.kind not in {Kind.DEATH, Kind.RETURN} or not 1 < len(event.subjects) <= PERMUTED_BROKERS_MAX:
        return
    for order in permutations(event.subjects):
        parts: list[ClusterEvent] = []
        for at, broker in enumerate(order):
            later = order[at + 1 :]
            if event.kind is Kind.DEATH:
                brokers: Mapping[int, Broker] = {**event.brokers, **_absent(later)}
            else:
                brokers = {b: known for b, known in event.brokers.items() if b not in later}
            parts.append(replace(event, subjects=(broker,), brokers=brokers))
        yield parts


def _joined(one: ClusterEvent, two: ClusterEvent) -> Iterator[list[ClusterEvent]]:
    """Yields two neighbours as one snapshot, or in the opposite order."""
    if Kind.FAILOVER in {one.kind, two.kind}:
        yield [replace(two, kind=Kind.FAILOVER, subjects=(), rows=one.rows | two.rows, shutting_down=frozenset())]
        return
    if one.kind is two.kind and one.kind in {Kind.DEATH, Kind.RETURN}:
        yield [replace(two, subjects=tuple(sorted({*one.subjects, *two.subjects})))]
    both = {*one.subjects} & {*two.subjects}
    if not both:
        yield _swapped(one, two)
    elif (one.kind, two.kind) == (Kind.RETURN, Kind.DEATH):
        rest = [replace(e, subjects=tuple(b for b in e.subjects if b not in both)) for e in (one, two)]
        yield [e for e in rest if e.subjects]


def _swapped(one: ClusterEvent, two: ClusterEvent) -> list[ClusterEvent]:
    """Returns ``two`` on the registrations from before ``one``, then ``one`` on those from after both."""
    before = {**one.brokers, **_absent(one.subjects)} if one.kind is Kind.DEATH else dict(one.brokers)
    joining = two.subjects if two.kind is Kind.RETURN else ()
    leaving = {*(one.subjects if one.kind is Kind.RETURN else ()), *(two.subjects if two.kind is Kind.DEATH else ())}
    brokers = {b: known for b, known in before.items() if b not in leaving} | {b: two.brokers[b] for b in joining}
    shutting_down = one.shutting_down.difference(one.subjects if one.kind is Kind.SHUTDOWN else ())
    shutting_down = shutting_down.union(two.subjects if two.kind is Kind.SHUTDOWN else ())
    return [
        replace(two, brokers=brokers, shutting_down=shutting_down),
        replace(one, brokers=two.brokers, shutting_down=two.shutting_down),
    ]


def _absent(subjects: Sequence[int]) -> dict[int, Broker]:
    """Returns brokers that are no longer registered, of which only the ids matter."""
    return {b: Broker(b, 0, ()) for b in subjects}


class RecentEvents(deque[ClusterEvent]):
    """Events, oldest first; finds those that the other controller may still be handling.

    ``wait_s``: time for which one may stay unhandled.
    """

    def __init__(self, wait_s: float) -> None:
        super().__init__(maxlen=EVENTS_MAX)
        self._wait_s = wait_s

    def unhandled(self, now: float) -> int:
        """Returns the number of events that require a write and have none yet."""
        return sum(1 for e in self if e.expected and e.confirmed and e.handled_s >= now)

    def lately(self, now: float) -> list[ClusterEvent]:
        """Returns the events that the other controller may still be handling.

        It takes events in order, so all events before a handled one are done.
        """
        handled = max((e.number for e in self if e.met_s < now), default=0)
        return [e for e in self if e.at_s > now - self._wait_s and e.number >= handled]

    def begun(self, zxid: int) -> int:
        """Returns the number of the last event that the other controller was handling already at ``zxid``.

        It takes events in order, so all events before that one were done.
        """
        return max((e.number for e in self if e.met_zxid < zxid), default=0)

    def loading(self) -> list[ClusterEvent]:
        """Returns the last failover, where its controller may have begun with later registrations than we."""
        latest = next((e for e in reversed(self) if e.met or e.kind is Kind.FAILOVER), None)
        done = latest is None or latest.kind is not Kind.FAILOVER or 0 < latest.met >= latest.expected
        return [] if latest is None or done else [latest]

    def still_handled(self, now: float) -> list[ClusterEvent]:
        """Returns events that may still be handled and that no return undid, and a failover that may not be over."""
        lately = self.lately(now)
        undone = max((at for at, e in enumerate(lately, 1) if e.kind is Kind.RETURN), default=0)
        return [*(e for e in self.loading() if e in lately[:undone]), *lately[undone:]]
