"""What the shadow decides on, and the deciding: the same decide functions as the active controller's.

A happening keeps the registrations that it was decided under, so that it can be decided again for one partition whose
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

from controller.shadow.judgement import Step, epoch_of
from state_machines.decisions.broker_change import broker_death, broker_return
from state_machines.decisions.controlled_shutdown import controlled_shutdown
from state_machines.decisions.failover import failover
from state_machines.decisions.topic_change import new_partitions
from state_machines.machines.draft import Draft
from state_machines.model.cluster import Cluster, leadership_of
from state_machines.model.decision import Change
from state_machines.model.types import Broker, Leadership, PartitionRow, TopicAssignment

ORDERS_MAX: Final = 40
"""Orders of the happenings of one partition that are tried."""

PERMUTED_BROKERS_MAX: Final = 3
"""Brokers of one snapshot whose order is tried out; with more of them only the snapshot itself is."""


class Kind(StrEnum):
    """Sorts of happenings."""

    CREATION = "topic creation"
    DEATH = "broker departure"
    RETURN = "broker return"
    SHUTDOWN = "clean shutdown"
    FAILOVER = "failover"


@dataclass(eq=False)
class ClusterEvent:
    """Something that a controller answers. ``brokers`` and ``shutting_down`` are as it is decided on.

    ``who``: the brokers that it is about; of a FAILOVER those that are gone since the last reading. ``rows``: the new
    partitions of a CREATION, or of a FAILOVER that finds them. Nobody can have answered before zxid ``after`` or
    controller epoch ``controller``. A SHUTDOWN is inferred from what the other controller wrote: until it is
    ``confirmed``, ``matching`` holds the rows that speak for it. ``doubt``: why something may have happened before it
    that nobody saw. ``expected`` and ``met`` count partitions; ``met_s``: when the first counterpart was found,
    ``met_zxid``: the earliest at which one was written; ``answered_s``: when any write of its partitions was found,
    the same or another one.
    """

    number: int
    controller: int
    kind: Kind
    who: tuple[int, ...]
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
    answered_s: float = inf
    matching: set[int] = field(default_factory=set)

    @property
    def what(self) -> str:
        """For people."""
        if self.kind is Kind.CREATION:
            return f"{self.kind} ({len(self.rows)} partitions)"
        return f"{self.kind} of {', '.join(map(str, self.who))}" if self.kind is not Kind.FAILOVER else str(self.kind)

    def knows(self, broker: int, zxid: int) -> bool:
        """Whether it is decided under a registration of ``broker`` that is older than ``zxid``."""
        return broker in self.brokers and self.brokers[broker].epoch < zxid and broker not in self.shutting_down

    def leaves_out(self, broker: int) -> bool:
        """Whether it is decided as if ``broker`` had gone, or were about to go."""
        return broker not in self.brokers or broker in self.shutting_down


def decide(draft: Draft, event: ClusterEvent, rows: Sequence[int]) -> None:
    """Draws our decision; ``rows`` are those of ``event.rows`` in the draft's numbering."""
    if event.kind is Kind.DEATH:
        broker_death(draft, event.who)
    elif event.kind is Kind.RETURN:
        broker_return(draft, event.who)
    elif event.kind is Kind.CREATION:
        new_partitions(draft, rows)
    elif event.kind is Kind.FAILOVER:
        failover(draft)
    else:
        for broker in event.who:
            controlled_shutdown(draft, broker)


def prepare(cluster: Cluster, event: ClusterEvent) -> None:
    """Enters the registrations that the happening is decided under."""
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
    """A write as a step."""
    before, after = leadership_of(change.before), change.after
    epochs = after.leader_epoch - epoch_of(before)
    return Step(event.number, event.controller, event.after, after.leader, after.isr, epochs, change.why)


