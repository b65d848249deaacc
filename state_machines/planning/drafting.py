"""Draws a plan: holds the loads, moves and refusals so far, and the rules that all goals share.

Brokers without a rack share one that has no name: so they never look better spread than they are. An absent broker's
rack is unknown, and counts as one of its own: its replica is no reason to move another one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from state_machines.model.types import Assignment
from state_machines.planning.cluster_view import ClusterView
from state_machines.planning.goals import Topics, listed
from state_machines.planning.plan import BrokerLoad, Move, NotMoved, Plan, Summary


class Loads:
    """Counts by broker, of the replicas that stay once reassignments under way are complete.

    ``order`` holds ``hosts`` as (count, id), the least loaded first.
    """

    def __init__(self, assignments: Iterable[tuple[Assignment, int]], hosts: Collection[int]) -> None:
        self.replicas: Counter[int] = Counter()
        self.first: Counter[int] = Counter()
        for assignment, rows in assignments:
            target = assignment.target
            for broker in target:
                self.replicas[broker] += rows
            if target:
                self.first[target[0]] += rows
        self._hosts = frozenset(hosts)
        self.order = sorted((self.replicas[b], b) for b in self._hosts)
        self.first_mean = self.first.total() / max(1, len(self._hosts))
        """First replicas that each host would have if they were even."""

    def move(self, origin: tuple[int, ...], target: tuple[int, ...]) -> None:
        """Enters a partition's move."""
        for broker in origin:
            if broker not in target:
                self._count(broker, -1)
        for broker in target:
            if broker not in origin:
                self._count(broker, 1)
        self.first[origin[0]] -= 1
        self.first[target[0]] += 1

    def _count(self, broker: int, change: int) -> None:
        before = self.replicas[broker]
        self.replicas[broker] = before + change
        if broker in self._hosts:
            del self.order[bisect_left(self.order, (before, broker))]
            insort(self.order, (before + change, broker))


Rack = str | int
"""Name of a rack, empty for brokers without one; the id of a broker whose rack is unknown."""


class Racks:
    """Racks of all brokers, and those of ``hosts``, on which replicas may be placed."""

    def __init__(self, view: ClusterView, hosts: Iterable[int]) -> None:
        self._racks: dict[int, Rack] = {
            b: broker.rack or ("" if broker.live else b) for b, broker in view.brokers.items()
        }
        self.open = {self.of(b) for b in hosts}
        """Racks on which replicas may be placed."""

    def of(self, broker: int) -> Rack:
        """Returns the rack of a broker."""
        return self._racks.get(broker, broker)

    def used(self, replicas: Iterable[int]) -> set[Rack]:
        """Returns the racks of replicas."""
        return {self.of(b) for b in replicas}

    def missing(self, replicas: Collection[int]) -> int:
        """Returns on how many more racks the same number of replicas could be."""
        used = self.used(replicas)
        return min(len(replicas), len(used | self.open)) - len(used)


FIRST_GAP_SHARE: Final = 0.1
FIRST_GAP_MAX: Final = 2
"""First replicas of two brokers are far from even above this gap, and above that share of their mean by broker."""

MOVING: Final = "it is being reassigned now: wait until that is complete, or cancel it"
DELETING: Final = "it is being deleted: leave it out, or wait until it is gone"

Replicas = tuple[int, ...]


