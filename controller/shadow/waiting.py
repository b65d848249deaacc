"""One partition whose state znode and our decisions wait for each other, and what may explain a read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Final

from controller.shadow import judgement as compare
from controller.shadow.events import ClusterEvent, Kind, other_orders, replay
from controller.shadow.judgement import Judgement, Outcome, Seen, Step, judge
from state_machines.model.types import NO_LEADER, Leadership, PartitionRow

SEEN_MAX: Final = 16
"""Unexplained reads of one partition that are kept in order; beyond them only the newest is."""

_SHRINKING: Final = (Kind.DEATH, Kind.FAILOVER)
_DEPARTURES: Final = (*_SHRINKING, Kind.SHUTDOWN)


class Tries:
    """A budget of replays in other orders: what is left of it is used in the next reading."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = most

    def refill(self) -> None:
        """A new reading."""
        self.left = self.most

    def take(self) -> bool:
        """Whether one more may be tried."""
        self.left -= 1
        return self.left >= 0


@dataclass(slots=True)
class Waiting:
    """One partition.

    ``base``: the last explained read, ``happened``: what is unanswered since, ``steps``: our decisions on it, ``seen``:
    what was read and is not explained. ``origin`` and ``since``: base and happenings as of when it began to wait.
    ``puzzled_s``: when the oldest unexplained read became that. ``suspected``: brokers whose clean shutdown was
    inferred from it. ``blurred``: an ISR change was not seen by itself, so a missing write proves nothing.
    ``unsure``: numbers of departures of which nobody knows whether they were answered before the origin.
    """

    base: Leadership | None
    happened: list[ClusterEvent]
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
        """A new origin: what led to ``base`` is settled."""
        self.base = self.origin = base
        self.since = list(self.happened)

    def add(self, event: ClusterEvent) -> None:
        """Something more to answer."""
        self.happened.append(event)
        self.since.append(event)

    def drop(self, event: ClusterEvent) -> None:
        """It did not happen after all."""
        self.happened = [h for h in self.happened if h is not event]
        self.since = [h for h in self.since if h is not event]

    def answered(self, number: int) -> None:
        """Everything up to a happening is answered."""
        self.happened = [h for h in self.happened if h.number > number]

    def remember(self, seen: Seen) -> None:
        """Another read."""
        del self.seen[SEEN_MAX - 1 :]
        self.seen.append(seen)

    @property
    def last(self) -> Leadership | None:
        """What was read last."""
        return self.seen[-1].leadership if self.seen else self.base

    @property
    def settled(self) -> bool:
        """Whether nothing that the decisions stand on is only inferred."""
        return all(h.confirmed for h in self.since)

    @property
    def doubt(self) -> str:
        """Why something may have happened that nobody saw; empty where nothing may."""
        return next((h.doubt for h in self.since if h.doubt), "")

    def try_again(self) -> bool:
        """Whether something is new since the last call, so that trying orders is not in vain."""
        key = (self.since[-1].number if self.since else 0, compare.version_of(self.last))
        new, self._tried = key != self._tried, key
        return new

    # -- the oldest read

    def judge(self) -> Judgement:
        """The oldest read against those of our decisions that it can be the counterpart of."""
        return judge(self.base, self.possible_steps(), self.seen[0].leadership)

    def possible_steps(self) -> list[Step]:
        """Decisions about what had happened before the oldest read was written."""
        zxid = self.seen[0].zxid
        return list(takewhile(lambda step: step.after < zxid, self.steps))

    def under_way(self) -> bool:
        """Whether the oldest read lies inside a decision, of which we know only the end."""
        return bool(self.seen) and self.judge().outcome is Outcome.UNDER_WAY

    def bare_epochs(self) -> int:
        """Epochs that were raised by happenings of which each may raise one; 0 where there are too many."""
        seen = self.seen[0]
        return _bare_epochs(self.base, _before(self.happened, seen), self.possible_steps(), seen.leadership)

    def let_in(self, begun: int) -> None:
        """What becomes of the departures of those who joined the ISR by the oldest read.

        A broker that came back fetches nothing before the controller has handled its return, and all that happened
        before: its departure is not decided on an ISR that it joined since. Only what the leader wanted earlier can
        be written that late, where the controller is behind. So the departures up to number ``begun``, the last that
        the controller was answering by then, are settled; of the others nobody knows. Where several ISR changes were
        read as one, the joining may be older than the departure: then ``begun`` is 0.
        """
        seen, known = self.seen[0], self.base.isr if self.base is not None else ()
        for b in frozenset(seen.leadership.isr).difference(known):
            back = max((h.number for h in self.happened if h.knows(b, seen.zxid)), default=0)
            away = [h for h in self.happened if h.number < back and h.kind in _DEPARTURES and h.leaves_out(b)]
            settled = [h for h in away if h.kind is not Kind.FAILOVER and h.who == (b,) and h.number <= begun]
            self.happened = [h for h in self.happened if h not in settled]
            self.unsure.update(h.number for h in away if h not in settled)

    def hidden_isr(self, i: int, row: PartitionRow, *, within: bool = False) -> bool:
        """Whether ISR changes that were never read could lead to the oldest read, or to a decision around it."""
        seen, replicas = self.seen[0], row.assignment.replicas
        decide = partial(_replay, i, row, _before(self.happened, seen))
        return compare.hidden_isr_explains(self.base, seen.leadership, replicas, decide, within=within)

    def preferred_unseen(self, i: int, row: PartitionRow) -> bool:
        """Whether a preferred election that was never read lies before, between or after our decisions."""
        seen, replicas = self.seen[0], row.assignment.replicas
        happened = _before(self.happened, seen)
        for at in range(len(self.possible_steps()) + 1):
            decide = partial(_with_preferred, i, row, happened, at)
            if judge(self.base, decide(self.base), seen.leadership).outcome is Outcome.AGREES:
                return True
            if compare.hidden_isr_explains(self.base, seen.leadership, replicas, decide):
                return True
        return False

    def superseded(self, i: int, row: PartitionRow, tries: Tries) -> bool:
        """Whether the oldest read may lie inside a decision whose end was read, too."""
        if len(self.seen) == 1:
            return False
        return self.hidden_isr(i, row, within=True) or self.another_order(i, row, tries, Outcome.UNDER_WAY)

    def _orders(self, events: list[ClusterEvent]) -> Iterator[list[ClusterEvent]]:
        """Orders in which another controller may have handled them since the origin, or some of them before it."""
        rest = [h for h in events if h.number not in self.unsure]
        if len(rest) < len(events):
            yield rest
        yield from other_orders(events)

    def another_order(self, i: int, row: PartitionRow, tries: Tries, outcome: Outcome = Outcome.AGREES) -> bool:
        """Whether another order of the events since the origin leads to the oldest read."""
        seen = self.seen[0].leadership
        for order in self._orders(_before(self.since, self.seen[0])):
            if not tries.take():
                return False
            steps = replay(i, row, self.origin, order)
            if judge(self.origin, steps, seen).outcome is outcome or _bare_epochs(self.origin, order, steps, seen):
                return True
        return False

    def hidden_isr_in_another_order(self, i: int, row: PartitionRow, tries: Tries) -> bool:
        """Both together."""
        seen, replicas = self.seen[0], row.assignment.replicas
        return any(
            compare.hidden_isr_explains(self.origin, seen.leadership, replicas, partial(_replay, i, row, order))
            for order in self._orders(_before(self.since, seen))
            if tries.take()
        )

    def nothing_in_another_order(self, i: int, row: PartitionRow, tries: Tries) -> bool:
        """Whether another order of the events leads to what is there already, so that no write is missing."""
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
    """What had happened when a state znode was written."""
    return [h for h in events if h.after < seen.zxid]


def _bare_epochs(base: Leadership | None, events: list[ClusterEvent], steps: list[Step], seen: Leadership) -> int:
    wrote = {step.event for step in steps}
    able = [h for h in events if h.kind in _SHRINKING and h.number not in wrote]
    bare = compare.bare_epochs(base, steps, seen)
    return bare if bare <= len(able) else 0


def _replay(i: int, row: PartitionRow, events: list[ClusterEvent], base: Leadership | None) -> list[Step]:
    return replay(i, row, base, events)


def _with_preferred(
    i: int, row: PartitionRow, events: list[ClusterEvent], at: int, base: Leadership | None
) -> list[Step]:
    """Our decisions with a preferred election after the first ``at`` of them; nothing where it is not possible."""
    steps = replay(i, row, base, events)[:at]
    first, end = row.assignment.replicas[0], compare.after(base, steps)
    if end is None or first not in end.isr or end.leader in {NO_LEADER, first}:
        return []
    number = steps[-1].event if steps else 0
    steps.append(Step(number, 0, 0, first, end.isr, 1, "preferred election"))
    rest = [h for h in events if h.number > number]
    return steps + replay(i, row, compare.after(base, steps), rest)