def replay(i: int, row: PartitionRow, base: Leadership | None, events: Sequence[ClusterEvent]) -> list[Step]:
    """Our decisions on one partition alone, beginning with ``base``: one step per happening that writes it."""
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
    """Orders in which another controller may have handled the same: it reads registrations at other moments than we.

    Neighbours may have been one snapshot for it or the other way round, one snapshot of ours may have been several.
    The nearest orders come first, at most :data:`ORDERS_MAX`.
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
    return tuple((h.number, h.kind, h.who, frozenset(h.brokers), h.shutting_down) for h in events)


def _neighbours(events: list[ClusterEvent]) -> Iterator[list[ClusterEvent]]:
    for at, event in enumerate(events):
        for split in _split(event):
            yield [*events[:at], *split, *events[at + 1 :]]
    for at in range(len(events) - 1):
        for joined in _joined(events[at], events[at + 1]):
            yield [*events[:at], *joined, *events[at + 2 :]]


def _split(event: ClusterEvent) -> Iterator[list[ClusterEvent]]:
    """One snapshot as several, in every order. While one broker is handled, the later ones are as before."""
    if event.kind is Kind.FAILOVER and event.who:
        with_all = {**event.brokers, **_absent(event.who)}
        yield [replace(event, who=(), brokers=with_all), replace(event, kind=Kind.DEATH, rows=frozenset())]
    if event.kind not in {Kind.DEATH, Kind.RETURN} or not 1 < len(event.who) <= PERMUTED_BROKERS_MAX:
        return
    for order in permutations(event.who):
        parts: list[ClusterEvent] = []
        for at, broker in enumerate(order):
            later = order[at + 1 :]
            if event.kind is Kind.DEATH:
                brokers: Mapping[int, Broker] = {**event.brokers, **_absent(later)}
            else:
                brokers = {b: known for b, known in event.brokers.items() if b not in later}
            parts.append(replace(event, who=(broker,), brokers=brokers))
        yield parts


def _joined(one: ClusterEvent, two: ClusterEvent) -> Iterator[list[ClusterEvent]]:
    """Two neighbours as one snapshot, or the other way round."""
    if Kind.FAILOVER in {one.kind, two.kind}:
        yield [replace(two, kind=Kind.FAILOVER, who=(), rows=one.rows | two.rows, shutting_down=frozenset())]
        return
    if one.kind is two.kind and one.kind in {Kind.DEATH, Kind.RETURN}:
        yield [replace(two, who=tuple(sorted({*one.who, *two.who})))]
    both = {*one.who} & {*two.who}
    if not both:
        yield _swapped(one, two)
    elif (one.kind, two.kind) == (Kind.RETURN, Kind.DEATH):
        rest = [replace(h, who=tuple(b for b in h.who if b not in both)) for h in (one, two)]
        yield [h for h in rest if h.who]


def _swapped(one: ClusterEvent, two: ClusterEvent) -> list[ClusterEvent]:
    """``two`` on the registrations from before ``one``, then ``one`` on those from after both."""
    before = {**one.brokers, **_absent(one.who)} if one.kind is Kind.DEATH else dict(one.brokers)
    joining = two.who if two.kind is Kind.RETURN else ()
    leaving = {*(one.who if one.kind is Kind.RETURN else ()), *(two.who if two.kind is Kind.DEATH else ())}
    brokers = {b: known for b, known in before.items() if b not in leaving} | {b: two.brokers[b] for b in joining}
    shutting_down = one.shutting_down.difference(one.who if one.kind is Kind.SHUTDOWN else ())
    shutting_down = shutting_down.union(two.who if two.kind is Kind.SHUTDOWN else ())
    return [
        replace(two, brokers=brokers, shutting_down=shutting_down),
        replace(one, brokers=two.brokers, shutting_down=two.shutting_down),
    ]


def _absent(who: Sequence[int]) -> dict[int, Broker]:
    """Brokers that are registered no more, of which only the ids matter."""
    return {b: Broker(b, 0, ()) for b in who}
