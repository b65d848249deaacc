"""Holds one partition whose state znode and our decisions await each other, and explains its reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Final

from controller.kafka.shadow import judgement as compare
from controller.kafka.shadow.events import ClusterEvent, Kind, other_orders, replay
from controller.kafka.shadow.judgement import Judgement, Outcome, Seen, Step, judge
from state_machines.model.types import NO_LEADER, Leadership, PartitionRow

SEEN_MAX: Final = 16
"""Unexplained reads of one partition that are kept in order; of further ones only the newest is kept."""

_SHRINKING: Final = (Kind.DEATH, Kind.FAILOVER)
_DEPARTURES: Final = (*_SHRINKING, Kind.SHUTDOWN)


class Tries:
    """A budget of replays in other orders for one reading."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = most

    def refill(self) -> None:
        """Begins a new reading."""
        self.left = self.most

    def take(self) -> bool:
        """Takes one try; returns whether the budget had it."""
        self.left -= 1
        return self.left >= 0


@dataclass(slots=True)
class Waiting:
    """One waiting partition.

    ``base``: the last explained read, ``events``: the unhandled ones since, ``steps``: our decisions on them, ``seen``:
    unexplained reads. ``origin`` and ``since``: base and events when the wait began. ``puzzled_s``: since when the
    oldest read is unexplained. ``suspected``: brokers whose clean shutdown was inferred from it. ``blurred``: an ISR
    change was not seen by itself, so a missing write proves nothing. ``unsure``: numbers of departures that may have
    been handled before the origin.
    """

    base: Leadership | None
    events: list[ClusterEvent]
    due_s: float
    origin: Leadership | None = field(init=False)
    since: list[ClusterEvent] = field(init=False)
    steps: list[Step] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    puzzled_s: float = 0.0
    suspected: set[int] = field(default_factory=set)
    blurred: bool = False
    unsure: set[int] = field(default_factory=set)
    _tried: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.begin(self.base)

    def begin(self, base: Leadership | None) -> None:
        """Sets a new origin: all that led to ``base`` is settled."""
        self.base = self.origin = base
        self.since = list(self.events)

    def add(self, event: ClusterEvent) -> None:
        """Adds an event to handle."""
        self.events.append(event)
        self.since.append(event)

    def drop(self, event: ClusterEvent) -> None:
        """Removes a withdrawn event."""
        self.events = [e for e in self.events if e is not event]
        self.since = [e for e in self.since if e is not event]

    def handled(self, number: int) -> None:
        """Removes all events up to a number: the other controller has handled them."""
        self.events = [e for e in self.events if e.number > number]

    def remember(self, seen: Seen) -> None:
        """Adds a read."""
        del self.seen[SEEN_MAX - 1 :]
        self.seen.append(seen)

    @property
    def last(self) -> Leadership | None:
        """Returns the last read."""
        return self.seen[-1].leadership if self.seen else self.base

    @property
    def settled(self) -> bool:
        """Returns whether no event of the decisions is only inferred."""
        return all(e.confirmed for e in self.since)

    @property
    def doubt(self) -> str:
        """Returns why an event may have passed unseen; empty without a doubt."""
        return next((e.doubt for e in self.since if e.doubt), "")

    def try_again(self) -> bool:
        """Returns whether an event or a read is new since the last call, so that other orders are worth a try."""
        key = (self.since[-1].number if self.since else 0, compare.version_of(self.last))
        new, self._tried = key != self._tried, key
        return new

    # -- the oldest read

    def judge(self) -> Judgement:
        """Compares the oldest read with those of our decisions of which it can be the counterpart."""
        return judge(self.base, self.possible_steps(), self.seen[0].leadership)

    def possible_steps(self) -> list[Step]:
        """Returns decisions on events before the write of the oldest read."""
        zxid = self.seen[0].zxid
        return list(takewhile(lambda step: step.after < zxid, self.steps))

    def under_way(self) -> bool:
        """Returns whether the oldest read lies inside a decision, of which we know only the end."""
        return bool(self.seen) and self.judge().outcome is Outcome.UNDER_WAY

    def bare_epochs(self) -> int:
        """Returns the number of epochs that events alone raised, each at most one; 0 where there are too many."""
        seen = self.seen[0]
        return _bare_epochs(self.base, _before(self.events, seen), self.possible_steps(), seen.leadership)

    def let_in(self, begun: int) -> None:
        """Settles departures of brokers that joined the ISR by the oldest read, or marks them as unsure.

        A returned broker fetches nothing before the controller has handled its return and all earlier events: no
        decision on its departure is based on an ISR that it joined since. Only an earlier ISR change of the leader can
        be written that late, where the controller is behind. So the departures up to number ``begun``, the last event
        that the controller was handling by then, are settled; the others are unsure. Where several ISR changes were
        read as one, the join may be older than the departure: then ``begun`` is 0.
        """
        seen, known = self.seen[0], self.base.isr if self.base is not None else ()
        for b in frozenset(seen.leadership.isr).difference(known):
            back = max((e.number for e in self.events if e.knows(b, seen.zxid)), default=0)
            away = [e for e in self.events if e.number < back and e.kind in _DEPARTURES and e.leaves_out(b)]
            settled = [e for e in away if e.kind is not Kind.FAILOVER and e.subjects == (b,) and e.number <= begun]
            self.events = [e for e in self.events if e not in settled]
            self.unsure.update(e.number for e in away if e not in settled)

    def hidden_isr(self, i: int, row: PartitionRow, *, within: bool = False) -> bool:
        """Returns whether unread ISR changes could lead to the oldest read, or to a decision around it."""
        seen, replicas = self.seen[0], row.assignment.replicas
        decide = partial(_replay, i, row, _before(self.events, seen))
        return compare.hidden_isr_explains(self.base, seen.leadership, replicas, decide, within=within)

    def preferred_unseen(self, i: int, row: PartitionRow) -> bool:
        """Returns whether an unread preferred election lies before, between or after our decisions."""
        seen, replicas = self.seen[0], row.assignment.replicas
        events = _before(self.events, seen)
        for at in range(len(self.possible_steps()) + 1):
            decide = partial(_with_preferred, i, row, events, at)
            if judge(self.base, decide(self.base), seen.leadership).outcome is Outcome.AGREES:
                return True
            if compare.hidden_isr_explains(self.base, seen.leadership, replicas, decide):
                return True
        return False

    def superseded(self, i: int, row: PartitionRow, tries: Tries) -> bool:
        """Returns whether the oldest read may lie inside a decision whose end was read, too."""
        if len(self.seen) == 1:
            return False
        return self.hidden_isr(i, row, within=True) or self.another_order(i, row, tries, Outcome.UNDER_WAY)

    def _orders(self, events: list[ClusterEvent]) -> Iterator[list[ClusterEvent]]:
        """Yields orders in which the other controller may have handled events, some perhaps before the origin."""
        rest = [e for e in events if e.number not in self.unsure]
        if len(rest) < len(events):
            yield rest
        yield from other_orders(events)

    def another_order(self, i: int, row: PartitionRow, tries: Tries, outcome: Outcome = Outcome.AGREES) -> bool:
        """Returns whether another order of the events since the origin leads to the oldest read."""
        seen = self.seen[0].leadership
        for order in self._orders(_before(self.since, self.seen[0])):
            if not tries.take():
                return False
            steps = replay(i, row, self.origin, order)
            if judge(self.origin, steps, seen).outcome is outcome or _bare_epochs(self.origin, order, steps, seen):
                return True
        return False

    def hidden_isr_in_another_order(self, i: int, row: PartitionRow, tries: Tries) -> bool:
        """Returns whether another order and unread ISR changes together lead to the oldest read."""
        seen, replicas = self.seen[0], row.assignment.replicas
        return any(
            compare.hidden_isr_explains(self.origin, seen.leadership, replicas, partial(_replay, i, row, order))
            for order in self._orders(_before(self.since, seen))
            if tries.take()
        )

    def nothing_in_another_order(self, i: int, row: PartitionRow, tries: Tries) -> bool:
        """Returns whether another order of the events leads to the present state, so that no write is missing."""
        for order in self._orders(self.since):
            if not tries.take():
                return False
            steps = replay(i, row, self.origin, order)
            if compare.after(self.origin, steps) == self.base or (
                self.base is not None and judge(self.origin, steps, self.base).outcome is Outcome.AGREES
            ):
                return True
        return False