class PlanDraft:
    """A plan that is being drawn. ``leaving``: brokers on which no replica may be placed, beside the usual ones."""

    def __init__(self, view: ClusterView, leaving: Collection[int] = ()) -> None:
        self.view = view
        self.hosts = frozenset(b for b, known in view.brokers.items() if known.may_host and b not in leaving)
        self.racks = Racks(view, self.hosts)
        self._distinct = _distinct(view.assignments)
        self.loads = Loads(self._distinct, self.hosts)
        self._before = Counter(self.loads.replicas), Counter(self.loads.first)
        self._moves: dict[int, Move] = {}
        self.refused: list[NotMoved] = []
        self._deleting: set[str] = set()

    def refuse(self, subject: str, why: str) -> None:
        """Notes a partition or broker that gets no move, and the reason."""
        self.refused.append(NotMoved(subject, why))

    def check_brokers(self, brokers: Collection[int]) -> None:
        """Refuses a goal without brokers, or with a broker twice."""
        if not brokers:
            self.refuse("brokers", "brokers is empty: name at least one broker")
        for broker in sorted(b for b, count in Counter(brokers).items() if count > 1):
            self.refuse(f"broker {broker}", f"brokers names {broker} twice: name it once")

    def check_topics(self, topics: Topics) -> None:
        """Refuses a goal for no topic, or for topics that do not exist."""
        if topics is not None and not topics:
            self.refuse("topics", "topics is empty: name at least one topic, or leave the limit out")
        for topic in sorted(set(topics or ()) - self.view.topics.keys()):
            self.refuse(f"topic {topic}", f"topics names {topic!r}, which does not exist: correct the name")

    def rows(self, topics: Topics, touches: Callable[[Replicas], bool]) -> Iterator[tuple[str, int]]:
        """Yields topic and row of partitions that the goal ``touches`` and that may move; refuses the others.

        Visits each row, but judges each distinct assignment once.
        """
        assignments, judged = self.view.assignments, dict[int, tuple[bool, str | None]]()
        for topic in self.view.topics if topics is None else sorted(set(topics)):
            deleting = topic in self.view.deleting
            for row in self.view.topics[topic]:
                assignment = assignments[row]
                known = judged.get(id(assignment))
                if known is None:
                    known = judged[id(assignment)] = touches(assignment.target), self._why_stuck(assignment)
                if known[0] and ((known[1] is None and not deleting) or self.may_move(topic, row)):
                    yield topic, row

    def may_move(self, topic: str, row: int) -> bool:
        """Checks whether a partition may move at all, and refuses it otherwise."""
        if topic in self.view.deleting:
            if topic not in self._deleting:
                self._deleting.add(topic)
                self.refuse(f"topic {topic}", DELETING)
            return False
        why = self._why_stuck(self.view.assignments[row])
        if why is not None:
            self.refuse(f"{topic}-{self.view.partitions[row]}", why)
        return why is None

    def _why_stuck(self, assignment: Assignment) -> str | None:
        if assignment.moving:
            return MOVING
        if any(map(self.view.is_live, assignment.replicas)):
            return None
        return f"none of its replicas [{listed(assignment.replicas)}] is live, so none can be copied: start one"

    def pick(self, beside: Sequence[int]) -> int | None:
        """Returns the least loaded host for a further replica, on a rack without one where there is such a rack."""
        used = self.racks.used(beside)
        spread = not self.racks.open <= used
        for _, broker in self.loads.order:
            if broker not in beside and not (spread and self.racks.of(broker) in used):
                return broker
        return None

    def refuse_crowded(self, topic: str, row: int, factor: int) -> None:
        """Refuses a partition that has fewer hosts than it needs."""
        hosts = listed(sorted(self.hosts))
        why = f"{factor} replicas have too few brokers: only [{hosts}] may take any; add one, or lower the factor"
        self.refuse(f"{topic}-{self.view.partitions[row]}", why)

    def arranged(self, origin: Replicas, target: Sequence[int]) -> Replicas:
        """Returns ``target`` with its preferred leader first; the others keep their order.

        The first replica stays first. Another live one takes its place where it leaves, or where its broker has far
        more first replicas than that one's.
        """
        first, counts, live = origin[0], self.loads.first, self.view.is_live
        least = min((b for b in target if live(b)), key=lambda b: (counts[b], b not in origin), default=first)
        gap_max = max(FIRST_GAP_MAX, FIRST_GAP_SHARE * self.loads.first_mean)
        if first in target and counts[first] - counts[least] <= gap_max:
            least = first
        return (least, *(b for b in target if b != least))

    def current(self, row: int) -> Replicas:
        """Returns the replicas of a partition after the moves so far."""
        drawn = self._moves.get(row)
        return self.view.assignments[row].replicas if drawn is None else drawn.target

    def move_in_order(self, topic: str, row: int, target: Replicas) -> None:
        """Draws a move as :meth:`move` does; replicas behind the first one that stay keep the order that they have."""
        self.move(topic, row, in_order_of(self.view.assignments[row].replicas, target))

    def move(self, topic: str, row: int, target: Replicas) -> None:
        """Draws a move, or draws it anew; none is left where the target is what the partition has."""
        origin, partition, current = self.view.assignments[row].replicas, self.view.partitions[row], self.current(row)
        if target == current:
            return
        self.loads.move(current, target)
        if target == origin:
            del self._moves[row]
            return
        added, size = len(set(target) - set(origin)), self.view.sizes.get((topic, partition))
        cost = 0 if not added else None if size is None else size * added
        self._moves[row] = Move(topic, partition, origin, target, cost)

    def finish(self, goal: str) -> Plan:
        """Returns the plan; moves are in the order of topics and partitions."""
        moves = tuple(self._moves[row] for row in sorted(self._moves))
        return Plan(self.view.cluster_id, goal, moves, tuple(self.refused), self._summary(moves))

    def _summary(self, moves: Sequence[Move]) -> Summary:
        violates = self.racks.missing
        before = sum(rows for assignment, rows in self._distinct if violates(assignment.target) > 0)
        change = sum((violates(move.target) > 0) - (violates(move.origin) > 0) for move in moves)
        return Summary(
            sum(move.bytes or 0 for move in moves),
            sum(move.bytes is None for move in moves),
            self._broker_loads(moves),
            before,
            before + change,
        )

    def _broker_loads(self, moves: Sequence[Move]) -> tuple[BrokerLoad, ...]:
        arrivals: Counter[int] = Counter()
        departures: Counter[int] = Counter()
        copied: Counter[int] = Counter()
        for move in moves:
            departures.update(move.removed)
            for broker in (added := move.added):
                arrivals[broker] += 1
                copied[broker] += (move.bytes or 0) // len(added)
        (replicas, first), after = self._before, self.loads
        return tuple(
            BrokerLoad(
                b, replicas[b], after.replicas[b], first[b], after.first[b], arrivals[b], departures[b], copied[b]
            )
            for b in sorted(self.view.brokers.keys() | replicas.keys())
        )


def _distinct(assignments: Sequence[Assignment]) -> list[tuple[Assignment, int]]:
    """Returns assignments with the number of their rows; most rows share theirs with many others."""
    rows = Counter(map(id, assignments))
    return [(assignment, rows[i]) for i, assignment in {id(a): a for a in assignments}.items()]


def in_order_of(origin: Replicas, target: Replicas) -> Replicas:
    """Returns ``target`` with those behind its first replica that are of ``origin`` in the order of ``origin``."""
    first, *others = target
    stay = iter(sorted((b for b in others if b in origin), key=origin.index))
    return (first, *(next(stay) if b in origin else b for b in others))