def _before(events: list[ClusterEvent], seen: Seen) -> list[ClusterEvent]:
    """Returns the events before the write of a state znode."""
    return [e for e in events if e.after < seen.zxid]


def _bare_epochs(base: Leadership | None, events: list[ClusterEvent], steps: list[Step], seen: Leadership) -> int:
    wrote = {step.event for step in steps}
    able = [e for e in events if e.kind in _SHRINKING and e.number not in wrote]
    bare = compare.bare_epochs(base, steps, seen)
    return bare if bare <= len(able) else 0


def _replay(i: int, row: PartitionRow, events: list[ClusterEvent], base: Leadership | None) -> list[Step]:
    return replay(i, row, base, events)


def _with_preferred(
    i: int, row: PartitionRow, events: list[ClusterEvent], at: int, base: Leadership | None
) -> list[Step]:
    """Returns our decisions with a preferred election after the first ``at``; none where it is impossible."""
    steps = replay(i, row, base, events)[:at]
    first, end = row.assignment.replicas[0], compare.after(base, steps)
    if end is None or first not in end.isr or end.leader in {NO_LEADER, first}:
        return []
    number = steps[-1].event if steps else 0
    steps.append(Step(number, 0, 0, first, end.isr, 1, "preferred election"))
    rest = [e for e in events if e.number > number]
    return steps + replay(i, row, compare.after(base, steps), rest)
